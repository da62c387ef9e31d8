"""A pass over the jobs that wait: what it costs, whom it passes over, what it tells."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator import live
from orchestrator.domain.placement.planning import SHAPE, place
from orchestrator.models import Checkpoint, Event, Job, Node, Preflight, Replica
from orchestrator.services.jobs import dispatch, queue
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from tests.factories import make_job, make_replica
from tests.services.gang.gangs import make_gang_job, make_lab
from worker_agent.protocol.states import JobStatus, Kind, NodeState, ReplicaStatus, Strategy


@pytest.fixture
def full():
    """A cluster without a free device."""
    cluster = make_lab()
    running = make_job(cluster=cluster, status=JobStatus.RUNNING)
    for index, node in enumerate(cluster.nodes.all()):
        make_replica(running, node=node, index=index, devices=[0, 1])
    return cluster


def queries_of_a_pass(now) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert dispatch.dispatch_waiting(now=now) == 0
    return len(captured)


def reasons() -> dict[int, str]:
    return dict(Job.objects.filter(status=JobStatus.SUBMITTED).values_list("pk", "waiting_for"))


@pytest.mark.parametrize("rehearse", [False, True])
def test_a_pass_asks_the_database_as_often_for_many_jobs_as_for_few(now, full, settings, rehearse):
    settings.REHEARSE = rehearse
    for attempt in (0, 1):
        make_job(cluster=full, attempt=attempt)
        make_gang_job(full, epochs=9 + attempt)
    dispatch.dispatch_waiting(now=now)
    few = queries_of_a_pass(now)
    for number in range(20):
        make_job(cluster=full, attempt=number % 2)
        make_gang_job(full, epochs=20 + number)
    told = queries_of_a_pass(now)
    many = queries_of_a_pass(now)
    assert many == few < 20
    assert told < few + 15, "what is new is told to all of them at once"
    assert Preflight.objects.count() == (2 if rehearse else 0)


def test_every_job_learns_a_new_reason_once(now, full, monkeypatch, django_capture_on_commit_callbacks):
    told = []
    monkeypatch.setattr(live, "_send", lambda messages: told.append(messages))
    waiting = [make_job(cluster=full).pk for _ in range(3)] + [make_gang_job(full).pk]

    def passes() -> list:
        told.clear()
        with django_capture_on_commit_callbacks(execute=True):
            dispatch.dispatch_waiting(now=now)
        return [event["job"]["id"] for messages in told for event in messages.get(live.JOBS, ())]

    assert sorted(passes()) == waiting
    assert reasons()[waiting[0]] == "needs 1 free device on one node; 0 free on node-1, 0 on node-2"
    assert reasons()[waiting[3]] == "needs 2 workers with 1 device each; 0 free on node-1, 0 on node-2"
    assert passes() == []
    full.nodes.filter(name="node-2").update(state=NodeState.LOST)
    assert sorted(passes()) == waiting
    assert reasons()[waiting[1]] == "needs 1 free device on one node; 0 free on node-1, 0 on node-2 (lost)"


def test_a_job_that_waits_for_something_else_leaves_the_room_to_the_next_one_alike(now):
    cluster = make_lab(nodes=1)
    gone = Checkpoint.objects.create(
        job=make_job(cluster=cluster, status=JobStatus.SUCCEEDED),
        **{"attempt": 1, "name": "step-1", "step": 1, "epoch": 1, "size_bytes": 1, "sha256": "0" * 64},
    )
    resumed = make_job(cluster=cluster, spec={"resume_from": gone.pk})
    fenced = make_job(cluster=cluster, attempt=1)
    lost = {"held": True, "devices": [], "lease_s": 30.0}
    make_replica(fenced, node=cluster.nodes.get(), status=ReplicaStatus.LOST, **lost)
    free = make_job(cluster=cluster)
    assert dispatch.dispatch_waiting(now=now) == 1
    free.refresh_from_db()
    assert free.status == JobStatus.LAUNCHING
    assert reasons()[resumed.pk] == f"The checkpoint {gone.pk}, from which it starts, no longer exists."
    assert reasons()[fenced.pk].startswith("waits until worker 0 on node-1 has ended for sure")


def test_one_rehearsal_is_begun_for_all_that_are_built_alike_and_others_go_past_them(now, settings):
    settings.REHEARSE = True
    cluster = make_lab()
    alike = [make_job(cluster=cluster, priority=1).pk for _ in range(5)]
    script = make_job(cluster=cluster, spec={"kind": Kind.SCRIPT})
    assert dispatch.dispatch_waiting(now=now) == 1
    script.refresh_from_db()
    assert script.status == JobStatus.LAUNCHING
    assert Preflight.objects.count() == 1
    on = Preflight.objects.get().asked.get().name
    assert reasons() == dict.fromkeys(alike, f"its program is being tried out on {on}, as before every first launch")


def test_no_rehearsal_is_tried_again_and_again_for_a_gang_that_no_node_could_hold(now, settings):
    settings.REHEARSE = True
    cluster = make_lab(nodes=1)
    big = [make_gang_job(cluster, workers=9).pk for _ in range(3)]
    dispatch.dispatch_waiting(now=now)
    assert all(why.startswith("more workers than the nodes can hold") for why in reasons().values())
    assert queue.Queue(now).news() == {}
    tried = []
    assert queue.Queue(now).launch_what_fits(lambda job_id: bool(tried.append(job_id))) == 0 == len(tried)
    assert Job.objects.filter(pk__in=big, status=JobStatus.SUBMITTED).count() == 3


def test_what_becomes_free_during_a_pass_is_left_to_those_who_come_first(now, monkeypatch):
    cluster = make_lab(nodes=1, slots=2)
    running = make_job(cluster=cluster, status=JobStatus.RUNNING)
    holder = make_replica(running, node=cluster.nodes.get(), devices=[0])
    first = make_job(cluster=cluster, priority=2, spec={"strategy": Strategy.MIRRORED, "devices_per_worker": 2})
    single = make_job(cluster=cluster, priority=1)
    last = make_job(cluster=cluster, spec={"strategy": Strategy.MIRRORED, "devices_per_worker": 2})
    really = dispatch.dispatch_job

    def freeing(*, job_id, now):
        """Everything ends at the moment in which the job of the middle is tried."""
        if job_id == single.pk:
            Replica.objects.filter(pk=holder.pk).update(held=False)
            Job.objects.filter(pk=single.pk).update(status=JobStatus.STOPPED)
        return really(job_id=job_id, now=now)

    monkeypatch.setattr(dispatch, "dispatch_job", freeing)
    assert dispatch.dispatch_waiting(now=now) == 0, "the last one may not overtake the first"
    assert dispatch.dispatch_waiting(now=now) == 1
    assert set(reasons()) == {last.pk}
    assert Job.objects.get(pk=first.pk).status == JobStatus.LAUNCHING


def test_a_job_before_its_time_is_neither_tried_nor_told(now, full):
    soon = make_job(cluster=full, waiting_for="waits until then", not_before=now.replace(year=now.year + 1))
    dispatch.dispatch_waiting(now=now)
    assert reasons() == {soon.pk: "waits until then"}
    assert not Event.objects.exists()


def test_a_shape_is_all_that_placement_reads(now):
    cluster = make_lab(nodes=1, slots=4)
    view = cluster_view(cluster, now=now)
    seen: set[str] = set()

    class Seen:
        def __init__(self, spec) -> None:
            self._spec = spec

        def __getattr__(self, name):
            seen.add(name)
            return getattr(self._spec, name)

    for strategy in Strategy:
        for fields in ({}, {"workers": 2, "ps": 1, "validation": "evaluator"}, {"workers": 9}, {"chief": True}):
            place(Seen(make_job(cluster=cluster, spec={"strategy": strategy, **fields}).typed_spec), view)
    empty = cluster_view(make_lab(nodes=0))
    place(Seen(make_job(cluster=cluster).typed_spec), empty)
    Node.objects.all().delete()
    assert seen == set(SHAPE)
