"""What a job that is being paused needs next. Pure: `services/gang/gang.py` asks, with what `services/gang/pausing.py`
knows.

Who holds the training's state is asked to save: a synchronous gang as a whole (it agrees on one step); where one
process trains and the others serve it, that one alone. When all of them have left, the rest is ended, and the job is
paused with nothing lost. What cannot save (a script, which may do so by itself, or a job that keeps no checkpoints) is
only ended.

A pause in which something failed is said to be that. Where it was not the program, the job is kept for later, with the
checkpoint that there is; what the program did, or a disk that takes no checkpoint, is a failure like any other, unless
the pause was the cluster's wish and not a person's: then the job goes back into the queue. Who did not save in
time, and was killed for it, is nobody's failure: the job is kept, and no node is blamed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.domain.gang.decisions import CONSEQUENCE_WAIT, End, Finish, GangFacts, Wait, root_cause
from orchestrator.domain.gang.reasons import ReplicaFacts, reason_of
from orchestrator.domain.gang.roles import training
from orchestrator.domain.lifecycle import TERMINAL_REPLICA
from worker_agent.protocol.causes import Retry
from worker_agent.protocol.states import Cause

# What the processes said last may take so long to arrive; among it, that the checkpoint is complete.
LAST_REPORTS_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True)
class Pause:
    """What is asked for: `saves` whether a checkpoint is written first, `requeue` whether the job goes back into the
    queue by itself. `stored` says that all that those who save said has arrived."""

    saves: bool
    requeue: bool
    stored: bool


@dataclass(frozen=True)
class EndOthers:
    """Those who saved have left, or it failed: end the processes that are left."""

    cause: Cause
    reason: str


@dataclass(frozen=True)
class Kept:
    """Nothing of the attempt is left: the job is paused. `cause` and `reason` are those of the attempt's end."""

    cause: Cause
    reason: str


Decision = Wait | End | EndOthers | Kept | Finish


def decide(gang: GangFacts, pause: Pause, *, now: datetime) -> Decision:
    """The next move of a job that is pausing. Its `cause` is None until those who save have left."""
    savers = training(gang.replicas, gang.strategy)
    if savers and all(replica.cause is Cause.COMPLETED for replica in savers):
        return End(Cause.COMPLETED, "It had finished before the pause reached it.")
    if gang.cause is not None:
        return Wait() if gang.live else _ended(gang, pause, savers, now)
    failed = root_cause(_failed(gang))
    if _overdue(pause, savers) is not None:
        if failed is None or failed.end.may_follow:
            return EndOthers(Cause.PAUSED, gang.reason)
        return EndOthers(failed.end.cause, reason_of(failed))
    if failed is not None and not set(savers).isdisjoint(_failed(gang)):  # who only serves may be missed, or not
        first = min(replica.ended_at for replica in _failed(gang) if replica.ended_at)
        unsure = bool(gang.live) and failed.end.may_follow and now - first < CONSEQUENCE_WAIT
        return Wait() if unsure else EndOthers(failed.end.cause, reason_of(failed))
    if all(replica.status in TERMINAL_REPLICA for replica in savers):
        return EndOthers(Cause.PAUSED, gang.reason)
    return Wait()


def _ended(gang: GangFacts, pause: Pause, savers: list[ReplicaFacts], now: datetime) -> Wait | Kept | Finish:
    root, overdue = root_cause(_failed(gang)), _overdue(pause, savers)
    if overdue is not None and (root is None or root.end.may_follow or gang.cause is Cause.PAUSED):
        return Kept(Cause.PAUSED, f"The pause saved nothing: {reason_of(overdue)}")
    if root is None or root.cause is Cause.STOPPED or (pause.saves and gang.cause is Cause.PAUSED):
        ended = max((replica.ended_at for replica in savers if replica.ended_at), default=now)
        is_late = now - ended >= LAST_REPORTS_WITHIN
        if pause.saves and not pause.stored and not is_late:
            return Wait()
        missing = " Its last reports have not arrived." if pause.saves and not pause.stored else ""
        return Kept(Cause.PAUSED, f"{gang.reason}{missing}")
    cause, reason, retry = root.end.cause, reason_of(root), root.end.row.retry
    if retry is not Retry.NEVER and (pause.requeue or retry is not Retry.COUNTED):
        return Kept(cause, f"The pause saved nothing: {reason}")
    return Finish(cause, f"It failed while it was being paused: {reason}")


def _overdue(pause: Pause, savers: list[ReplicaFacts]) -> ReplicaFacts | None:
    """The first that the request to save has ended, and not its own exit: its time ran out."""
    if not pause.saves:
        return None
    killed = (each for each in savers if each.cause is Cause.PAUSED and each.end.signal)
    return root_cause(tuple(killed))


def _failed(gang: GangFacts) -> tuple[ReplicaFacts, ...]:
    """Those that neither finished nor left because of the pause."""
    well = (None, Cause.COMPLETED, Cause.PAUSED)
    return tuple(each for each in gang.replicas if each.cause not in well and not each.end.saved)
