"""What records become: points and log text with live events, progress of the job, moves of replica and job."""

import math
from collections.abc import Callable

import pytest
from django.db import OperationalError

from orchestrator import live
from orchestrator.models import Cursor, Job, LogChunk, Replica
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import telemetry
from orchestrator.services.intake import progress as intake_progress
from tests.data.fakes import NOW_S, FakeAgent, FakeRedis, log, points
from tests.factories import make_job, make_replica
from worker_agent.protocol.records import Exit, Gap, Phase, Progress, Started, Summary
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus

pytestmark = pytest.mark.django_db
Step = Callable[[], int]
Told = dict[str, list[live.LiveEvent]]


def progress(step: int, *, epoch: int = 1) -> Progress:
    return Progress(at=NOW_S, step=step, total_steps=100, epoch=epoch, epochs=5)


def events_of(told: Told, agent: FakeAgent, kind: str) -> list[live.LiveEvent]:
    return [event for event in told[live.job_group(agent.replica.job_id)] if event["kind"] == kind]


def test_points_of_a_step_leave_as_one_event(agent: FakeAgent, step: Step, told: Told) -> None:
    agent.say(points([1.0, math.nan]), points([math.inf], first=2), points([9.0], name="<script>"))
    agent.send(0, 1)
    agent.send(1, 3)
    step()
    (event,) = events_of(told, agent, "points")
    assert (event["replica"], event["start"], event["end"]) == ("worker:0", 0, agent.size)
    assert event["series"]["loss"]["steps"] == [0, 1, 2]
    assert event["series"]["loss"]["values"] == [1.0, "NaN", "Infinity"]
    assert event["series"]["<script>"]["values"] == [9.0]


def test_an_advance_without_points_is_told_too(agent: FakeAgent, step: Step, told: Told) -> None:
    agent.say(progress(1))
    agent.send()
    step()
    agent.say(points([1.0]))
    agent.send(1)
    step()
    first, second = events_of(told, agent, "points")
    assert (first["series"], first["end"]) == ({}, second["start"])


def test_points_out_of_printed_lines_leave_with_their_log(
    agent: FakeAgent, redis: FakeRedis, step: Step, told: Told
) -> None:
    shim = FakeAgent(redis, agent.replica, stream="shim")
    shim.say(log("loss: 0.5\n"), points([0.5], first=1), Summary(at=NOW_S, epoch=0, metrics={"loss": 0.5}))
    shim.send()
    step()
    assert events_of(told, agent, "points") == []
    (event,) = events_of(told, agent, "log")
    assert (event["text"], event["series"]["loss"]["steps"]) == ("loss: 0.5\n", [1])
    assert telemetry.series(agent.replica.job)["loss"][0].values == [0.5]


def test_progress_only_grows_within_an_attempt(agent: FakeAgent, step: Step, told: Told) -> None:
    agent.say(
        progress(50, epoch=3), progress(20, epoch=1), Summary(at=NOW_S, epoch=3, metrics={"loss": 0.5, "acc": 0.9})
    )
    agent.send()
    step()
    agent.say(progress(40, epoch=2), Summary(at=NOW_S, epoch=4, metrics={"loss": math.nan}))
    agent.send(3)
    step()
    job = Job.objects.get()
    assert (job.step, job.total_steps, job.epoch, job.epochs) == (50, 100, 4, 5)
    assert job.metrics == {"loss": "NaN", "acc": 0.9}
    assert job.revision >= 2
    summaries = [event["job"] for event in told[live.JOBS]]
    assert (summaries[-1]["progress"], summaries[-1]["revision"]) == (0.5, job.revision)


def test_an_earlier_attempt_moves_no_progress(agent: FakeAgent, step: Step) -> None:
    Job.objects.update(attempt=2)
    agent.say(progress(50), points([1.0]))
    agent.send()
    step()
    assert Job.objects.get().step == 0
    assert agent.acked == agent.size


