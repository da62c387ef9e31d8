"""What ended replicas could not give back is not used: devices and ports, from the Exit to the heartbeat that clears
them, or to the administrator who does."""

import msgspec
import pytest

from orchestrator.domain.placement.planning import NotNow, place
from orchestrator.models import Event, Node, Replica
from orchestrator.services.errors import Forbidden
from orchestrator.services.intake import reports
from orchestrator.services.jobs import dispatch
from orchestrator.services.nodes import nodes
from orchestrator.services.nodes.cluster_snapshot import cluster_view
from tests.data.fakes import heartbeat
from tests.factories import make_replica
from tests.services.gang.gangs import later, launch, make_gang_job, make_lab, refreshed, run
from worker_agent.protocol.codec import encode
from worker_agent.protocol.records import Exit, Leftover, LeftoverKind
from worker_agent.protocol.reports import Records, ReplicaLeftovers
from worker_agent.protocol.states import Cause, JobStatus, Strategy

SURVIVOR = Leftover(kind=LeftoverKind.PROCESS, words="process 4711 (python3)")


def exit_with(replica: Replica, now, *left: Leftover, cause: Cause = Cause.SIGNAL) -> None:
    """The end of a replica, as it comes over the wire."""
    last = Exit(at=now.timestamp(), code=None, signal=9, cause=cause, message="", final={}, leftovers=list(left))
    data = encode(last)
    slice_ = Records(
        node_id=str(replica.node_id),
        replica_id=replica.pk,
        attempt=replica.attempt,
        stream="shim",
        start=0,
        end=len(data),
        offsets=[len(data)],
        records=[data],
    )
    reports.apply([(replica.node, slice_)], now=now)


def look(node: Node, replica: Replica, now, *left: Leftover) -> None:
    """A heartbeat that says what its agent sees of the replica's leftovers."""
    node = Node.objects.get(pk=node.pk)
    leftovers = [ReplicaLeftovers(replica_id=replica.pk, attempt=replica.attempt, leftovers=list(left))]
    report = msgspec.structs.replace(heartbeat(node, at=now.timestamp()), leftovers=leftovers)
    reports.apply([(node, report)], now=now)


def texts(node: Node) -> list[str]:
    return list(
        Event.objects.filter(node=node, kind__startswith="device").order_by("pk").values_list("text", flat=True)
    )


def test_a_device_is_not_used_until_its_node_sees_that_all_is_gone(now, enqueued, django_capture_on_commit_callbacks):
    cluster = make_lab(nodes=1, slots=1)
    job = make_gang_job(cluster, workers=1, strategy=Strategy.ONE_DEVICE)
    (only,) = run(job, now)
    exit_with(only, later(now, 5), SURVIVOR)
    refreshed(job, [only])
    node = only.node
    assert job.status == JobStatus.SUBMITTED  # killed from outside: launched again
    assert not only.held
    assert not dispatch.dispatch_job(job_id=job.pk, now=later(now, 6))
    job.refresh_from_db()
    assert job.waiting_for == "needs 1 free device on one node; 0 free on node-1 (1 dirty)"
    look(node, only, later(now, 7), SURVIVOR)
    assert not dispatch.dispatch_job(job_id=job.pk, now=later(now, 8))
    enqueued.clear()
    with django_capture_on_commit_callbacks(execute=True):
        look(node, only, later(now, 9))
    assert "trainyard.dispatch" in enqueued
    assert Node.objects.get(pk=node.pk).dirty == []
    assert launch(job, later(now, 10))
    assert texts(node) == [
        f"worker 0 of j-{job.pk} has ended, but left something behind: process 4711 (python3). "
        "CPU slot 0 of node-1 is not used until it is released.",
        "What was left on node-1 is released (process 4711 (python3)): CPU slot 0 can be used again.",
    ]
    with django_capture_on_commit_callbacks(execute=True):
        look(node, only, later(now, 11))  # said once more
    assert len(texts(node)) == 2


