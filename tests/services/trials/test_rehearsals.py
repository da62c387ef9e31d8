"""Built once before the first launch: who is asked, what is refused, and what holds no job up."""

from datetime import timedelta

import pytest

from orchestrator.domain.placement.rehearsal import Verdict, fingerprint
from orchestrator.models import Command, Event, Job, Preflight, ProbedNode, Replica
from orchestrator.services import outbox
from orchestrator.services.gang import gang
from orchestrator.services.intake import reports
from orchestrator.services.jobs import dispatch, jobs
from orchestrator.services.trials import probing, rehearsals
from tests.factories import make_job, make_replica
from tests.services.gang.gangs import make_gang_job, make_lab
from worker_agent.protocol.codec import decode_command
from worker_agent.protocol.commands import Probe, WithdrawProbe
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.reports import Probed
from worker_agent.protocol.states import Cause, JobStatus, Kind, NodeState, Strategy

REFUSED = Finding("the model does not suit", "It has 2 blocks, 3 stages", "Change that setting", certain=True)
OWN = Finding("the program's build_model() fails", "KeyError: 'units'", "Correct the program")
BUSY = Finding("the program was not built", "it builds another one", "Check again", blocks=False)
WARNING = Finding("5 files do not divide by 2 workers", "all read all", "Write 4", blocks=False)


@pytest.fixture(autouse=True)
def _rehearses(settings) -> None:
    settings.REHEARSE = True


def dispatched(job: Job, now) -> bool:
    launched = dispatch.dispatch_job(job_id=job.pk, now=now)
    job.refresh_from_db()
    return launched


def answer(now, *findings: Finding, tried: bool = True) -> None:
    """The node that was asked last has built the program, or says that it was not `tried`."""
    asked = ProbedNode.objects.latest("pk")
    report = Probed(node_id=asked.node_id, preflight_id=asked.preflight_id, findings=list(findings), tried=tried)
    reports.apply([(asked.node, report)], now=now)


def test_the_leaders_node_builds_it_first(now):
    job = make_gang_job(make_lab())
    assert not dispatched(job, now)
    assert job.status == JobStatus.SUBMITTED
    assert job.waiting_for == "its program is being tried out on node-1, as before every first launch"
    probe = decode_command(bytes(Command.objects.get().body))
    assert isinstance(probe, Probe)
    assert (probe.node, probe.builds, probe.trains, probe.spec) == ("node-1", True, False, job.typed_spec)
    assert (probe.own, probe.others, probe.devices, probe.checkpoints) == ([], [], [], "")
    assert not dispatched(job, now), "asked once"
    answer(now)
    assert dispatched(job, now)
    assert (job.status, job.waiting_for) == (JobStatus.LAUNCHING, "")
    assert Command.objects.filter(kind="probe").count() == 1


def test_a_stop_ends_what_is_being_built_and_another_one_alike_builds_its_own(now):
    cluster = make_lab()
    job, alike = make_gang_job(cluster), make_gang_job(cluster)
    assert not dispatched(job, now)
    assert not dispatched(alike, now)
    row = Preflight.objects.get()
    jobs.stop_job(job_id=job.pk, by=job.owner, now=now)
    command = decode_command(bytes(Command.objects.get(kind="withdraw").body))
    assert isinstance(command, WithdrawProbe)
    assert command.preflight_id == row.pk
    row.refresh_from_db()
    assert (row.ended_at, row.asked.get().verdict) == (now, "")
    assert not dispatched(alike, now)
    assert Preflight.objects.latest("pk").job == alike
    later_on = now + outbox.PROBE_LIFE + timedelta(seconds=30)
    outbox.resend(now=later_on)
    assert Command.objects.get(kind="withdraw").refused == "no longer needed", "its agent is too old for it"


def test_what_the_training_would_refuse_is_refused_before_it(now):
    job = make_gang_job(make_lab())
    dispatched(job, now)
    answer(now, WARNING, REFUSED)
    assert not dispatched(job, now)
    assert (job.status, job.cause, job.attempt) == (JobStatus.FAILED, Cause.LAUNCH_REFUSED, 0)
    assert job.reason == "It has 2 blocks, 3 stages. Change that setting."
    assert job.ended_at == now
    assert not Replica.objects.exists()
    assert Event.objects.filter(job=job, kind="job_failed", text=f"Nothing was started. {job.reason}").exists()


def test_what_the_program_raises_by_itself_is_left_to_the_training(now):
    job = make_gang_job(make_lab())
    dispatched(job, now)
    answer(now, OWN, WARNING)
    assert dispatched(job, now)
    warned = Event.objects.filter(job=job, kind="preflight").values_list("text", flat=True)
    assert list(warned) == ["Found before it started: 5 files do not divide by 2 workers: all read all."]


def test_what_was_built_is_not_built_again(now):
    cluster = make_lab(slots=8)
    dispatched(make_gang_job(cluster), now)
    answer(now)
    alike = make_gang_job(cluster, epochs=9, seed=3, checkpoint_steps=5, max_restarts=2, priority=4)
    assert dispatched(alike, now)
    other = make_gang_job(cluster, global_batch_size=32)
    assert not dispatched(other, now)
    a_day_later = now + probing.KEPT_FOR + timedelta(seconds=1)
    assert not dispatched(make_gang_job(cluster, epochs=9), a_day_later)