def test_jobs_of_one_batch_move_in_one_update(
    redis: FakeRedis, step: Step, django_assert_max_num_queries: Callable[..., object]
) -> None:
    agents = [FakeAgent(redis, make_replica(make_job(status=JobStatus.RUNNING))) for _ in range(12)]

    def send(number: int) -> None:
        for place, agent in enumerate(agents):
            agent.say(progress(number + place), points([1.0], first=number), log("line\n"))
            agent.send(3 * (number - 1))

    send(1)
    step()
    send(2)
    with django_assert_max_num_queries(15):
        step()
    assert list(Job.objects.order_by("pk").values_list("step", flat=True)) == list(range(2, 14))


def test_lists_find_what_a_job_reached_and_draw_its_loss(agent: FakeAgent, step: Step) -> None:
    agent.say(points([3.0]), points([2.0], first=2), Summary(at=NOW_S, epoch=1, metrics={"loss": 0.5, "acc": 0.9}))
    agent.send()
    step()
    agent.say(Summary(at=NOW_S, epoch=2, metrics={"loss": math.nan, "acc": 0.95}))
    agent.send()
    step()
    job = agent.replica.job
    job.refresh_from_db()
    assert dict(job.metric_rows.values_list("name", "value")) == {"loss": None, "acc": 0.95}
    assert [value for _, value in job.sketch] == [3.0, 2.0]


def test_a_loss_of_another_name_stands_in_lists(agent: FakeAgent, step: Step) -> None:
    agent.say(points([9.0], name="Test/loss"), points([3.0, 2.0], name="Train/loss"))
    agent.say(Summary(at=NOW_S, epoch=0, metrics={"Train/loss": 2.0, "Test/loss": 9.0}))
    agent.send()
    step()
    job = agent.replica.job
    job.refresh_from_db()
    assert dict(job.metric_rows.values_list("name", "value")) == {"loss": 2.0, "Train/loss": 2.0, "Test/loss": 9.0}
    assert [value for _, value in job.sketch] == [3.0, 2.0]


