"""What a gang's states mean for its attempt: go on waiting, end the rest, finish, or launch once more. Pure.

`services/gang/gang.py` asks `decide` after every change and from the sweep, and carries the answer out.

One process that dies takes the others with it: they lose their connection to it and raise. So the cause of an attempt
is looked for among all failures: what a process did by itself comes before what only says that a peer went away, and
of equals the first. While only such a consequence has been seen, the verdict waits `CONSEQUENCE_WAIT` for the cause;
then the rest is ended, and whether the job is launched again is decided when all have ended; where nobody failed by
itself even then, they could not reach one another, which is not the program's doing. Which causes are: `restarts.py`.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from orchestrator.domain.gang import separable_parts
from orchestrator.domain.gang.reasons import ReplicaFacts, adding, reason_of, sentence_of
from orchestrator.domain.gang.restarts import Again, AttemptEnd, Never, verdict
from orchestrator.domain.gang.roles import is_driven, leads, training
from orchestrator.domain.lifecycle import TERMINAL_REPLICA, final_status
from worker_agent.protocol.causes import Blame, row_of
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.states import Cause, JobStatus, Kind, ReplicaStatus, Role, Strategy

CONSEQUENCE_WAIT = timedelta(seconds=2)
# The model is saved when worker 0 has completed; the others have nothing left to do but to leave.
LINGER = timedelta(seconds=30)
# An evaluator still reads the last checkpoint when the training has ended; an evaluator that hangs shall not keep the
# devices for ever.
EVALUATION = timedelta(minutes=10)


@dataclass(frozen=True)
class GangFacts:
    """An attempt as it stands. `attempt` counts those of the job from 1; `cause` is the job's, when already set.

    `step` is the last that was reached, `first_step` the one of the checkpoint that it began with; `earlier` are the
    attempts before it, `max_restarts` how often the job is tried again after failures of its program.
    """

    strategy: Strategy
    status: JobStatus
    attempt: int
    cause: Cause | None
    reason: str
    replicas: tuple[ReplicaFacts, ...]
    kind: Kind = Kind.RECIPE
    step: int = 0
    first_step: int = 0
    earlier: tuple[AttemptEnd, ...] = ()
    max_restarts: int = 0

    @property
    def live(self) -> list[ReplicaFacts]:
        """The processes that have not ended."""
        return [replica for replica in self.replicas if replica.status not in TERMINAL_REPLICA]


@dataclass(frozen=True)
class Wait:
    """Nothing to do now."""


@dataclass(frozen=True)
class Running:
    """Every process is at work: the job is running."""


@dataclass(frozen=True)
class End:
    """End the processes that are left, because of `cause`; then launch again if `restart`: for sure only if `certain`,
    else what else is heard until then decides. With `stacks`, they say first where they stand."""

    cause: Cause
    reason: str
    restart: bool = False
    certain: bool = True
    stacks: bool = False


@dataclass(frozen=True)
class Finish:
    """Nothing of the attempt is left: the job ends of this."""

    cause: Cause
    reason: str

    @property
    def status(self) -> JobStatus:
        """The job's last one."""
        return final_status(self.cause)


@dataclass(frozen=True)
class Relaunch:
    """Nothing of the attempt is left: back into the queue for another launch, in `again.wait_s` seconds."""

    cause: Cause
    reason: str
    again: Again


@dataclass(frozen=True)
class Leave:
    """The gang saves a checkpoint and leaves, though nobody here has asked it to: the job is paused, and goes back into
    the queue. `asked` is whose node wants it so, if that is known."""

    asked: ReplicaFacts | None

    @property
    def reason(self) -> str:
        """A sentence."""
        if self.asked is None:
            return "Its gang got a SIGTERM from outside."
        asked = replace(self.asked, ending=self.asked.ending or Ending(cause=Cause.PREEMPTED), message="")
        return sentence_of(asked)


@dataclass(frozen=True)
class Replace:
    """The job goes on, and so do its other processes: each of `parts` is launched anew where it was."""

    parts: tuple[separable_parts.Part, ...]


Decision = Wait | Running | End | Finish | Relaunch | Leave | Replace


