"""Whatever the wire does to slices (repeat, overlap, reorder, leave out), each record is stored once and in order."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import series
from orchestrator.ingest import Ingest
from orchestrator.models import Cursor, Job, Node, Replica
from orchestrator.queries import telemetry
from tests.data.conftest import NOW
from tests.data.fakes import NOW_S, FakeAgent, FakeRedis, log, points
from tests.factories import make_job, make_node, make_replica
from worker_agent.protocol.records import Exit
from worker_agent.protocol.reports import REPORTS_KEY
from worker_agent.protocol.states import Cause, JobStatus

pytestmark = pytest.mark.django_db


def loss_of(replica: Replica) -> list[float]:
    run = series.read([series.Owner(replica_id=replica.pk)]).get((series.Owner(replica_id=replica.pk), "loss"))
    return [] if run is None else run.values.tolist()


def speak(agent: FakeAgent, count: int) -> None:
    for number in range(count):
        agent.say(points([float(number)], first=number), log(f"line {number}\n"))


def test_a_batch_is_stored_acknowledged_and_removed(
    agent: FakeAgent, redis: FakeRedis, step: Callable[[], int]
) -> None:
    speak(agent, 3)
    agent.send()
    assert step() == 1
    assert loss_of(agent.replica) == [0.0, 1.0, 2.0]
    assert agent.acked == agent.size
    assert redis.streams[REPORTS_KEY] == []
    assert telemetry.log(agent.replica.job, replica="worker:0").text == "line 0\nline 1\nline 2\n"
    assert Cursor.objects.get(replica=agent.replica, stream="trainer").offset == agent.size


def test_the_same_batch_again_changes_nothing(agent: FakeAgent, step: Callable[[], int]) -> None:
    speak(agent, 3)
    for _ in range(3):
        agent.send()
        step()
    agent.send()
    agent.send()
    step()
    assert loss_of(agent.replica) == [0.0, 1.0, 2.0]
    assert agent.acked == agent.size


def test_an_overlap_is_cut_at_the_cursor(agent: FakeAgent, step: Callable[[], int]) -> None:
    speak(agent, 4)
    agent.send(0, 4)
    step()
    agent.send(2, 8)
    step()
    assert loss_of(agent.replica) == [0.0, 1.0, 2.0, 3.0]


def test_a_hole_is_not_stored_and_the_agent_is_told_where_to_go_on(agent: FakeAgent, step: Callable[[], int]) -> None:
    speak(agent, 4)
    agent.send(0, 2)
    agent.send(4, 8)
    step()
    assert loss_of(agent.replica) == [0.0]
    assert agent.acked == agent.ends[1]
    agent.send(2, 8)
    step()
    assert loss_of(agent.replica) == [0.0, 1.0, 2.0, 3.0]


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    sends=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.booleans()), max_size=25),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_any_slices_ends_in_every_record_once(
    sizes: list[int], sends: list[tuple[int, int, bool]], django_user_model: object
) -> None:
    redis = FakeRedis()
    ingest = Ingest(redis)  # type: ignore[arg-type]
    agent = FakeAgent(redis, make_replica())
    written: list[float] = []
    for size in sizes:
        values = [float(len(written) + place) for place in range(size)]
        agent.say(points(values, first=len(written)), log(f"{values}\n"))
        written += values
    count = len(agent.payloads)
    for first, length, flush in sends:
        begin = first % count
        agent.send(begin, min(begin + length, count))
        if flush:
            ingest.step(NOW)
    ingest.step(NOW)
    assert loss_of(agent.replica) == written[: len(loss_of(agent.replica))]
    behind = [place for place, end in enumerate(agent.ends) if end > agent.acked]
    if behind:
        agent.send(behind[0])
        ingest.step(NOW)
    assert loss_of(agent.replica) == written
    text = telemetry.log(agent.replica.job, replica="worker:0").text
    assert len(text.splitlines()) == len(sizes)


def test_streams_and_replicas_have_cursors_of_their_own(redis: FakeRedis, step: Callable[[], int]) -> None:
    job = make_job(status=JobStatus.RUNNING)
    first = FakeAgent(redis, make_replica(job, index=0))
    second = FakeAgent(redis, make_replica(job, index=1))
    shim = FakeAgent(redis, first.replica, stream="shim")
    first.say(points([1.0]))
    second.say(points([2.0, 3.0]))
    shim.say(log("hello\n"))
    for agent in (first, second, shim):
        agent.send()
    step()
    assert (loss_of(first.replica), loss_of(second.replica)) == ([1.0], [2.0, 3.0])
    assert telemetry.cursors(job) == {
        first.replica.pk: {"trainer": first.size, "shim": shim.size},
        second.replica.pk: {"trainer": second.size},
    }


def test_records_of_a_deleted_replica_are_acknowledged_and_forgotten(
    agent: FakeAgent, redis: FakeRedis, step: Callable[[], int]
) -> None:
    speak(agent, 1)
    agent.send()
    Replica.objects.all().delete()
    assert step() == 1
    assert agent.acked == agent.size


def test_a_node_cannot_speak_for_a_replica_of_another(
    agent: FakeAgent, redis: FakeRedis, step: Callable[[], int]
) -> None:
    other = make_node(agent.replica.job.cluster)
    speak(agent, 1)
    agent.node = other
    for _ in range(3):
        agent.send()
        step()
    assert loss_of(agent.replica) == []
    refusals = agent.replica.job.events.filter(kind="output_refused")
    assert refusals.count() == 1
    assert "it runs on another node" in refusals.get().text
    assert Node.objects.count() == 2


def test_an_earlier_attempt_is_fenced(agent: FakeAgent, step: Callable[[], int]) -> None:
    speak(agent, 1)
    agent.send()
    Replica.objects.filter(pk=agent.replica.pk).update(attempt=2)
    step()
    assert loss_of(agent.replica) == []
    assert agent.acked == agent.size


@pytest.fixture
def given_up(agent: FakeAgent) -> FakeAgent:
    """The agent speaks for a replica that was lost with its node; its job has been launched again."""
    Replica.objects.filter(pk=agent.replica.pk).update(status="lost", held=False)
    Job.objects.update(attempt=2)
    return agent


def test_what_a_replica_says_after_another_took_its_place_is_refused_and_counted_once(
    given_up: FakeAgent, redis: FakeRedis, step: Callable[[], int]
) -> None:
    shim = FakeAgent(redis, given_up.replica, stream="shim")
    speak(given_up, 3)
    given_up.send()
    final = {"trainer": given_up.size, "shim": 500}
    shim.say(log("late"), Exit(at=NOW_S, code=0, signal=None, cause=Cause.COMPLETED, message="", final=final))
    shim.send()
    step()
    given_up.send()
    shim.send()
    step()
    replica = Replica.objects.get()
    assert (replica.status, replica.refused, replica.log_size) == ("lost", 8, 0)
    assert (loss_of(replica), Job.objects.get().step) == ([], 0)
    assert (given_up.acked, shim.acked) == (given_up.size, shim.size)
    assert dict(Cursor.objects.values_list("stream", "final")) == final
    told = replica.job.events.get(kind="output_refused").text
    assert told == "worker 0 was given up and launched again: reports of its old process are refused."


def test_what_a_lost_replica_says_before_another_takes_its_place_is_kept(
    given_up: FakeAgent, step: Callable[[], int]
) -> None:
    Job.objects.update(attempt=1)
    speak(given_up, 3)
    given_up.send()
    step()
    assert len(loss_of(given_up.replica)) == 3
    assert Replica.objects.get().refused == 0
