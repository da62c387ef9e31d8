"""What nodes say of an end, on its way through ingest: the data decides what becomes of the job, the words do not."""

from collections.abc import Callable

import msgspec
import pytest

from orchestrator.models import Job
from tests.data.fakes import NOW_S, FakeAgent, FakeRedis
from tests.factories import make_job, make_replica
from tests.sentences import MUTE
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.records import Exit
from worker_agent.protocol.states import Cause, JobStatus

PEER = "A peer went away: UnavailableError: Socket closed"
LOST = Ending(cause=Cause.EXCEPTION, code=1, lost_peer=True, exception="UnavailableError")
RAISED = Ending(cause=Cause.EXCEPTION, code=1, exception="ValueError")
KILLED = Ending(cause=Cause.SIGNAL, signal=9)
CRASHED = Ending(cause=Cause.SIGNAL, signal=11, last_lines="Coordination service agent is already in error state.")
ABORTED = Ending(cause=Cause.SIGNAL, signal=6, lost_peer=True, last_lines="Coordination service has stopped.")
LEFT = Ending(cause=Cause.EXIT_CODE, code=3, lost_peer=True, last_lines="caught: Socket closed")
STOPPED = Ending(cause=Cause.STOPPED, signal=15)
HUNG = Ending(cause=Cause.HUNG, signal=9, kernel_saw="the process was suspended by a signal (state T).")
Said = tuple[Ending | None, str]


@pytest.fixture
def outcome(redis: FakeRedis, step: Callable[[], int]) -> Callable[..., tuple[object, ...]]:
    """What becomes of a running job whose processes say so of their ends, one after the other."""

    def of(*ends: Said, before: tuple[Cause, int | None, int | None] | None = None) -> tuple[object, ...]:
        job = make_job(status=JobStatus.RUNNING)
        job.attempts.update(number=1)
        Job.objects.filter(pk=job.pk).update(attempt=1)
        job.refresh_from_db()
        for index, (ending, message) in enumerate(ends):
            agent = FakeAgent(redis, make_replica(job, index=index), stream="shim")
            cause, code, signal = before or (ending.cause, ending.code, ending.signal)  # type: ignore[union-attr]
            agent.say(Exit(at=NOW_S, code=code, signal=signal, cause=cause, message=message, final={}, ending=ending))
            agent.send()
        step()
        job.refresh_from_db()
        attempt = job.attempts.get(number=1)
        kinds = tuple(sorted(job.events.values_list("kind", flat=True)))
        return job.status, attempt.cause, attempt.blame, attempt.failed_on is None, kinds

    return of


@pytest.mark.parametrize(
    ("ends", "status", "blame"),
    [
        ([(LOST, PEER), (KILLED, "It was killed.")], JobStatus.SUBMITTED, Blame.MACHINE),
        ([(LOST, PEER), (LOST, PEER)], JobStatus.SUBMITTED, Blame.PEER),
        ([(ABORTED, "It was killed by signal 6."), (LOST, PEER)], JobStatus.SUBMITTED, Blame.PEER),
        ([(RAISED, "ValueError: unknown collective 'ring2'"), (STOPPED, "")], JobStatus.FAILED, Blame.PROGRAM),
        ([(RAISED, "ValueError: the order was cancelled"), (LOST, PEER)], JobStatus.FAILED, Blame.PROGRAM),
        ([(CRASHED, "It was killed by signal 11."), (STOPPED, "")], JobStatus.FAILED, Blame.PROGRAM),
        ([(LEFT, "It ended with exit code 3."), (STOPPED, "")], JobStatus.FAILED, Blame.PROGRAM),
        ([(HUNG, "No step for 300 s."), (LOST, PEER)], JobStatus.SUBMITTED, Blame.MACHINE),
    ],
)
@pytest.mark.django_db
def test_words_change_nothing(
    outcome: Callable[..., tuple[object, ...]], ends: list[tuple[Ending, str]], status: JobStatus, blame: Blame
) -> None:
    told = outcome(*ends)
    assert (told[0], told[2]) == (status, blame)
    for sentence in MUTE:
        words = {"last_lines": sentence, "kernel_saw": sentence, "remedy": sentence}
        assert outcome(*((msgspec.structs.replace(ending, **words), sentence) for ending, _ in ends)) == told


@pytest.mark.parametrize(
    ("cause", "code", "signal", "message", "blame"),
    [
        (Cause.EXCEPTION, 1, None, PEER, Blame.PEER),
        (Cause.SIGNAL, None, 6, "It was killed. The last lines it wrote:\nCoordination service agent", Blame.PEER),
        (Cause.EXCEPTION, 1, None, "ValueError: the order was cancelled", Blame.PROGRAM),
    ],
)
@pytest.mark.django_db
def test_a_process_of_the_version_before_told_it_in_its_message(
    outcome: Callable[..., tuple[object, ...]],
    cause: Cause,
    code: int | None,
    signal: int | None,
    message: str,
    blame: Blame,
) -> None:
    assert outcome((None, message), before=(cause, code, signal))[2] == blame