def decide(gang: GangFacts, *, now: datetime) -> Decision:
    """What the attempt needs now. Asking again after the answer was carried out leads to `Wait` in the end."""
    if gang.status is JobStatus.RESTARTING:
        return Wait() if gang.live else _torn_down(gang)
    if gang.status is JobStatus.STOPPING:
        return Wait() if gang.live else _finish_stopping(gang)
    if gang.status not in (JobStatus.LAUNCHING, JobStatus.RUNNING):
        return Wait()
    if gang.status is JobStatus.RUNNING and (leaving := _leaving(gang)):
        return _leaves(leaving, gang, now)
    counting = _counting(gang)
    root = root_cause(counting)
    if root is not None:
        return _failed(gang, root, counting, now)
    if gang.status is JobStatus.LAUNCHING:
        at_work = all(replica.status in (ReplicaStatus.RUNNING, ReplicaStatus.EXITED) for replica in gang.replicas)
        return Running() if at_work else Wait()
    if not gang.live:
        return Finish(Cause.COMPLETED, "")
    return End(Cause.COMPLETED, "") if _training_done(gang, now) else Wait()


def root_cause(replicas: tuple[ReplicaFacts, ...]) -> ReplicaFacts | None:
    """The replica whose ending explains the others', or None while none has failed."""
    return min((each for each in replicas if each.has_failed and not each.end.saved), key=_order, default=None)


def blame_in(replicas: tuple[ReplicaFacts, ...], root: ReplicaFacts) -> Blame:
    """Whose fault it was that a gang of these ended because `root` did. Who lost a peer that had run to its end lost it
    by the program's doing: it has given them unequal work."""
    has_left = any(each.cause is Cause.COMPLETED and each.role is not Role.EVALUATOR for each in replicas)
    return Blame.PROGRAM if has_left and root.end.lost_peer else root.end.blame


def end_of(root: ReplicaFacts, *, number: int, step: int, first_step: int) -> AttemptEnd:
    """The end of attempt `number`, or of a part of it, that failed of this process."""
    return AttemptEnd(number, root.end.cause, root.end.blame, step, first_step, root.end.digest)


def _leaving(gang: GangFacts) -> list[ReplicaFacts]:
    """Those who leave because of somebody outside: who has saved, or serves on for those that do. So does an evaluator
    whose agent was shut down: it holds nothing, and where it was it cannot come back."""
    leaving = [replica for replica in gang.replicas if replica.end.saved or replica.is_leaving]
    failed = [replica for replica in gang.replicas if replica.has_failed]
    is_evaluator = all(each.role is Role.EVALUATOR and each.cause is Cause.AGENT_SHUTDOWN for each in failed)
    return leaving or (failed if is_evaluator and gang.live else [])


def _leaves(leaving: list[ReplicaFacts], gang: GangFacts, now: datetime) -> Wait | Leave:
    """The others leave with them; who was asked may be told later."""
    asked = next((replica for replica in leaving if replica.cause is not Cause.PAUSED), None)
    first = min((replica.ended_at for replica in leaving if replica.ended_at), default=now)
    return Wait() if asked is None and gang.live and now - first < CONSEQUENCE_WAIT else Leave(asked)


def _counting(gang: GangFacts) -> tuple[ReplicaFacts, ...]:
    """Those whose failure matters: once the training is done, not of those who only served it."""
    if not _completed(gang):
        return gang.replicas
    return tuple(each for each in gang.replicas if each.role is Role.EVALUATOR or each in _awaited(gang))


def _failed(gang: GangFacts, root: ReplicaFacts, counting: tuple[ReplicaFacts, ...], now: datetime) -> Decision:
    first = min(replica.ended_at for replica in gang.replicas if replica.ended_at and replica.cause)
    unsure = bool(gang.live) and root.end.may_follow
    if unsure and now - first < CONSEQUENCE_WAIT:
        return Wait()
    if parts := _parts(gang, root, counting):
        return Replace(parts)
    cause, reason = root.end.cause, reason_of(root)
    if cause is Cause.STOPPED:
        return End(cause, reason)
    has_left = any(replica.cause is Cause.COMPLETED for replica in gang.replicas)
    if unsure and root.end.silent and not has_left:  # on one that is suspended, stands still, or is cut off
        silent = gang.live[0].who if len(gang.live) == 1 else "One process of the gang"
        reason = f"{silent} stopped answering, so {root.who} gave up."
        return End(Cause.HUNG, reason, restart=True, certain=False, stacks=True)
    outcome = _verdict(gang, root)
    if unsure or isinstance(outcome, Again):
        return End(cause, reason, restart=True, certain=not unsure)
    said = adding(reason, outcome.why)
    return End(cause, said) if gang.live else Finish(cause, said)


