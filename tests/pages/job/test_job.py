"""The job page in every state, its parts, stop and retry, its log and files; each by role, and what people wrote."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from orchestrator import series
from orchestrator.models import Artifact, Attempt, Event, Job, LogChunk, Replica, User
from tests.factories import make_cluster, make_job, make_node, make_replica
from worker_agent.protocol.states import Cause, JobStatus, ReplicaStatus, Strategy

NASTY = "<script>alert('x')</script>"
PARTS = ["job-head", "job-run", "job-notice", "replicas", "job-strategy", "timeline", "checkpoints", "files", "job-tf"]
Browser = Callable[[User], Client]


class Scripts(HTMLParser):
    """What a page would run or style by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inline: list[str] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag == "style" or "style" in names or any(name.startswith("on") for name in names):
            self.inline.append(str((tag, attrs)))
        self._open = tag == "script" and "src" not in names

    def handle_data(self, data: str) -> None:
        if self._open and data.strip():
            self.inline.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = False


def inline_of(page: str) -> list[str]:
    """Everything in a page that the content security policy would refuse."""
    parser = Scripts()
    parser.feed(page)
    return parser.inline


@pytest.fixture
def gang(member: User) -> Job:
    """A running job of two workers with curves, a log and events."""
    cluster = make_cluster("hall")
    now = datetime.now(UTC)
    job = make_job(
        owner=member,
        cluster=cluster,
        status=JobStatus.RUNNING,
        name="gang",
        step=300,
        total_steps=1200,
        epoch=3,
        epochs=10,
        started_at=now - timedelta(minutes=5),
        metrics={"loss": 0.31, "val_loss": 0.34, "val_accuracy": 0.9412},
        spec={"strategy": Strategy.MULTI_WORKER_MIRRORED, "workers": 2, "epochs": 10},
    )
    for index in range(2):
        node = make_node(cluster, f"n-{index}")
        replica = make_replica(job, node=node, index=index, pid=4000 + index, phase="training", started_at=now)
        replica.tf_config = {
            "cluster": {"worker": [f"{replica.host}:{replica.port}", "10.9.9.9:1"]},
            "task": {"type": "worker", "index": index},
        }
        replica.save()
        load = {"cpu_percent": 231.4, "memory_bytes": 2_500_000_000}
        node.holding = [{"replica_id": replica.pk, "attempt": 1, "status": "running", "pid": 1} | load]
        node.save()
        owner = series.Owner(replica_id=replica.pk)
        for name, value in (("loss", 0.25), ("examples_per_s", 7000.0), ("step_time_ms", 30.0 + index)):
            points = series.curve_of([1, 2, 3], [1.0, 2.0, 3.0], [value] * 3)
            series.append([series.Addition(owner, name, points)])
        LogChunk.objects.create(replica=replica, start=0, end=22, at=1.7e9, text="Traceback of nothing.\n")
        Replica.objects.filter(pk=replica.pk).update(log_size=22)
    Event.objects.create(job=job, kind="job_running", text="All processes are running.")
    return job


