"""What a job that is being paused needs next: who saves, when the rest is ended, what a pause that fails comes to."""

from datetime import timedelta

import pytest

from orchestrator.domain.gang import pauses
from orchestrator.domain.gang.decisions import End, Finish, Wait
from orchestrator.domain.gang.pauses import EndOthers, Kept, Pause
from tests.domain.gang.gangs import NOW, ended, gang, replica, spec
from worker_agent.protocol.job.job_spec import keeps_checkpoints
from worker_agent.protocol.states import Cause, JobStatus, Kind, Role, Strategy

SAVING = Pause(saves=True, requeue=False, stored=True)
ENDING = Pause(saves=False, requeue=False, stored=True)
BY_ADA = "Paused by ada."
FINISHED = "It had finished before the pause reached it."
OFF = {"cause": Cause.EXCEPTION, "message": "Connection reset by peer", "lost_peer": True}
LATE = "It had not saved and left 120 s after it was asked to, so it was killed (SIGKILL)."


def decide(*replicas, pause=SAVING, cause=None, **fields):
    facts = gang(*replicas, status=JobStatus.PAUSING, cause=cause, reason=BY_ADA, **fields)
    return pauses.decide(facts, pause, now=NOW)


def test_which_jobs_save():
    assert keeps_checkpoints(spec())
    assert not keeps_checkpoints(spec(checkpoints_kept=0))
    assert not keeps_checkpoints(spec(kind=Kind.SCRIPT))
    assert keeps_checkpoints(spec(Strategy.TENSOR_PARALLEL))


def test_who_was_asked_from_outside_and_saved_is_no_failure_of_the_pause():
    left = (ended(0, Cause.PAUSED, code=75, saved=True), ended(1, Cause.PREEMPTED, code=75, saved=True))
    assert decide(*left) == EndOthers(Cause.PAUSED, BY_ADA)
    assert decide(*left, cause=Cause.PAUSED) == Kept(Cause.PAUSED, BY_ADA)
    unsaved = ended(1, Cause.PREEMPTED, signal=15, message="It left without saving.")
    kept = decide(ended(0, Cause.STOPPED), unsaved, cause=Cause.PREEMPTED)
    assert (kept.cause, kept.reason.startswith("The pause saved nothing: worker 1")) == (Cause.PREEMPTED, True)


def test_all_who_save_have_to_leave_then_the_rest_is_ended_then_the_job_is_kept():
    saved, evaluator = ended(0, Cause.PAUSED), replica(0, role=Role.EVALUATOR)
    assert decide(replica(0), replica(1), evaluator) == Wait()
    assert decide(saved, replica(1), evaluator) == Wait()
    both = (saved, ended(1, Cause.PAUSED))
    assert decide(*both, evaluator) == EndOthers(Cause.PAUSED, BY_ADA)
    assert decide(*both, evaluator, cause=Cause.PAUSED) == Wait()
    assert decide(*both, ended(0, Cause.SIGNAL, role=Role.EVALUATOR), cause=Cause.PAUSED) == Kept(Cause.PAUSED, BY_ADA)


def test_the_end_of_who_saved_is_not_believed_before_all_it_said_has_arrived():
    late = Pause(saves=True, requeue=False, stored=False)
    waits = timedelta(seconds=59).total_seconds()
    assert decide(ended(0, Cause.PAUSED, ago_s=waits), pause=late, cause=Cause.PAUSED) == Wait()
    kept = decide(ended(0, Cause.PAUSED, ago_s=waits + 1), pause=late, cause=Cause.PAUSED)
    assert kept == Kept(Cause.PAUSED, f"{BY_ADA} Its last reports have not arrived.")


def test_a_training_that_ended_before_it_was_asked_has_ended():
    assert decide(ended(0), ended(1)) == End(Cause.COMPLETED, FINISHED)
    assert decide(ended(0), pause=ENDING, cause=Cause.PAUSED) == End(Cause.COMPLETED, FINISHED)


def test_who_lost_a_peer_is_not_the_cause_while_another_may_still_say_it():
    peer = ended(0, ago_s=1, **OFF)
    assert decide(peer, replica(1)) == Wait()
    assert decide(ended(0, ago_s=3, **OFF), replica(1)).cause is Cause.EXCEPTION
    culprit = ended(1, Cause.OUT_OF_MEMORY)
    assert decide(peer, culprit) == EndOthers(Cause.OUT_OF_MEMORY, "worker 1 on node-2 ran out of memory.")


