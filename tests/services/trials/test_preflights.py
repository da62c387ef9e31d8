"""Asking the nodes before a job: who is asked what, what their answers come to, and what is placed meanwhile."""

from datetime import timedelta

import pytest
from django.utils import timezone

from orchestrator.models import Command, Event, Node, Preflight
from orchestrator.queries.errors import NotFound
from orchestrator.services import outbox
from orchestrator.services.errors import Conflict, Forbidden, Invalid
from orchestrator.services.gang import gang
from orchestrator.services.intake import reports
from orchestrator.services.jobs import dispatch, jobs, submission
from orchestrator.services.programs import programs
from orchestrator.services.trials import preflights, probing
from tests.factories import make_cluster, make_job, make_node, make_replica, make_user
from tests.services.gang.gangs import make_gang_job, make_lab
from tests.services.jobs.test_submission import fields_of, request_for
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.commands import Probe
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.reports import Probed
from worker_agent.protocol.states import JobStatus, NodeState

NOW = timezone.now()
LATER = NOW + preflights.BUILD_WITHIN + timedelta(seconds=1)


def begin(cluster, by, **fields):
    return jobs.check_job(request=request_for(cluster, **fields), by=by, now=NOW)


def asked() -> list[Probe]:
    """What the nodes are told, in order."""
    return [decode_command(bytes(row.body)) for row in Command.objects.order_by("pk")]


def answer(row, node: Node, now=NOW, **said) -> None:
    report = Probed(node_id=node.pk, preflight_id=row.pk, **({"findings": []} | said))
    reports.apply([(node, report)], now=now)


def test_each_node_of_the_gang_is_asked_and_the_leaders_builds(member):
    cluster = make_lab(checkpoint_place="/mnt/shared")
    row = begin(cluster, member)
    first, second = asked()
    assert (first.node, second.node) == ("node-1", "node-2")
    assert [door.label for door in (*first.own, *first.others)] == ["worker:0", "worker:1"]
    assert (first.own, first.others) == (second.others, second.own)
    assert (first.builds, second.builds) == (True, False)
    assert first.key == second.key != ""
    assert first.checkpoints == "/mnt/shared"
    assert first.devices == [0]
    view = preflights.answers_to(preflight_id=row.pk, by=member, now=NOW)
    assert (view.state, view.waiting) == ("running", ("node-1", "node-2"))


def test_the_answers_come_together(member):
    cluster = make_lab()
    one, two = cluster.nodes.order_by("name")
    row = begin(cluster, member)
    answer(row, one, findings=[Finding("the disk is full", "0 MiB", "Clean up", blocks=False)], facts={"Rows": "10"})
    assert preflights.answers_to(preflight_id=row.pk, by=member, now=NOW).waiting == ("node-2",)
    answer(row, two)
    answer(row, two, findings=[Finding("said twice", "b", "c")])
    view = preflights.answers_to(preflight_id=row.pk, by=member, now=NOW)
    assert (view.state, view.facts, view.blocked) == ("done", {"Rows": "10"}, False)
    assert [(found.node, found.severity, found.what) for found in view.findings] == [
        ("node-1", "warning", "the disk is full")
    ]


def test_a_taken_port_explains_why_it_was_not_reached(member):
    cluster = make_lab()
    one, two = cluster.nodes.order_by("name")
    row = begin(cluster, member)
    unreached = {"worker:1": Finding("node-1 does not reach worker:1", "b", "c")}
    answer(row, one, unreached=unreached)
    answer(row, two, findings=[Finding("port taken", "b", "c", blocks=False)], taken=["worker:1"], unreached={})
    view = preflights.answers_to(preflight_id=row.pk, by=member, now=NOW)
    assert [found.what for found in view.findings] == ["port taken"]


def test_a_port_that_one_side_alone_reaches(member):
    cluster = make_lab()
    one, two = cluster.nodes.order_by("name")
    row = begin(cluster, member)
    answer(row, one, unreached={"worker:1": Finding("node-1 does not reach worker:1", "b", "c")})
    answer(row, two)
    assert preflights.answers_to(preflight_id=row.pk, by=member, now=NOW).blocked


def test_nodes_that_stay_silent(member):
    cluster = make_lab(3)
    row = begin(cluster, member, workers=3, global_batch_size=96)
    taken = Command.objects.get(node__name="node-1")
    gang.on_ack(node=taken.node, command_id=taken.pk, refused="", now=NOW)
    Node.objects.filter(name="node-3").update(state=NodeState.LOST)
    view = preflights.answers_to(preflight_id=row.pk, by=member, now=NOW)
    assert view.waiting == ("node-1", "node-2"), "nobody waits for a node that is lost"
    soon = preflights.answers_to(
        preflight_id=row.pk, by=member, now=NOW + preflights.ANSWER_WITHIN + timedelta(seconds=1)
    )
    assert soon.waiting == ("node-1",), "who builds has longer"
    view = preflights.answers_to(preflight_id=row.pk, by=member, now=LATER)
    assert view.state == "done"
    assert {found.node: (found.severity, found.why.split(":")[0]) for found in view.findings} == {
        "node-1": ("error", "it accepted the check but did not answer in time"),
        "node-2": ("warning", "its agent does not accept this command"),
        "node-3": ("error", "its agent does not report"),
    }