def page_of(client: Client, job: Job) -> str:
    answer = client.get(reverse("job", args=[job.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_stranger_is_led_to_the_sign_in(client: Client, gang: Job) -> None:
    for name in ("job", "job_state", "job_log"):
        answer = client.get(reverse(name, args=[gang.pk]))
        assert answer.headers["Location"].startswith("/sign-in/")


def test_a_running_job_shows_everything_without_script(client_of: Browser, member: User, gang: Job) -> None:
    page = page_of(client_of(member), gang)
    for told in (
        "25.0",
        "Loss, mean of an epoch",
        "0.3100",
        "of 1\u202f200",
        "epoch",
        "94.1",
        "14\u202f000",
        "31.0",
        "slowest: worker 1",
        "2 of 2 at work",
        "4001",
        "231 %",
        "2.5\u202fGB",
        "training",
        "Traceback of nothing.",
        "All processes are running.",
        "MultiWorkerMirrored",
        "&quot;type&quot;: &quot;worker&quot;",
    ):
        assert told in page, told
    for part in PARTS:
        assert f'id="{part}"' in page
    assert inline_of(page) == []


def test_every_process_marks_its_own_address(client_of: Browser, member: User, gang: Job) -> None:
    page = page_of(client_of(member), gang)
    for replica in gang.replicas.all():
        assert f'<span class="hit">{replica.host}:{replica.port}</span>' in page
    assert '<span class="hit">10.9.9.9:1</span>' not in page


def test_the_parts_come_alone(client_of: Browser, viewer: User, gang: Job) -> None:
    answer = client_of(viewer).get(reverse("job_state", args=[gang.pk]))
    page = answer.content.decode()
    assert "<html" not in page
    assert [part for part in PARTS if f'id="{part}"' in page] == PARTS


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.SUCCEEDED])
def test_the_head_is_the_same_again_until_something_changes(
    client_of: Browser, member: User, status: JobStatus
) -> None:
    job, client = make_job(owner=member, status=status, started_at=datetime.now(UTC)), client_of(member)
    heads = {client.get(reverse("job_state", args=[job.pk])).content.partition(b"</header>")[0] for _ in range(2)}
    (head,) = heads
    assert b'form="act"' in head
    page = page_of(client, job)
    assert "csrfmiddlewaretoken" in page.partition('id="act"')[2].partition("</form>")[0]


@pytest.mark.parametrize(
    ("who", "stop", "clone"),
    [("viewer", False, False), ("member", True, True), ("teammate", False, True), ("administrator", True, True)],
)
def test_actions_by_role(
    who: str, stop: bool, clone: bool, request: pytest.FixtureRequest, client_of: Browser, gang: Job
) -> None:
    page = page_of(client_of(request.getfixturevalue(who)), gang)
    assert ('id="stop-button"' in page) == stop
    assert ("?clone=" in page) == clone
    assert reverse("job_retry", args=[gang.pk]) not in page


@pytest.mark.parametrize(("who", "status"), [("viewer", 403), ("teammate", 403), ("member", 302)])
def test_stopping_by_role(
    who: str, status: int, request: pytest.FixtureRequest, client_of: Browser, member: User
) -> None:
    job = make_job(owner=member)
    answer = client_of(request.getfixturevalue(who)).post(reverse("job_stop", args=[job.pk]))
    assert answer.status_code == status
    job.refresh_from_db()
    assert (job.status == JobStatus.STOPPED) == (status == 302)


@pytest.mark.parametrize(("who", "status"), [("viewer", 403), ("teammate", 403), ("member", 302)])
def test_deleting_without_the_name_by_role(
    who: str, status: int, request: pytest.FixtureRequest, client_of: Browser, member: User
) -> None:
    job = make_job(owner=member, status=JobStatus.SUCCEEDED)
    answer = client_of(request.getfixturevalue(who)).post(reverse("job_delete", args=[job.pk]))
    assert answer.status_code == status
    assert Job.objects.filter(pk=job.pk).exists()


def test_stopping_twice_says_so(client_of: Browser, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.SUCCEEDED)
    page = client_of(member).post(reverse("job_stop", args=[job.pk]), follow=True).content.decode()
    assert "The job has already ended" in page


def test_retry_leads_to_the_new_job(client_of: Browser, member: User, viewer: User) -> None:
    job = make_job(owner=member, status=JobStatus.FAILED, reason="It broke.")
    answer = client_of(member).post(reverse("job_retry", args=[job.pk]))
    again = Job.objects.get(retry_of=job)
    assert answer.headers["Location"] == reverse("job", args=[again.pk])
    assert f"j-{job.pk}</a>" in page_of(client_of(member), again)
    assert client_of(viewer).post(reverse("job_retry", args=[job.pk])).status_code == 403


def test_a_job_under_way_is_not_retried(client_of: Browser, member: User, gang: Job) -> None:
    page = client_of(member).post(reverse("job_retry", args=[gang.pk]), follow=True).content.decode()
    assert "The job has not ended yet" in page
    assert not Job.objects.filter(retry_of=gang).exists()


@pytest.mark.parametrize("name", ["job_stop", "job_pause", "job_resume", "job_retry"])
def test_changes_need_a_token_and_post(name: str, member: User, gang: Job) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member, backend="django.contrib.auth.backends.ModelBackend")
    address = reverse(name, args=[gang.pk])
    assert client.post(address).status_code == 403
    assert client.get(address).status_code == 405


def test_a_waiting_job_says_for_what(client_of: Browser, member: User) -> None:
    page = page_of(client_of(member), make_job(owner=member, waiting_for="Needs 8 free devices; 2 are free."))
    assert "Needs 8 free devices; 2 are free." in page
    assert "Replicas appear when the job is placed." in page


def test_a_job_that_was_refused_before_its_start_says_so_and_nothing_of_processes(
    client_of: Browser, member: User
) -> None:
    job = make_job(owner=member, status=JobStatus.FAILED, cause=Cause.LAUNCH_REFUSED.value, reason="Too few rows.")
    Job.objects.filter(pk=job.pk).update(attempt=0)
    page = page_of(client_of(member), job)
    assert "Too few rows." in page
    assert "Nothing was started." in page
    assert f'<a class="btn btn-ink" href="/jobs/new/?clone={job.pk}">' in " ".join(page.split()).replace('" >', '">')
    for words in ("First error", "The logs of every process", "Replicas appear", "not launched yet", "Curves appear"):
        assert words not in page
    parts = client_of(member).get(reverse("job_state", args=[job.pk])).content.decode()
    assert "It was never launched, so there are no curves." in parts, "a page that was open before tells it, too"
    assert inline_of(page) == []