def test_who_does_not_save_may_fail_while_the_others_do():
    chief, lost = replica(0, role=Role.CHIEF), ended(1, Cause.SIGNAL, signal=9)
    served = {"strategy": Strategy.PARAMETER_SERVER}
    assert decide(chief, lost, **served) == Wait()
    assert decide(ended(0, Cause.PAUSED, role=Role.CHIEF), lost, **served) == EndOthers(Cause.PAUSED, BY_ADA)
    failed = ended(0, role=Role.CHIEF, **OFF)
    assert decide(failed, lost, **served) == EndOthers(
        Cause.SIGNAL, "worker 1 on node-2 was killed by signal 9 (SIGKILL)."
    )


@pytest.mark.parametrize(
    ("cause", "signal", "requeue", "onward"),
    [
        (Cause.NODE_LOST, None, False, Kept),
        (Cause.SIGNAL, 9, False, Kept),
        (Cause.EXCEPTION, None, False, Finish),
        (Cause.EXCEPTION, None, True, Kept),
        (Cause.LOSS_NOT_FINITE, None, True, Finish),
    ],
)
def test_a_pause_that_saved_nothing_says_so(cause, signal, requeue, onward):
    pause = Pause(saves=True, requeue=requeue, stored=True)
    failed = ended(0, cause, signal=signal, message="No space left.")
    decision = decide(failed, ended(1, Cause.STOPPED), pause=pause, cause=cause)
    assert isinstance(decision, onward)
    assert decision.cause is cause
    assert decision.reason.startswith(
        "The pause saved nothing: worker 0" if onward is Kept else "It failed while it was being paused: worker 0"
    )


def test_who_had_not_saved_in_time_is_nobodys_failure():
    late = ended(0, Cause.PAUSED, signal=9, message=LATE)
    said = Kept(Cause.PAUSED, f"The pause saved nothing: worker 0 on node-1 was paused: {LATE}")
    peer = ended(1, **OFF)
    for other in (replica(1), peer):
        assert decide(late, other) == EndOthers(Cause.PAUSED, BY_ADA)
    assert decide(late, replica(1), cause=Cause.PAUSED) == Wait()
    assert decide(late, ended(1, Cause.PAUSED, signal=15), cause=Cause.PAUSED) == said
    assert decide(late, peer, cause=Cause.PAUSED) == said
    assert decide(late, peer, cause=Cause.EXCEPTION) == said, "the rest was ended before its end was heard of"
    late_script = ended(0, Cause.PAUSED, signal=9)
    assert decide(late_script, pause=ENDING, cause=Cause.PAUSED) == Kept(Cause.PAUSED, BY_ADA)


def test_what_kept_it_from_saving_is_the_cause():
    late, lost = ended(0, Cause.PAUSED, role=Role.CHIEF, signal=9, message=LATE), ended(1, Cause.SIGNAL, signal=9)
    served, why = {"strategy": Strategy.PARAMETER_SERVER}, "worker 1 on node-2 was killed by signal 9 (SIGKILL)."
    assert decide(late, lost, **served) == EndOthers(Cause.SIGNAL, why)
    kept = Kept(Cause.SIGNAL, f"The pause saved nothing: {why}")
    assert decide(late, lost, cause=Cause.SIGNAL, **served) == kept


def test_a_job_that_cannot_save_is_kept_when_all_have_ended():
    assert decide(replica(0), pause=ENDING, cause=Cause.PAUSED) == Wait()
    assert decide(ended(0, Cause.PAUSED), pause=ENDING, cause=Cause.PAUSED) == Kept(Cause.PAUSED, BY_ADA)


def test_a_script_without_a_chief_is_done_when_all_its_workers_are():
    script = {"kind": Kind.SCRIPT, "strategy": Strategy.PARAMETER_SERVER, "cause": Cause.PAUSED}
    server = ended(0, Cause.PAUSED, role=Role.PS)
    assert isinstance(decide(ended(0), ended(1), replica(0, role=Role.PS), pause=ENDING, **script), End)
    assert isinstance(decide(ended(0), ended(1, Cause.PAUSED), server, pause=ENDING, **script), Kept)
