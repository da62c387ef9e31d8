"""Why a replica ended: one cause, one message, for every way to end."""

import pytest

from worker_agent.protocol.codec import encode
from worker_agent.protocol.records import Failure, Phase, Progress
from worker_agent.protocol.states import Cause
from worker_agent.verdict import Ending, LastWords, StopRequest, judge, last_words

DONE = Ending(code=0, signal=None)
CODE_3 = Ending(code=3, signal=None)
KILLED = Ending(code=None, signal=9)
TERMINATED = Ending(code=None, signal=15)
STOP = StopRequest(at=100.0, cause=Cause.STOPPED, reason="Stopped by ada.", grace_s=10)
PAUSE = StopRequest(at=100.0, cause=Cause.PAUSED, reason="Paused by ada.", grace_s=120, save=True)
SAVED = Ending(code=75, signal=None)
SHUTDOWN = StopRequest(at=100.0, cause=Cause.AGENT_SHUTDOWN, reason="The agent was shut down.", grace_s=2)
NAN = Failure(at=50.0, cause=Cause.LOSS_NOT_FINITE, message="The loss is NaN at step 4.")
LATE = Failure(at=101.0, cause=Cause.EXCEPTION, message="UnavailableError: Connection reset by peer")


@pytest.mark.parametrize(
    ("ending", "words", "stop", "memory", "cause", "message"),
    [
        (DONE, LastWords(), None, False, Cause.COMPLETED, "It ran to its end."),
        (DONE, LastWords(done=True), STOP, False, Cause.COMPLETED, "It ran to its end."),
        (DONE, LastWords(), STOP, False, Cause.STOPPED, "Stopped by ada."),
        (CODE_3, LastWords(failure=NAN), None, False, Cause.LOSS_NOT_FINITE, NAN.message),
        (CODE_3, LastWords(failure=NAN), STOP, False, Cause.LOSS_NOT_FINITE, NAN.message),
        (CODE_3, LastWords(failure=LATE), STOP, False, Cause.STOPPED, "Stopped by ada."),
        (TERMINATED, LastWords(), SHUTDOWN, False, Cause.AGENT_SHUTDOWN, "The agent was shut down."),
        (KILLED, LastWords(), STOP, False, Cause.STOPPED, "had not ended 10 s after SIGTERM and was killed"),
        (CODE_3, LastWords(), None, False, Cause.EXIT_CODE, "ended with exit code 3. The last lines it wrote:\nboom"),
        (KILLED, LastWords(), None, False, Cause.SIGNAL, "was killed by signal 9 (SIGKILL)"),
        (KILLED, LastWords(), None, True, Cause.OUT_OF_MEMORY, "ran out of memory"),
        (TERMINATED, LastWords(), None, True, Cause.SIGNAL, "signal 15 (SIGTERM)"),
        (Ending(code=None, signal=63), LastWords(), None, False, Cause.SIGNAL, "signal 63 (unknown)"),
        (SAVED, LastWords(paused=True), PAUSE, False, Cause.PAUSED, "It saved a checkpoint and left."),
        (SAVED, LastWords(paused=True), None, False, Cause.PAUSED, "It saved a checkpoint and left."),
        (SAVED, LastWords(), None, False, Cause.EXIT_CODE, "ended with exit code 75"),
        (DONE, LastWords(done=True), PAUSE, False, Cause.COMPLETED, "It ran to its end."),
        (CODE_3, LastWords(failure=LATE), PAUSE, False, Cause.EXCEPTION, LATE.message),
        (
            KILLED,
            LastWords(),
            PAUSE,
            False,
            Cause.SIGNAL,
            "It had not saved 120 s after it was asked to, and was killed",
        ),
        (KILLED, LastWords(), PAUSE, True, Cause.OUT_OF_MEMORY, "ran out of memory"),
    ],
)
def test_causes(
    ending: Ending, words: LastWords, stop: StopRequest | None, memory: bool, cause: Cause, message: str
) -> None:
    found = judge(ending, words=words, stop=stop, killed_for_memory=memory, last_lines=["boom"])
    assert found[0] is cause
    assert message in found[1]


def test_a_request_to_save_gives_way_to_one_that_does_not_wait_for_it() -> None:
    assert PAUSE.yields_to(STOP)
    assert PAUSE.yields_to(SHUTDOWN)
    assert not PAUSE.yields_to(PAUSE)
    assert not STOP.yields_to(PAUSE)
    assert not STOP.yields_to(SHUTDOWN)


def test_last_words_are_the_latest_and_survive_garbage() -> None:
    records = [
        encode(Failure(at=1, cause=Cause.EXCEPTION, message="first")),
        b"\xc1garbage",
        encode(NAN),
        encode(Phase(at=2, name="done")),
        encode(Phase(at=3, name="saving")),
        encode(Progress(at=4, step=1, total_steps=2, epoch=1, epochs=1)),
    ]
    assert last_words(records) == LastWords(failure=NAN, done=False)
    assert last_words(records[3:4]).done
    assert last_words([encode(Phase(at=2, name="paused"))]) == LastWords(paused=True)