def test_a_launching_job_counts_its_processes(client_of: Browser, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.LAUNCHING, spec={"workers": 2})
    make_replica(job, index=0, status=ReplicaStatus.RUNNING)
    make_replica(job, index=1, status=ReplicaStatus.STARTING, phase="rendezvous")
    page = page_of(client_of(member), job)
    assert "1 / 2" in page
    assert "rendezvous" in page


def test_a_failed_job_gives_reason_remedy_and_what_was_kept(client_of: Browser, member: User) -> None:
    reason = f"worker 1 on n-1 failed: {NASTY} The last lines it wrote:\nTraceback\n{NASTY}"
    job = make_job(
        owner=member, status=JobStatus.FAILED, step=700, cause=Cause.EXCEPTION.value, reason=reason, name=NASTY
    )
    make_replica(job, index=0, status=ReplicaStatus.EXITED, cause="stopped", exit_code=0)
    make_replica(job, index=1, status=ReplicaStatus.EXITED, cause="exception", exit_code=1, reason=reason)
    page = page_of(client_of(member), job)
    assert "worker 1 on n-1 failed: &lt;script&gt;" in page
    assert "Read the traceback in the log" in page
    assert "The curves up to step 700" in page
    assert "Run again" in page
    assert NASTY not in page
    rows = page[page.index('id="replicas"') :]
    assert rows.index("worker 1") < rows.index("worker 0")
    assert "exit 0 (asked to stop)" in rows
    assert inline_of(page) == []


def test_late_records_that_were_refused_are_counted(client_of: Browser, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.RUNNING)
    make_replica(job, index=0, status=ReplicaStatus.LOST, cause="node_lost", refused=12)
    assert "12 late records refused" in page_of(client_of(member), job)


def test_numbers_that_are_none_are_words(client_of: Browser, member: User) -> None:
    job = make_job(owner=member, status=JobStatus.RUNNING, metrics={"loss": "NaN", "val_loss": "Infinity"}, step=3)
    replica = make_replica(job)
    points = series.curve_of([1, 2], [1.0, 2.0], [1.0, float("nan")])
    series.append([series.Addition(series.Owner(replica_id=replica.pk), "loss", points)])
    tiles = client_of(member).get(reverse("job", args=[job.pk])).context["tiles"]
    assert (tiles[0].figure, tiles[0].note) == ("NaN", "validation ∞")


def test_the_loss_is_the_last_steps_until_an_epoch_has_ended(client_of: Browser, member: User, gang: Job) -> None:
    Job.objects.filter(pk=gang.pk).update(metrics={})
    tile = client_of(member).get(reverse("job", args=[gang.pk])).context["tiles"][0]
    assert (tile.key, tile.label, tile.figure) == ("loss-of-step", "Loss of the last step", "0.2500")


def test_what_a_leader_tells_of_its_workers_is_theirs(client_of: Browser, member: User, gang: Job) -> None:
    leader = make_replica(gang, role="chief", index=0)
    for name, value in (("step_time_ms", 40.0), ("step_time_ms/worker 0", 30.0), ("step_time_ms/worker 1", 50.0)):
        points = series.curve_of([1, 2], [1.0, 2.0], [value] * 2)
        series.append([series.Addition(series.Owner(replica_id=leader.pk), name, points)])
    tiles = client_of(member).get(reverse("job", args=[gang.pk])).context["tiles"]
    assert next((tile.figure, tile.note) for tile in tiles if tile.key == "ms") == ("50.0", "slowest: worker 1")


def test_nasty_metrics_and_logs_stay_text(client_of: Browser, member: User, gang: Job) -> None:
    Job.objects.filter(pk=gang.pk).update(metrics={NASTY: 1.0, f"val_{NASTY}": 2.0}, name=NASTY)
    replica = gang.replicas.get(index=0)
    LogChunk.objects.create(replica=replica, start=22, end=60, at=1.7e9, text=f"{NASTY}\n")
    Replica.objects.filter(pk=replica.pk).update(log_size=60, node_name=NASTY)
    Event.objects.create(job=gang, kind="job_running", text=NASTY)
    page = page_of(client_of(member), gang)
    assert NASTY not in page
    assert page.count("&lt;script&gt;") >= 5