def test_a_batch_that_was_rolled_back_leaves_no_point_in_the_small_curve(
    agent: FakeAgent, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sketch() -> list[list[float]]:
        return list(Job.objects.values_list("sketch", flat=True).get())

    agent.say(points([3.0]))
    agent.send()
    step()
    agent.say(points([2.0], first=2))
    agent.send(1)
    with monkeypatch.context() as broken:
        broken.setattr(intake_progress, "announce_advances", lambda _: raised(OperationalError("away")))
        with pytest.raises(OperationalError):
            step()
    assert sketch() == [[0, 3.0]]
    assert step() == 1
    assert sketch() == [[0, 3.0], [2, 2.0]]


def raised(error: Exception) -> None:
    raise error


def test_a_later_launch_is_drawn_by_its_own_leader(agent: FakeAgent, step: Step) -> None:
    agent.say(points([3.0]), points([2.0], first=2), points([1.0], first=3))
    agent.send()
    step()
    job = agent.replica.job
    Job.objects.filter(pk=job.pk).update(attempt=2)
    job.refresh_from_db()
    again = FakeAgent(agent.redis, make_replica(job))
    again.say(points([2.5], first=2))
    again.send()
    step()
    job.refresh_from_db()
    assert job.sketch == [[0, 3.0], [2, 2.5]]


def test_hostile_numbers_and_names_are_bounded(agent: FakeAgent, step: Step) -> None:
    agent.say(
        Progress(at=NOW_S, step=2**64 - 1, total_steps=-5, epoch=2**40, epochs=-1),
        Summary(at=NOW_S, epoch=0, metrics={f"m\0{number}" * 60: 1.0 for number in range(300)}),
    )
    agent.send()
    step()
    job = Job.objects.get()
    assert job.step == 2**63 - 1
    assert job.total_steps == 0
    assert len(job.metrics) == 100
    assert all("\0" not in name and len(name) <= 200 for name in job.metrics)


def test_log_text_has_byte_places(agent: FakeAgent, step: Step, told: Told) -> None:
    agent.say(log("größer ✓\n"), log("NUL\0 gone\n"))
    agent.send(0, 1)
    agent.send(1, 2)
    step()
    agent.replica.refresh_from_db()
    text = "größer ✓\nNUL gone\n"
    assert agent.replica.log_size == len(text.encode())
    assert LogChunk.objects.get().text == text
    (event,) = events_of(told, agent, "log")
    assert (event["start"], event["end"], event["text"]) == (0, len(text.encode()), text)


def test_a_gap_is_a_line_of_its_own(agent: FakeAgent, step: Step) -> None:
    gap = Gap(at=NOW_S, size_bytes=1_234_567, reason="more than 1 MB/s")
    agent.say(log("no newline"))
    agent.send()
    step()
    agent.say(gap, log("after\n"), gap)
    agent.send(1)
    step()
    line = "… 1,234,567 bytes of output were left out (more than 1 MB/s)\n"
    assert telemetry.log(agent.replica.job, replica="worker:0").text == f"no newline\n{line}after\n{line}"


def test_a_line_of_ten_megabytes(agent: FakeAgent, step: Step, told: Told) -> None:
    piece = "ä" * 250_000
    for _ in range(20):
        agent.say(log(piece))
    for number in range(20):
        agent.send(number, number + 1)
    while step():
        pass
    agent.replica.refresh_from_db()
    assert agent.replica.log_size == 10_000_000
    longest = max(len(chunk.text.encode()) for chunk in LogChunk.objects.all())
    assert longest <= telemetry.LOG_CHUNK_BYTES
    job, text, offset = agent.replica.job, "", 0
    while True:
        part = telemetry.log(job, replica="worker:0", offset=offset)
        if not part.text:
            break
        text, offset = text + part.text, part.next
    assert text == piece * 20
    assert all(len(event["text"]) < 70_000 for event in events_of(told, agent, "log"))
    (line,) = telemetry.log_tail(job)
    assert len(line.text) < 5_000


def test_a_replica_starts_works_and_ends(redis: FakeRedis, step: Step, told: Told) -> None:
    job = make_job(status=JobStatus.LAUNCHING)
    replica = make_replica(job, status=ReplicaStatus.STARTING)
    shim, trainer = FakeAgent(redis, replica, stream="shim"), FakeAgent(redis, replica)
    shim.say(Started(at=NOW_S, pid=4711, pgid=4711, warm=False))
    trainer.say(Phase(at=NOW_S, name="importing"), Phase(at=NOW_S, name="training"))
    shim.send()
    trainer.send()
    step()
    replica.refresh_from_db()
    job.refresh_from_db()
    assert (replica.pid, replica.status, job.status) == (4711, "running", "running")
    trainer.say(points([1.0]))
    shim.say(
        Exit(
            at=NOW_S,
            code=0,
            signal=None,
            cause=Cause.COMPLETED,
            message="It ran to its end.",
            final={"trainer": trainer.size},
        )
    )
    shim.send(1)
    step()
    replica.refresh_from_db()
    job.refresh_from_db()
    assert (replica.status, replica.exit_code, replica.held, job.status) == ("exited", 0, False, "succeeded")
    cursor = Cursor.objects.get(replica=replica, stream="trainer")
    assert (cursor.offset, cursor.final) == (trainer.ends[1], trainer.size)
    trainer.send(2)
    step()
    cursor.refresh_from_db()
    assert cursor.offset == cursor.final
    assert [each["job"]["status"] for each in told[live.JOBS] if each["kind"] == "job"][-1] == "succeeded"
    assert job_queries.summary(job).progress == 1.0


def test_more_series_than_allowed_are_said_once(agent: FakeAgent, step: Step, told: Told) -> None:
    for number in range(510):
        agent.say(points([1.0], name=f"m{number}"))
    agent.send()
    step()
    agent.send()
    step()
    assert len(telemetry.series(agent.replica.job)) == 500
    assert agent.replica.job.events.filter(kind="series_refused").count() == 1
    (event,) = events_of(told, agent, "points")
    assert len(event["series"]) == 500
    assert Replica.objects.count() == 1