def _parts(gang: GangFacts, root: ReplicaFacts, counting: tuple[ReplicaFacts, ...]) -> tuple[separable_parts.Part, ...]:
    """What is launched anew while the rest goes on; none where that would not mend all that has failed.

    Who only lost a peer waits for the rest of its part to end, like the gang for the rest of the gang.
    """
    unmended = {replica for replica in counting if replica.has_failed}
    parts = []
    for members in separable_parts.separable(gang.strategy, gang.kind, counting):
        failed = root_cause(members)
        if failed is None:
            continue
        why = root if failed.end.may_follow else failed
        unsure = why.end.may_follow and any(each in gang.live for each in members)
        outcome = Again() if unsure else _verdict(gang, why)
        if not why.end.row.replaceable or not isinstance(outcome, Again):
            return ()
        if not all(separable_parts.may_return(member) for member in members):
            return ()
        unmended -= set(members)
        parts.append(separable_parts.Part(failed, why, members, outcome))
    return () if unmended or gang.status is not JobStatus.RUNNING else tuple(parts)


def _torn_down(gang: GangFacts) -> Relaunch | Finish:
    """All have ended; what has been heard meanwhile may have changed the verdict."""
    root = root_cause(gang.replicas)
    if root is None or root.cause is Cause.STOPPED:
        return Relaunch(gang.cause or Cause.STOPPED, gang.reason, Again())
    outcome, reason = _verdict(gang, root), reason_of(root)
    if root.cause is Cause.HUNG:
        reason = adding(gang.reason, f"{root.who}: {root.end.kernel_saw}" if root.end.kernel_saw else "")
    if isinstance(outcome, Again):
        return Relaunch(root.end.cause, reason, outcome)
    return Finish(root.end.cause, adding(reason, outcome.why))


def _verdict(gang: GangFacts, root: ReplicaFacts) -> Again | Never:
    present = end_of(root, number=gang.attempt, step=gang.step, first_step=gang.first_step)
    present = replace(present, blame=blame_in(gang.replicas, root))
    return verdict(present, gang.earlier, max_restarts=gang.max_restarts)


def _finish_stopping(gang: GangFacts) -> Finish:
    if gang.cause is Cause.STOPPED and gang.replicas and _completed(gang):
        return Finish(Cause.COMPLETED, "It had finished before the stop reached it.")
    if gang.cause is not None and row_of(gang.cause).is_final:
        return Finish(gang.cause, gang.reason)
    root = root_cause(gang.replicas)
    if root is None or root.cause in (Cause.STOPPED, gang.cause):
        return Finish(gang.cause or Cause.STOPPED, gang.reason)
    return Finish(root.end.cause, reason_of(root))


def _completed(gang: GangFacts) -> bool:
    """Whether the training itself came to its end, whatever happened to those who only served it."""
    return all(replica.cause is Cause.COMPLETED for replica in training(gang.replicas, gang.strategy))


def _training_done(gang: GangFacts, now: datetime) -> bool:
    """Whether those who are left have nothing left to do. The leader's end is the training's.

    Of a script, everybody who computes has to end: what a worker does after the first one has left is its own affair.
    Its parameter servers join for ever, and so do many evaluators.
    """
    is_script = gang.kind is Kind.SCRIPT
    awaited = _awaited(gang)
    ended = [replica.ended_at for replica in awaited if replica.cause is Cause.COMPLETED and replica.ended_at]
    if not ended or len(ended) < len(awaited):
        return False
    patience = timedelta(0) if is_script or is_driven(gang.replicas, gang.strategy) else LINGER
    if any(replica.role is Role.EVALUATOR for replica in gang.live):
        patience = LINGER if is_script else EVALUATION
    return now - max(ended) >= patience


def _awaited(gang: GangFacts) -> list[ReplicaFacts]:
    if gang.kind is Kind.SCRIPT:
        return training(gang.replicas, gang.strategy)
    return [replica for replica in gang.replicas if leads(replica, gang.replicas)]


def _order(replica: ReplicaFacts) -> tuple[bool, bool, bool, bool, float]:
    """Who is likelier to have failed by itself comes first, then who failed earlier."""
    ended = replica.ended_at.timestamp() if replica.ended_at else 0.0
    hung = replica.cause is Cause.HUNG
    return replica.cause is Cause.STOPPED, replica.end.may_follow, hung, not replica.is_culprit, ended