def test_nothing_is_placed_on_ports_that_are_being_tried(member):
    cluster = make_lab(port_first=20000, port_last=20003)
    row = begin(cluster, member)
    tried = {(host, port) for host, port in row.doors}
    other = make_gang_job(cluster)
    assert dispatch.dispatch_job(job_id=other.pk, now=NOW)
    assert not tried & set(other.replicas.values_list("host", "port"))
    again = begin(cluster, member)
    assert not tried & {(host, port) for host, port in again.doors}
    for node in cluster.nodes.all():
        answer(row, node)
    preview = submission.check(request_for(cluster), by=member)
    assert preview.nodes


def test_a_job_that_would_wait_is_checked_where_it_will_run(member):
    cluster = make_lab(slots=1)
    make_replica(make_job(cluster=cluster, status=JobStatus.RUNNING), node=cluster.nodes.get(name="node-2"))
    begin(cluster, member)
    assert [probe.node for probe in asked()] == ["node-1", "node-2"]


def test_nodes_that_take_nothing_are_not_asked(member):
    cluster = make_lab()
    cluster.nodes.update(state=NodeState.CORDONED.value)
    row = begin(cluster, member)
    view = preflights.answers_to(preflight_id=row.pk, by=member, now=NOW)
    assert (view.state, [found.what for found in view.findings]) == ("done", ["the nodes were not asked"])
    assert asked() == []


def test_one_process_opens_no_door(member):
    begin(make_lab(), member, strategy="one_device")
    (probe,) = asked()
    assert (probe.own, probe.others, probe.builds) == ([], [], True)


def test_who_may_ask_and_look(member, administrator):
    cluster = make_lab()
    with pytest.raises(Forbidden):
        begin(cluster, make_user(role="viewer"))
    with pytest.raises(Invalid):
        begin(cluster, member, workers=99)
    row = begin(cluster, member)
    assert preflights.answers_to(preflight_id=row.pk, by=administrator, now=NOW)
    with pytest.raises(NotFound):
        preflights.answers_to(preflight_id=row.pk, by=make_user(), now=NOW)
    begin(cluster, member)
    begin(cluster, member)
    with pytest.raises(Conflict):
        begin(cluster, member)


def test_a_program_is_given_to_the_nodes_that_check_it_and_no_longer(member):
    cluster = make_lab()
    stranger = make_node(cluster, "node-9")
    row = begin(cluster, member, strategy="one_device")
    node = row.asked.get().node
    assert programs.content_for(node, row.code_id)
    with pytest.raises(NotFound):
        programs.content_for(stranger, row.code_id)
    answer(row, node)
    with pytest.raises(NotFound):
        programs.content_for(node, row.code_id)


def test_only_a_node_that_was_asked_is_heard_and_not_without_end(member):
    cluster = make_lab()
    row = begin(cluster, member, strategy="one_device")
    stranger = make_node(make_cluster())
    answer(row, stranger, findings=[Finding("forged", "b", "c")])
    node = row.asked.get().node
    assert node != stranger
    answer(row, node, findings=[Finding("a\0b" * 1000, "b", "c")] * 1000)
    view = preflights.answers_to(preflight_id=row.pk, by=member, now=NOW)
    assert len(view.findings) == probing.FINDINGS_MAX
    assert len(view.findings[0].what) == probing.WORDS_MAX


def test_a_question_is_not_sent_again_when_its_time_is_over(member):
    begin(make_lab(), member)
    assert outbox.resend(now=NOW + timedelta(seconds=5)) == 2
    assert outbox.resend(now=NOW + timedelta(minutes=1)) == 0
    assert not Command.objects.filter(acked_at=None).exists()


def test_what_was_found_is_in_the_history_of_the_job(member):
    cluster = make_lab()
    Node.objects.filter(name="node-2").update(inventory=make_node(name="x").inventory | {"keras": "3.14.0"})
    row = begin(cluster, member)
    for node in cluster.nodes.filter(name="node-1"):
        answer(row, node, findings=[Finding("the disk is full", "0 MiB", "Clean up", blocks=False)])
    job = jobs.submit_job(request=request_for(cluster), by=member)
    texts = list(Event.objects.filter(job=job, kind="preflight").values_list("text", flat=True))
    assert len(texts) == 2
    assert texts[0].startswith("Found before it started: Keras differs between the nodes")
    assert texts[1] == "Found before it started: the disk is full: 0 MiB."
    other = jobs.submit_job(request=request_for(cluster, epochs=9), by=member)
    assert not Event.objects.filter(job=other, kind="preflight", text__contains="disk").exists()


def test_nodes_that_do_not_suit_each_other_are_refused_and_not_launched(member):
    cluster = make_lab()
    job = make_gang_job(cluster)
    Node.objects.filter(name="node-2").update(inventory=make_node(name="x").inventory | {"tensorflow": "2.20.0"})
    errors = submission.check(request_for(cluster), by=member).errors
    assert fields_of(errors)["cluster"].startswith("TensorFlow differs between the nodes of the gang")
    assert [finding.blocks for finding in submission.check(request_for(cluster), by=member).findings] == [True]
    assert not dispatch.dispatch_job(job_id=job.pk, now=NOW)
    job.refresh_from_db()
    assert job.waiting_for.startswith("TensorFlow differs")


def test_old_checks_are_forgotten(member):
    row = begin(make_lab(), member)
    Preflight.objects.update(created_at=NOW - timedelta(days=2))
    begin(make_lab(), member)
    assert not Preflight.objects.filter(pk=row.pk).exists()
