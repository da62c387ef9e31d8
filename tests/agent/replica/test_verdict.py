"""Why a replica ended: one cause, one message, for every way to end."""

import pytest

from worker_agent.protocol.codec import encode
from worker_agent.protocol.records import Failure, Phase, Progress
from worker_agent.protocol.states import Cause, Kind
from worker_agent.replica.verdict import Ending, LastWords, StopRequest, judge, last_words, taken
from worker_agent.trainer.outcome import ExitCode

DONE = Ending(code=0, signal=None)
CODE_3 = Ending(code=3, signal=None)
KILLED = Ending(code=None, signal=9)
TERMINATED = Ending(code=None, signal=15)
STOP = StopRequest(at=100.0, cause=Cause.STOPPED, reason="Stopped by ada.", grace_s=10)
PAUSE = StopRequest(at=100.0, cause=Cause.PAUSED, reason="Paused by ada.", grace_s=120, save=True)
SAVED = Ending(code=75, signal=None)
CODE_143 = Ending(code=143, signal=None)
ENOUGH = StopRequest(at=102.0, cause=Cause.PAUSED, reason="The chief has saved.", grace_s=5)
SHUTDOWN = StopRequest(at=100.0, cause=Cause.AGENT_SHUTDOWN, reason="The agent was shut down.", grace_s=2)
SPOT = StopRequest(at=100.0, cause=Cause.PREEMPTED, reason="A SIGTERM from outside.", grace_s=25, save=True)
SPOT_SCRIPT = StopRequest(at=100.0, cause=Cause.PREEMPTED, reason="A SIGTERM from outside.", grace_s=25)
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
        (
            KILLED,
            LastWords(),
            STOP,
            False,
            Cause.SIGNAL,
            "The process was killed by signal 9 (SIGKILL). The last lines",
        ),
        (KILLED, LastWords(), STOP, True, Cause.OUT_OF_MEMORY, "ran out of memory"),
        (KILLED, LastWords(failure=NAN), STOP, False, Cause.LOSS_NOT_FINITE, NAN.message),
        (CODE_3, LastWords(), None, False, Cause.EXIT_CODE, "ended with exit code 3. The last lines it wrote:\nboom"),
        (KILLED, LastWords(), None, False, Cause.SIGNAL, "was killed by signal 9 (SIGKILL)"),
        (KILLED, LastWords(), None, True, Cause.OUT_OF_MEMORY, "ran out of memory"),
        (TERMINATED, LastWords(), None, True, Cause.PREEMPTED, "A SIGTERM that Trainyard did not send ended it."),
        (TERMINATED, LastWords(), SPOT, False, Cause.PREEMPTED, "It left without saving."),
        (TERMINATED, LastWords(), SPOT_SCRIPT, False, Cause.PREEMPTED, "A SIGTERM from outside."),
        (SAVED, LastWords(paused=True), SPOT, False, Cause.PREEMPTED, "It saved a checkpoint and left."),
        (
            SAVED,
            LastWords(preempted=True),
            None,
            False,
            Cause.PREEMPTED,
            "It got a SIGTERM that Trainyard did not send",
        ),
        (SAVED, LastWords(preempted=True), SPOT, False, Cause.PREEMPTED, "saved a checkpoint and left."),
        (CODE_143, LastWords(leaving=Cause.PREEMPTED), ENOUGH, False, Cause.PREEMPTED, "until its gang had saved."),
        (CODE_143, LastWords(leaving=Cause.AGENT_SHUTDOWN), ENOUGH, False, Cause.AGENT_SHUTDOWN, "It served on until"),
        (TERMINATED, LastWords(leaving=Cause.PREEMPTED), SPOT, False, Cause.PREEMPTED, "It left without saving."),
        (CODE_143, LastWords(leaving=Cause.PREEMPTED), STOP, False, Cause.STOPPED, "Stopped by ada."),
        (CODE_3, LastWords(failure=LATE), SPOT, False, Cause.PREEMPTED, "It left without saving."),
        (CODE_3, LastWords(failure=NAN), SPOT, False, Cause.LOSS_NOT_FINITE, NAN.message),
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
            "The process was killed by signal 9 (SIGKILL). The last lines",
        ),
        (TERMINATED, LastWords(), PAUSE, False, Cause.PAUSED, "It left without saving."),
        (KILLED, LastWords(), PAUSE, True, Cause.OUT_OF_MEMORY, "ran out of memory"),
    ],
)
def test_causes(
    ending: Ending, words: LastWords, stop: StopRequest | None, memory: bool, cause: Cause, message: str
) -> None:
    found = judge(ending, words=words, stop=stop, killed=False, killed_for_memory=memory, last_lines=["boom"])
    assert found[0] is cause
    assert message in found[1]


@pytest.mark.parametrize(
    ("words", "stop", "cause", "message"),
    [
        (LastWords(), STOP, Cause.STOPPED, "Stopped by ada. It had not ended 10 s after SIGTERM, so it was killed."),
        (LastWords(failure=LATE), STOP, Cause.STOPPED, "Stopped by ada. It had not ended 10 s after SIGTERM, so it"),
        (LastWords(), PAUSE, Cause.PAUSED, "It had not saved and left 120 s after it was asked to, so it was killed"),
        (LastWords(failure=LATE), PAUSE, Cause.EXCEPTION, LATE.message),
    ],
)
def test_the_shims_own_sigkill_is_told_from_any_other(
    words: LastWords, stop: StopRequest, cause: Cause, message: str
) -> None:
    found = judge(KILLED, words=words, stop=stop, killed=True, killed_for_memory=False, last_lines=["boom"])
    assert found[0] is cause
    assert found[1].startswith(message)


def test_a_recipe_that_leaves_unasked_as_if_by_sigterm_was_ended_by_one() -> None:
    left = Ending(code=ExitCode.STOPPED, signal=None)
    assert taken(left, stop=None, kind=Kind.RECIPE) == TERMINATED
    assert taken(left, stop=PAUSE, kind=Kind.RECIPE) == taken(left, stop=SPOT, kind=Kind.RECIPE) == TERMINATED
    assert taken(left, stop=STOP, kind=Kind.RECIPE) == left
    assert taken(left, stop=None, kind=Kind.SCRIPT) == left, "its own affair"
    assert taken(CODE_3, stop=None, kind=Kind.RECIPE) == CODE_3


def test_a_request_to_save_gives_way_to_one_that_does_not_wait_for_it() -> None:
    assert PAUSE.yields_to(STOP)
    assert PAUSE.yields_to(SHUTDOWN)
    assert not PAUSE.yields_to(PAUSE)
    assert PAUSE.yields_to(SPOT), "it gives less time"
    assert not SPOT.yields_to(PAUSE)
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
    assert last_words([encode(Phase(at=2, name="preempted"))]) == LastWords(preempted=True)
    leaving = [encode(Phase(at=2, name="leaving", detail=detail)) for detail in ("preempted", "nothing that we know")]
    assert last_words(leaving[:1]) == LastWords(leaving=Cause.PREEMPTED)
    assert last_words(leaving) == LastWords()