def test_a_port_alone_says_nothing_against_the_device(now):
    cluster = make_lab(nodes=1, slots=2)
    job = make_gang_job(cluster, workers=1)
    (only,) = run(job, now)
    port = Leftover(kind=LeftoverKind.PORT, words=f"port {only.port}: process 80 (nginx) listens on it")
    exit_with(only, now, port, cause=Cause.PORT_TAKEN)
    view = cluster_view(cluster, now=now)
    assert view.nodes[0].free() == [0, 1]
    assert (only.host, only.port) in view.ports_taken
    assert [each.name for each in Node.objects.get(pk=only.node_id).not_used] == [f"port {only.port}"]
    assert texts(only.node) == [
        f"worker 0 of j-{job.pk} found its port in use: {port.words}. "
        f"Port {only.port} of node-1 is not used until it is released."
    ]


def test_a_process_that_holds_no_device_marks_its_port(now):
    job = make_gang_job(make_lab(nodes=1, slots=2), workers=1, strategy=Strategy.PARAMETER_SERVER, ps=1)
    ps = next(replica for replica in run(job, now) if replica.role == "ps")
    exit_with(ps, now, SURVIVOR)
    assert Node.objects.get(pk=ps.node_id).dirty_ports == {ps.port}


def test_what_is_said_of_a_replica_given_up_long_ago_counts_too(now):
    job = make_gang_job(make_lab(nodes=1, slots=1), workers=1, strategy=Strategy.ONE_DEVICE)
    (only,) = run(job, now)
    Replica.objects.filter(pk=only.pk).update(status="lost", cause=Cause.NODE_LOST.value, held=False)
    exit_with(only, now, SURVIVOR)
    assert Node.objects.get(pk=only.node_id).dirty_devices == {0}
    assert isinstance(place(job.typed_spec, cluster_view(job.cluster, now=now)), NotNow)


def test_an_administrator_uses_it_all_the_same(now, administrator, member):
    job = make_gang_job(make_lab(nodes=1, slots=1), workers=1, strategy=Strategy.ONE_DEVICE)
    (only,) = run(job, now)
    exit_with(only, now, SURVIVOR)
    with pytest.raises(Forbidden):
        nodes.reclaim(node_id=only.node_id, by=member)
    nodes.reclaim(node_id=only.node_id, by=administrator, reason="looked at it")
    nodes.reclaim(node_id=only.node_id, by=administrator)
    assert texts(only.node)[1:] == ["ada took CPU slot 0 of node-1 into use again: looked at it."]
    look(only.node, only, later(now, 2), SURVIVOR)  # a later look does not take it away again
    assert Node.objects.get(pk=only.node_id).dirty == []


def test_a_flood_of_remains_is_cut(now):
    job = make_gang_job(make_lab(nodes=1, slots=1), workers=1, strategy=Strategy.ONE_DEVICE)
    (only,) = run(job, now)
    exit_with(only, now, *[Leftover(kind=LeftoverKind.PROCESS, words=f"process {pid}\0") for pid in range(9)])
    kept = Node.objects.get(pk=only.node_id).not_used[0].left
    assert kept == ["process 0", "process 1", "process 2", "process 3", "process 4", "4 more"]


def test_a_port_held_on_one_address_of_a_machine_is_taken_on_all(now):
    cluster = make_lab(nodes=3, slots=2)
    one, other, elsewhere = Node.objects.order_by("name")
    for node, machine in ((one, "boot-1 net:[1]"), (other, "boot-1 net:[1]"), (elsewhere, "")):
        node.inventory |= {"machine": machine}
        node.save()
    make_replica(make_gang_job(cluster, workers=1), node=one, host=one.address, port=20000)
    make_replica(make_gang_job(cluster, workers=1), node=elsewhere, host=elsewhere.address, port=20001)
    view = cluster_view(cluster, now=now)
    assert view.ports_taken == {("boot-1 net:[1]", 20000), (elsewhere.address, 20001)}
    assert view.machines == {one.address: "boot-1 net:[1]", other.address: "boot-1 net:[1]"}
