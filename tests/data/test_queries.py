"""Reads of jobs and machines: who sees what, pages by key, filters, search, the shape of a job, the device map."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser

from orchestrator.models import Attempt, Event, Job, User
from orchestrator.queries import jobs, machines
from orchestrator.queries.errors import NotFound
from tests.data.conftest import NOW
from tests.factories import make_cluster, make_job, make_node, make_replica
from worker_agent.protocol.codec import plain
from worker_agent.protocol.states import JobStatus, NodeState, ReplicaStatus, Strategy

pytestmark = pytest.mark.django_db
SUMMARY_FIELDS = (
    "id",
    "name",
    "cluster",
    "recipe",
    "status",
    "cause",
    "reason",
    "waiting_for",
    "strategy",
    "attempt",
    "progress",
    "step",
    "total_steps",
    "epoch",
    "epochs",
    "metrics",
    "loss_name",
    "tags",
    "owner",
    "priority",
    "retry_of",
    "revision",
    "created_at",
    "started_at",
    "ended_at",
    "remaining_s",
    "spec",
)


def ids(page: jobs.Page) -> list[int]:
    return [job.pk for job in page.items]


def test_everybody_signed_in_sees_jobs_and_nobody_else(member: User, viewer: User) -> None:
    job = make_job(owner=member)
    assert jobs.get(viewer, job.pk) == job
    viewer.is_active = False
    for person in (viewer, AnonymousUser()):
        assert ids(jobs.page(person)) == []
        assert not machines.nodes(person)
        assert not machines.clusters(person)
        with pytest.raises(NotFound):
            jobs.get(person, job.pk)


@pytest.mark.parametrize("job_id", [0, -1, 10**30])
def test_no_such_job(member: User, job_id: int) -> None:
    with pytest.raises(NotFound):
        jobs.get(member, job_id)


def test_pages_by_key_meet_without_hole_or_overlap(
    member: User, django_assert_max_num_queries: Callable[..., object]
) -> None:
    made = [make_job(owner=member).pk for _ in range(7)]
    seen, cursor = [], None
    while True:
        with django_assert_max_num_queries(3):  # the jobs, their launches, whether a newer page exists
            page = jobs.page(member, cursor=cursor, limit=3)
            seen += [jobs.summary(job).id for job in page.items]
        make_job(owner=member)  # newer ones do not disturb the pages behind
        cursor = page.next
        if cursor is None:
            break
    assert seen == made[::-1]


def test_filters_and_search(member: User, teammate: User) -> None:
    here, there = make_cluster("here"), make_cluster("there")
    a = make_job(owner=member, cluster=here, name="Digits CNN")
    b = make_job(owner=teammate, cluster=there, name="char lm 100%", status=JobStatus.RUNNING)
    c = make_job(
        owner=member, cluster=there, name="digits mlp", strategy=Strategy.MIRRORED.value, status=JobStatus.FAILED
    )
    for found, wanted in [
        (jobs.page(member, status=["running", "failed"]), [c.pk, b.pk]),
        (jobs.page(member, strategy="mirrored"), [c.pk]),
        (jobs.page(member, owner=teammate.username), [b.pk]),
        (jobs.page(member, cluster="here"), [a.pk]),
        (jobs.page(member, search="DIGITS"), [c.pk, a.pk]),
        (jobs.page(member, search="0%"), [b.pk]),
        (jobs.page(member, search="_"), []),
        (jobs.page(member, search=f"j-{b.pk}"), [b.pk]),
        (jobs.page(member, search=f" {c.pk} "), [c.pk]),
        (jobs.page(member, search="\0"), [c.pk, b.pk, a.pk]),
        (jobs.page(member, search="9" * 18), []),
    ]:
        assert ids(found) == wanted
    assert jobs.owners(member) == sorted([member.username, teammate.username])
    assert [job.pk for job in jobs.recent(member, live=True)] == [b.pk, a.pk]
    assert [job.pk for job in jobs.recent(member, live=False)] == [c.pk]
    counts = jobs.counts(member)
    assert (counts["running"], counts["failed"], counts["submitted"], counts["stopped"]) == (1, 1, 1, 0)


def test_what_no_name_can_hold_is_found_nowhere(member: User) -> None:
    job = make_job(owner=member)
    for filters in ({"owner": "a\0"}, {"cluster": "\0"}, {"strategy": "\0"}):
        assert jobs.page(member, **filters).items == []
    assert jobs.page(member, search="\0").items == [job]
    with pytest.raises(NotFound):
        jobs.replica_named(job, "wor\0ker:0")


def test_the_shape_of_a_job(member: User) -> None:
    job = make_job(
        owner=member, status=JobStatus.RUNNING, step=25, total_steps=100, started_at=NOW, metrics={"loss": "NaN"}
    )
    found = plain(jobs.summary(jobs.get(member, job.pk), now=NOW + timedelta(seconds=50)))
    assert tuple(found) == SUMMARY_FIELDS
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["progress"], found["remaining_s"], found["owner"]) == (0.25, 150.0, member.username)
    assert str(found["started_at"]).endswith("Z")


@pytest.mark.parametrize(
    ("columns", "progress", "remaining_s"),
    [
        ({"status": JobStatus.RUNNING, "step": 5}, None, None),
        ({"status": JobStatus.RUNNING, "step": 0, "total_steps": 10, "started_at": NOW}, 0.0, None),
        ({"status": JobStatus.RUNNING, "step": 20, "total_steps": 10, "started_at": NOW}, 1.0, 0.0),
        ({"status": JobStatus.FAILED, "step": 5, "total_steps": 10, "started_at": NOW}, 0.5, None),
        ({"status": JobStatus.SUCCEEDED, "step": 9, "total_steps": 10}, 1.0, None),
        ({"status": JobStatus.SUBMITTED}, None, None),
    ],
)
def test_progress_and_remaining_time(
    columns: dict[str, object], progress: float | None, remaining_s: float | None
) -> None:
    found = jobs.summary(make_job(**columns), now=NOW + timedelta(seconds=50))  # type: ignore[arg-type]
    assert (found.progress, found.remaining_s) == (progress, remaining_s)


def test_what_is_left_is_reckoned_from_the_latest_launch(member: User) -> None:
    columns = {"status": JobStatus.RUNNING, "step": 60, "total_steps": 100, "attempt": 2}
    job = make_job(owner=member, started_at=NOW - timedelta(hours=2), **columns)
    Attempt.objects.filter(job=job, number=2).update(running_at=NOW, resumed_step=50)
    told = [jobs.get(member, job.pk), *jobs.page(member).items, *jobs.recent(member)]
    assert [jobs.summary(each, now=NOW + timedelta(seconds=30)).remaining_s for each in told] == [120.0] * 3


def test_replicas_of_an_attempt_and_by_name() -> None:
    job = make_job(status=JobStatus.RUNNING, attempt=2)
    old = make_replica(job, attempt=1, status=ReplicaStatus.EXITED)
    first, second, ps = make_replica(job), make_replica(job, index=1), make_replica(job, role="ps")
    assert jobs.replicas(job) == [ps, first, second]
    assert jobs.replicas(job, attempt=1) == [old]
    assert jobs.replica_named(job, "worker:1") == second
    assert jobs.replica_named(job, "worker:0", attempt=1) == old
    assert [attempt.number for attempt in jobs.attempts(job)] == [1, 2]
    for name in ("worker", "worker:", "worker:x", "worker:²", "worker:9", "worker:99999999999999999999", "nobody:0"):
        with pytest.raises(NotFound):
            jobs.replica_named(job, name)


def test_events_from_one_on() -> None:
    job, other = make_job(), make_job()
    made = [Event.objects.create(job=job, kind="k", text=str(number)) for number in range(5)]
    Event.objects.create(job=other, kind="k", text="of another job")
    assert jobs.events(job, after=made[1].pk, limit=2) == made[2:4]


def test_the_device_map(member: User, django_assert_num_queries: Callable[..., object]) -> None:
    cluster = make_cluster()
    busy, idle, silent = (
        make_node(cluster, "a"),
        make_node(cluster, "b"),
        make_node(cluster, "c", state=NodeState.LOST.value),
    )
    job = make_job(cluster=cluster, status=JobStatus.RUNNING)
    held = make_replica(job, node=busy, devices=[1])
    kept = make_replica(job, node=silent, index=1, devices=[0])
    make_replica(job, node=idle, index=2, status=ReplicaStatus.EXITED)
    make_replica(job, node=idle, role="ps", devices=[])
    nodes = list(machines.nodes(member, cluster))
    with django_assert_num_queries(1):
        found = machines.slots(nodes)
        names = [slot.holder.job.name for slots in found.values() for slot in slots if slot.holder]
    assert names == ["tiny", "tiny"]
    assert [(slot.state, slot.holder) for slot in found[busy.pk]] == [("free", None), ("held", held)]
    assert [slot.state for slot in found[idle.pk]] == ["free", "free"]
    assert [(slot.state, slot.holder) for slot in found[silent.pk]] == [("lost", kept), ("lost", None)]
    (row,) = machines.clusters(member)
    assert (row.node_count, row.ready_nodes) == (3, 2)


def test_machines_by_name_and_id(member: User) -> None:
    node = make_node(make_cluster("lab"))
    Event.objects.create(node=node, kind="k", text="first")
    Event.objects.create(node=node, kind="k", text="second")
    replica = make_replica(node=node)
    assert machines.cluster(member, "lab") == node.cluster
    assert machines.node(member, node.pk) == node
    assert [event.text for event in machines.node_events(node)] == ["second", "first"]
    assert machines.node_replicas(node) == [replica]
    for missing in (lambda: machines.cluster(member, "nowhere"), lambda: machines.node(member, "0" * 12)):
        with pytest.raises(NotFound):
            missing()


def test_a_hundred_jobs_and_their_launches_cost_the_page_two_queries(
    member: User, django_assert_num_queries: Callable[..., object]
) -> None:
    template = make_job(owner=member)
    Job.objects.bulk_create(
        Job(
            owner=member,
            cluster=template.cluster,
            code=template.code,
            name=f"n{number}",
            strategy="mirrored",
            spec=template.spec,
        )
        for number in range(100)
    )
    with django_assert_num_queries(2):
        assert len([jobs.summary(job) for job in jobs.page(member, limit=100).items]) == 100