def test_what_was_refused_once_is_looked_at_again(now):
    cluster = make_lab(slots=8)
    first, second = make_gang_job(cluster), make_gang_job(cluster)
    assert not dispatched(first, now)
    assert not dispatched(second, now)
    assert Preflight.objects.count() == 1, "one answer is enough for both"
    answer(now, REFUSED)
    assert not dispatched(first, now)
    assert not dispatched(second, now)
    answer(now)
    assert dispatched(second, now), "the node was mended"


def test_a_job_that_waits_for_room_is_rehearsed_meanwhile(now):
    cluster = make_lab(nodes=1, slots=1)
    make_replica(make_job(cluster=cluster, status=JobStatus.RUNNING), node=cluster.nodes.get())
    job = make_gang_job(cluster, workers=1, strategy=Strategy.ONE_DEVICE)
    assert not dispatched(job, now)
    assert job.waiting_for.startswith("needs ")
    answer(now, REFUSED)
    dispatched(job, now)
    assert job.status == JobStatus.FAILED


def test_a_rehearsal_that_nobody_answers_holds_no_job_up(now):
    cluster = make_lab(slots=8)
    job = make_gang_job(cluster)
    dispatched(job, now)
    assert not dispatched(job, now + rehearsals.ANSWER_WITHIN)
    assert dispatched(job, now + rehearsals.ANSWER_WITHIN + timedelta(seconds=1))
    assert Event.objects.get(job=job, kind="preflight").text == (
        "Found before it started: its program was not tried out before its first launch: node-1 did not answer in time."
    )
    slow = make_gang_job(cluster, global_batch_size=32)
    dispatched(slow, now)
    command = Command.objects.filter(kind="probe").latest("pk")
    gang.on_ack(node=command.node, command_id=command.pk, refused="", now=now)
    assert not dispatched(slow, now + rehearsals.BUILD_WITHIN)
    assert dispatched(slow, now + rehearsals.BUILD_WITHIN + timedelta(seconds=1))


def test_another_node_is_asked_at_once_when_the_one_that_builds_is_lost(now):
    cluster = make_lab(nodes=3, slots=8)
    job = make_gang_job(cluster)
    dispatched(job, now)
    gang.on_ack(node=cluster.nodes.get(name="node-1"), command_id=Command.objects.get().pk, refused="", now=now)
    cluster.nodes.filter(name="node-1").update(state=NodeState.LOST)
    assert not dispatched(job, now)
    assert job.waiting_for.startswith("its program is being tried out on node-2")
    answer(now)
    assert dispatched(job, now)


def test_only_recipes_that_were_never_launched(now, settings):
    cluster = make_lab(slots=8)
    assert dispatched(make_gang_job(cluster, kind=Kind.SCRIPT), now)
    again = make_job(cluster=cluster, status=JobStatus.RESTARTING, attempt=1)
    Job.objects.filter(pk=again.pk).update(status=JobStatus.SUBMITTED)
    assert dispatched(again, now)
    settings.REHEARSE = False
    assert dispatched(make_gang_job(cluster), now)
    assert not Preflight.objects.exists()


def test_a_job_without_a_place_is_not_rehearsed(now):
    cluster = make_lab(nodes=1)
    job = make_gang_job(cluster, workers=9)
    assert not dispatched(job, now)
    assert not Preflight.objects.exists()


def test_a_node_that_is_busy_is_asked_again_and_nothing_counts_as_built_by_that(now):
    cluster = make_lab(slots=8)
    job, other = make_gang_job(cluster), make_gang_job(cluster)
    moment = now
    while moment <= now + rehearsals.BUSY_FOR:
        assert not dispatched(job, moment)
        answer(moment, BUSY, tried=False)
        assert not dispatched(job, moment), "not at once"
        moment += 2 * rehearsals.AGAIN_AFTER
    asked = Preflight.objects.count()
    assert asked == rehearsals.BUSY_FOR // (2 * rehearsals.AGAIN_AFTER) + 1
    assert dispatched(job, moment), "it has waited long enough"
    assert Event.objects.get(job=job, kind="preflight").text.endswith("first launch: it builds another one.")
    assert not dispatched(other, moment)
    answer(moment, REFUSED)
    dispatched(other, moment)
    assert other.status == JobStatus.FAILED


def test_a_node_of_the_gang_that_builds_nothing_is_asked(now):
    cluster = make_lab(slots=8)
    for size in (16, 32, 64):
        dispatched(make_gang_job(cluster, global_batch_size=size), now)
    assert list(ProbedNode.objects.order_by("pk").values_list("name", flat=True)) == ["node-1", "node-2", "node-1"]


def test_a_check_that_somebody_asked_for_counts_once_it_has_built_the_program(now, member):
    cluster = make_lab(slots=8)
    job = make_gang_job(cluster)
    check = Preflight.objects.create(
        owner=member,
        cluster=cluster,
        code=job.code,
        spec=job.spec,
        fingerprint=fingerprint(job.typed_spec, cluster.environment),
        created_at=now,
        answer_by=now,
        build_by=now + timedelta(hours=1),
    )
    check.asked.create(node=cluster.nodes.first(), name="node-1", builds=True)
    assert not dispatched(job, now)
    assert Preflight.objects.filter(job=job).count() == 1, "its own, whatever becomes of the other"
    late = now + rehearsals.BUILD_WITHIN + timedelta(seconds=1)
    assert dispatched(job, late)
    check.refresh_from_db()
    assert check.ended_at is None, "it has its own time"
    check.asked.update(verdict=Verdict.BUILT)
    assert dispatched(make_gang_job(cluster), late)
