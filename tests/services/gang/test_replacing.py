"""Parts of a gang that are launched anew: which rows, which commands, from which step, and what the ledger says."""

import pytest

from orchestrator.domain.gang.decisions import End
from orchestrator.models import Command, Job, Node, Replica
from orchestrator.queries import restarts
from orchestrator.queries.errors import NotFound
from orchestrator.services.checkpoints import checkpoint_store
from orchestrator.services.gang import gang
from orchestrator.services.intake import progress
from orchestrator.services.sweep import reconcile
from tests.factories import make_dirty
from tests.services.gang.gangs import acknowledge, end, keep, later, lose_peer, make_gang_job, make_lab, refreshed, run
from worker_agent.protocol import codec
from worker_agent.protocol.checkpoint import MARKER
from worker_agent.protocol.commands import Launch
from worker_agent.protocol.records import Progress
from worker_agent.protocol.states import Cause, JobStatus, NodeState, ReplicaStatus, Strategy


@pytest.fixture
def job(now):
    """A gang under parameter servers at step 57: chief, two workers, one ps."""
    job = make_gang_job(make_lab(), strategy=Strategy.PARAMETER_SERVER, ps=1, max_restarts=1)
    run(job, now)
    Job.objects.filter(pk=job.pk).update(step=57)
    return refreshed(job, []) or job


def one(job, role, index=0):
    return job.replicas.select_related("node").get(role=role, index=index, superseded=False)


def kill(job, role, now, index=0):
    end(one(job, role, index), Cause.SIGNAL, now, signal=9)
    job.refresh_from_db()


def launched(replica):
    row = Command.objects.get(replica=replica, kind="launch")
    message = codec.decode_command(bytes(row.body))
    assert isinstance(message, Launch)
    return message


def work(replica, now, pid=2000):
    acknowledge(replica, now)
    gang.on_started(replica=replica, pid=pid, warm=True, now=now)
    gang.on_phase(replica=replica, phase="training" if replica.role == "chief" else "serving", now=now)


def test_a_worker_comes_back_where_it_was_and_nothing_else_moves(job, now):
    before = one(job, "worker", 1)
    kill(job, "worker", later(now, 60), 1)
    again = one(job, "worker", 1)
    assert (job.status, job.attempt, job.step) == (JobStatus.RUNNING, 1, 57)
    assert again.pk != before.pk
    assert (again.incarnation, again.status, again.held) == (1, ReplicaStatus.ASSIGNED, True)
    for name in ("node_id", "host", "port", "devices", "tf_config"):
        assert getattr(again, name) == getattr(before, name)
    before.refresh_from_db()
    assert (before.superseded, before.held) == (True, False)
    message = launched(again)
    assert (message.port, message.index, message.restore, message.incarnation) == (before.port, 1, None, 1)
    assert Command.objects.filter(kind="stop").count() == 0
    (row,) = restarts.of_job(job)
    assert (row.replicas, row.cause, row.counted, row.node) == (["worker 1"], Cause.SIGNAL, False, before.node_name)
    assert (row.step_reached, row.step_resumed, row.steps_lost, row.seconds_lost) == (57, None, 0, 0.0)
    work(again, later(now, 66))
    (row,) = restarts.of_job(job)
    assert (row.running_at, row.lost_since, row.seconds_lost) == (later(now, 66), None, 0.0)
    texts = list(job.events.filter(kind="part_replaced").values_list("text", flat=True))
    assert texts == [
        f"worker 1 on {before.node_name} was killed by signal 9 (SIGKILL). So worker 1 is launched again; "
        "the others continue.",
        "worker 1 is launched.",
        "worker 1 is at work again after 6.0 s.",
    ]


def test_a_lost_server_takes_the_chief_back_to_the_checkpoint(job, now):
    keep(job, 40, epoch=2)
    Replica.objects.filter(role="chief").update(stepped_at=later(now, 58))
    kill(job, "ps", later(now, 60))
    chief, server = one(job, "chief"), one(job, "ps")
    assert (job.status, chief.incarnation, server.incarnation) == (JobStatus.RUNNING, 0, 0)
    assert Command.objects.filter(replica=chief, kind="stop").count() == 1
    assert server.held
    reconcile.sweep(now=later(now, 61))
    server.refresh_from_db()
    assert server.held
    assert Command.objects.filter(kind="stop").count() == 1
    lose_peer(chief, later(now, 62))
    job.refresh_from_db()
    chief, server = one(job, "chief"), one(job, "ps")
    assert (job.status, job.attempt, job.step, job.epoch) == (JobStatus.RUNNING, 1, 40, 2)
    assert (chief.incarnation, server.incarnation) == (1, 1)
    said = "SIGKILL). So chief 0 and ps 0 are launched again; the others wait for them."
    assert job.events.filter(kind="part_replaced").first().text.endswith(said)
    assert launched(chief).restore.step == 40
    assert launched(server).restore is None
    assert [one(job, "worker", index).incarnation for index in (0, 1)] == [0, 0]
    work(server, later(now, 65))
    assert restarts.of_job(job)[0].seconds_lost is None
    work(chief, later(now, 70))
    Replica.objects.filter(pk=chief.pk).update(stepped_at=later(now, 71))
    (row,) = restarts.of_job(job)
    assert (row.replicas, row.counted) == (["chief 0", "ps 0"], False)
    assert row.reason.startswith("ps 0 on ")
    assert (row.step_reached, row.step_resumed, row.steps_lost, row.seconds_lost) == (57, 40, 17, 12.0)