def test_the_timeline_spans_all_attempts(client_of: Browser, member: User) -> None:
    now = datetime.now(UTC)
    job = make_job(owner=member, status=JobStatus.RUNNING, attempt=2, started_at=now)
    first, second = job.attempts.all()
    Attempt.objects.filter(pk=first.pk).update(
        started_at=now - timedelta(seconds=100),
        ended_at=now - timedelta(seconds=60),
        cause="port_taken",
        reason="Busy.",
    )
    Attempt.objects.filter(pk=second.pk).update(started_at=now - timedelta(seconds=50))
    make_replica(
        job,
        attempt=1,
        status=ReplicaStatus.EXITED,
        cause="port_taken",
        started_at=now - timedelta(seconds=90),
        ended_at=now - timedelta(seconds=60),
    )
    make_replica(job, attempt=2, started_at=now - timedelta(seconds=40))
    answer = client_of(member).get(reverse("job", args=[job.pk]))
    timeline = answer.context["timeline"]
    (row,) = timeline.rows
    assert [(bar.kind, round(bar.since), bar.until and round(bar.until)) for bar in row.bars] == [
        ("start", 0, 10),
        ("run", 10, 40),
        ("fail", 39, 40),
        ("start", 50, 60),
        ("run", 60, None),
    ]
    assert [(name["number"], name["note"]) for name in timeline.attempts] == [(1, "port taken"), (2, "")]
    assert timeline.told == "1 replica over time. Attempt 1 ended: port taken. Attempt 2."
    assert answer.content.decode().count("Busy.") == 1, "the table of restarts says it"


def test_the_timeline_names_the_last_of_attempts_in_quick_succession(client_of: Browser, member: User) -> None:
    now = datetime.now(UTC)
    job = make_job(owner=member, status=JobStatus.RUNNING, attempt=3, started_at=now)
    for attempt, age_s in zip(job.attempts.all(), (100, 3.5, 0.5), strict=True):
        Attempt.objects.filter(pk=attempt.pk).update(started_at=now - timedelta(seconds=age_s))
    make_replica(job, attempt=3, started_at=now)
    answer = client_of(member).get(reverse("job", args=[job.pk]))
    names = answer.context["timeline"].attempts
    assert [(each["number"], each["anchor"]) for each in names] == [(1, "start"), (3, "end")]
    assert 'text-anchor="end"' in answer.content.decode()


def test_the_log_comes_whole_as_a_file(client_of: Browser, viewer: User, gang: Job) -> None:
    client, address = client_of(viewer), reverse("job_log", args=[gang.pk])
    answer = client.get(address, {"replica": "worker:1"})
    assert b"".join(answer.streaming_content) == b"Traceback of nothing.\n"  # type: ignore[attr-defined]
    assert answer.headers["Content-Disposition"] == f'attachment; filename="j-{gang.pk}-worker-1.log"'
    for wrong in ("worker:7", "", "../etc", NASTY):
        assert client.get(address, {"replica": wrong}).status_code == 404


def test_files_are_downloads(client_of: Browser, viewer: User, gang: Job) -> None:
    file = Artifact.objects.create(job=gang, attempt=1, name="model.keras", size_bytes=5, sha256="ab" * 32)
    client, address = client_of(viewer), reverse("job_artifact", args=[gang.pk, file.pk])
    assert address in page_of(client, gang)
    assert client.get(address).status_code == 404
    folder = settings.ARTIFACT_ROOT / str(file.pk)
    folder.mkdir(parents=True)
    (folder / "model.keras").write_bytes(b"keras")
    answer = client.get(address)
    assert b"".join(answer.streaming_content) == b"keras"  # type: ignore[attr-defined]
    assert answer.headers["Content-Disposition"].startswith("attachment")
    other = make_job()
    assert client.get(reverse("job_artifact", args=[other.pk, file.pk])).status_code == 404


def test_a_job_that_is_none_is_the_404_page(client_of: Browser, member: User) -> None:
    for name in ("job", "job_state"):
        answer = client_of(member).get(reverse(name, args=[987654]))
        assert answer.status_code == 404
        assert "There is no job 987654." in answer.content.decode()


def test_the_number_of_queries_does_not_grow_with_the_gang(
    client_of: Browser, member: User, gang: Job, django_assert_max_num_queries: Callable[[int], object]
) -> None:
    for index in range(2, 30):
        make_replica(gang, index=index, node=gang.replicas.get(index=0).node)
    client = client_of(member)
    client.get(reverse("job", args=[gang.pk]))
    with django_assert_max_num_queries(28):  # type: ignore[attr-defined]
        client.get(reverse("job", args=[gang.pk]))