def test_its_node_may_fetch_the_checkpoint_that_it_begins_with(job, now, settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path
    row = keep(job, 40, place="")
    folder = tmp_path / str(job.pk) / row.name
    folder.mkdir(parents=True)
    (folder / MARKER).write_text("{}")
    node = one(job, "chief").node
    with pytest.raises(NotFound):
        checkpoint_store.open_for(node, row.pk, MARKER)
    kill(job, "chief", later(now, 60))
    end(one(job, "ps"), Cause.STOPPED, later(now, 61), signal=15)
    assert launched(one(job, "chief")).restore.checkpoint_id == row.pk
    file, size = checkpoint_store.open_for(node, row.pk, MARKER)
    with file:
        assert (file.read(), size) == (b"{}", 2)


def test_a_chief_that_tells_of_its_server_first_is_one_entry(job, now):
    lose_peer(one(job, "chief"), later(now, 60))
    assert restarts.of_job(job) == []
    gang.advance(job_id=job.pk, now=later(now, 63))
    assert [row.reason.partition(" on ")[0] for row in restarts.of_job(job)] == ["chief 0"]
    kill(job, "ps", later(now, 64))
    (row,) = restarts.of_job(job)
    assert row.reason.startswith("ps 0 on ")
    assert one(job, "chief").incarnation == one(job, "ps").incarnation == 1


def test_what_the_dead_chief_still_says_moves_the_job_no_more(job, now):
    old = one(job, "chief")
    kill(job, "chief", later(now, 60))
    end(one(job, "ps"), Cause.STOPPED, later(now, 61), signal=15)
    assert refreshed(job, [old]) == [old]
    assert (old.superseded, job.step) == (True, 0)
    said = Progress(at=0.0, step=58, total_steps=100, epoch=1, epochs=2)
    progress.store_progress([(old, [said], ([], []))], now=later(now, 62))
    job.refresh_from_db()
    assert job.step == 0


def test_a_worker_whose_program_fails_waits_and_counts(job, now):
    end(one(job, "worker"), Cause.EXCEPTION, later(now, 60), code=1, message="ValueError: bad")
    waiting = one(job, "worker")
    assert (waiting.incarnation, waiting.held) == (0, True)
    reconcile.sweep(now=later(now, 69))
    assert one(job, "worker").incarnation == 0
    assert one(job, "worker").held
    reconcile.sweep(now=later(now, 70))
    again = one(job, "worker")
    assert again.incarnation == 1
    assert [row.counted for row in restarts.of_job(job)] == [True]
    work(again, later(now, 71))
    Job.objects.filter(pk=job.pk).update(step=80)
    end(again, Cause.EXCEPTION, later(now, 80), code=1, message="ValueError: bad")
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.STOPPING, Cause.EXCEPTION)
    assert "It has been launched again once, as often as the job allows." in job.reason
    assert not job.replicas.filter(held=True, status=ReplicaStatus.EXITED).exists()


def test_a_cordoned_node_sends_the_whole_gang_elsewhere(job, now):
    Node.objects.filter(pk=one(job, "worker", 1).node_id).update(state=NodeState.CORDONED.value)
    kill(job, "worker", later(now, 60), 1)
    assert job.status == JobStatus.RESTARTING
    assert restarts.of_job(job) == []
    assert not job.replacements.exists()


@pytest.mark.parametrize("left", ["device", "port"])
def test_what_it_left_in_its_place_sends_the_whole_gang_elsewhere(job, now, left):
    worker = one(job, "worker", 1)
    device, port = (worker.devices[0], None) if left == "device" else (None, worker.port)
    Node.objects.filter(pk=worker.node_id).update(dirty=[make_dirty("it", device=device, port=port)])
    kill(job, "worker", later(now, 60), 1)
    assert job.status == JobStatus.RESTARTING


def test_a_stop_while_a_worker_is_away_ends_everybody(job, now):
    end(one(job, "worker"), Cause.EXCEPTION, later(now, 60), code=1, message="ValueError: bad")
    job.refresh_from_db()
    gang.end_attempt(job=job, end=End(Cause.STOPPED, "Stopped by ada."), now=later(now, 61))
    assert not one(job, "worker").held
    for replica in job.replicas.exclude(status=ReplicaStatus.EXITED):
        end(replica, Cause.STOPPED, later(now, 62), signal=15)
    job.refresh_from_db()
    assert (job.status, job.cause) == (JobStatus.STOPPED, Cause.STOPPED)
    reconcile.sweep(now=later(now, 90))
    assert job.replicas.count() == 4


def test_an_evaluator_comes_back_alone(now):
    job = make_gang_job(make_lab(checkpoint_place="/shared"), validation="evaluator", checkpoints_kept=2)
    run(job, now)
    kill(job, "evaluator", later(now, 5))
    assert (job.status, one(job, "evaluator").incarnation) == (JobStatus.RUNNING, 1)
    assert [row.replicas for row in restarts.of_job(job)] == [["evaluator 0"]]
