"""Why a replica ended: one cause, one message, for every way to end."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.sentences import MUTE
from worker_agent.protocol.causes import Blame
from worker_agent.protocol.codec import encode
from worker_agent.protocol.ending import Ending, Sender
from worker_agent.protocol.records import Failure, Phase, Progress
from worker_agent.protocol.states import Cause, Kind
from worker_agent.replica.verdict import ExitStatus, LastWords, StopRequest, as_it_came_about, judge, last_words
from worker_agent.trainer.outcome import ExitCode

DONE = ExitStatus(0, None)
CODE_3 = ExitStatus(3, None)
KILLED = ExitStatus(None, 9)
TERMINATED = ExitStatus(None, 15)
STOP = StopRequest(at=100.0, cause=Cause.STOPPED, reason="Stopped by ada.", grace_s=10)
PAUSE = StopRequest(at=100.0, cause=Cause.PAUSED, reason="Paused by ada.", grace_s=120, save=True)
SAVED = ExitStatus(75, None)
CODE_143 = ExitStatus(143, None)
ENOUGH = StopRequest(at=102.0, cause=Cause.PAUSED, reason="The chief has saved.", grace_s=5)
SHUTDOWN = StopRequest(at=100.0, cause=Cause.AGENT_SHUTDOWN, reason="The agent was shut down.", grace_s=2)
SPOT = StopRequest(at=100.0, cause=Cause.PREEMPTED, reason="A SIGTERM from outside.", grace_s=25, save=True)
SPOT_SCRIPT = StopRequest(at=100.0, cause=Cause.PREEMPTED, reason="A SIGTERM from outside.", grace_s=25)
NAN = Failure(at=50.0, cause=Cause.LOSS_NOT_FINITE, message="The loss is NaN at step 4.")
LATE = Failure(at=101.0, cause=Cause.EXCEPTION, message="UnavailableError: Connection reset by peer")


def judged(status: ExitStatus, *, words: LastWords, stop: StopRequest | None, **seen: Any) -> tuple[Ending, str]:
    """The verdict, which is the same whatever the failure's sentence and the reason of the stop say."""
    found = judge(status, words=words, stop=stop, **seen)
    for sentence in MUTE:
        failure = words.failure and replace(words.failure, message=sentence, traceback=sentence)
        other = stop and replace(stop, reason=sentence)
        assert judge(status, words=replace(words, failure=failure), stop=other, **seen)[0] == found[0]
    return found


@pytest.mark.parametrize(
    ("status", "words", "stop", "memory", "cause", "message"),
    [
        (DONE, LastWords(), None, 0, Cause.COMPLETED, "It ran to its end."),
        (DONE, LastWords(phase="done"), STOP, 0, Cause.COMPLETED, "It ran to its end."),
        (DONE, LastWords(), STOP, 0, Cause.STOPPED, "Stopped by ada."),
        (CODE_3, LastWords(failure=NAN), None, 0, Cause.LOSS_NOT_FINITE, NAN.message),
        (CODE_3, LastWords(failure=NAN), STOP, 0, Cause.LOSS_NOT_FINITE, NAN.message),
        (CODE_3, LastWords(failure=LATE), STOP, 0, Cause.STOPPED, "Stopped by ada."),
        (TERMINATED, LastWords(), SHUTDOWN, 0, Cause.AGENT_SHUTDOWN, "The agent was shut down."),
        (KILLED, LastWords(), STOP, 0, Cause.SIGNAL, "The process was killed by signal 9 (SIGKILL)."),
        (KILLED, LastWords(), STOP, 2, Cause.OUT_OF_MEMORY, "ran out of memory"),
        (KILLED, LastWords(failure=NAN), STOP, 0, Cause.LOSS_NOT_FINITE, NAN.message),
        (CODE_3, LastWords(), None, 0, Cause.EXIT_CODE, "The process ended with exit code 3."),
        (KILLED, LastWords(), None, 0, Cause.SIGNAL, "was killed by signal 9 (SIGKILL)"),
        (KILLED, LastWords(), None, 2, Cause.OUT_OF_MEMORY, "ran out of memory"),
        (TERMINATED, LastWords(), None, 2, Cause.PREEMPTED, "A SIGTERM that Trainyard did not send ended it."),
        (TERMINATED, LastWords(), SPOT, 0, Cause.PREEMPTED, "It left without saving."),
        (TERMINATED, LastWords(), SPOT_SCRIPT, 0, Cause.PREEMPTED, "A SIGTERM from outside."),
        (SAVED, LastWords(phase="paused"), SPOT, 0, Cause.PREEMPTED, "It saved a checkpoint and left."),
        (SAVED, LastWords(phase="preempted"), None, 0, Cause.PREEMPTED, "It got a SIGTERM that Trainyard did not send"),
        (SAVED, LastWords(phase="preempted"), SPOT, 0, Cause.PREEMPTED, "saved a checkpoint and left."),
        (CODE_143, LastWords(leaving=Cause.PREEMPTED), ENOUGH, 0, Cause.PREEMPTED, "until its gang had saved."),
        (CODE_143, LastWords(leaving=Cause.AGENT_SHUTDOWN), ENOUGH, 0, Cause.AGENT_SHUTDOWN, "It continued to serve"),
        (TERMINATED, LastWords(leaving=Cause.PREEMPTED), SPOT, 0, Cause.PREEMPTED, "It left without saving."),
        (CODE_143, LastWords(leaving=Cause.PREEMPTED), STOP, 0, Cause.STOPPED, "Stopped by ada."),
        (CODE_3, LastWords(failure=LATE), SPOT, 0, Cause.PREEMPTED, "It left without saving."),
        (CODE_3, LastWords(failure=NAN), SPOT, 0, Cause.LOSS_NOT_FINITE, NAN.message),
        (ExitStatus(None, 63), LastWords(), None, 0, Cause.SIGNAL, "signal 63 (unknown signal)"),
        (SAVED, LastWords(phase="paused"), PAUSE, 0, Cause.PAUSED, "It saved a checkpoint and left."),
        (SAVED, LastWords(phase="paused"), None, 0, Cause.PAUSED, "It saved a checkpoint and left."),
        (SAVED, LastWords(), None, 0, Cause.EXIT_CODE, "ended with exit code 75"),
        (DONE, LastWords(phase="done"), PAUSE, 0, Cause.COMPLETED, "It ran to its end."),
        (CODE_3, LastWords(failure=LATE), PAUSE, 0, Cause.EXCEPTION, LATE.message),
        (KILLED, LastWords(), PAUSE, 0, Cause.SIGNAL, "The process was killed by signal 9 (SIGKILL)."),
        (TERMINATED, LastWords(), PAUSE, 0, Cause.PAUSED, "It left without saving."),
        (KILLED, LastWords(), PAUSE, 2, Cause.OUT_OF_MEMORY, "ran out of memory"),
    ],
)
def test_causes(
    status: ExitStatus, words: LastWords, stop: StopRequest | None, memory: int, cause: Cause, message: str
) -> None:
    ending, said = judged(status, words=words, stop=stop, killed=False, memory_kills=memory, last_lines=["boom"])
    assert (ending.cause, ending.code, ending.signal) == (cause, status.code, status.signal)
    assert message in said
    assert ending.saved == ("saved a checkpoint" in said)
    if message.startswith(("The process", "A SIGTERM that")):
        assert ending.last_lines == "boom"


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
    ending, said = judged(KILLED, words=words, stop=stop, killed=True, memory_kills=0, last_lines=["boom"])
    assert (ending.cause, ending.sender) == (cause, Sender.TRAINYARD)
    assert said.startswith(message)


def test_a_recipe_that_leaves_unasked_as_if_by_sigterm_was_ended_by_one() -> None:
    left = ExitStatus(ExitCode.STOPPED, None)
    assert as_it_came_about(left, stop=None, kind=Kind.RECIPE) == TERMINATED
    assert (
        as_it_came_about(left, stop=PAUSE, kind=Kind.RECIPE)
        == as_it_came_about(left, stop=SPOT, kind=Kind.RECIPE)
        == TERMINATED
    )
    assert as_it_came_about(left, stop=STOP, kind=Kind.RECIPE) == left
    assert as_it_came_about(left, stop=None, kind=Kind.SCRIPT) == left, "its own affair"
    assert as_it_came_about(CODE_3, stop=None, kind=Kind.RECIPE) == CODE_3


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
    assert last_words(records) == LastWords(failure=NAN, phase="saving")
    assert last_words(records[3:4]).phase == "done"
    assert last_words([encode(Phase(at=2, name="paused"))]) == LastWords(phase="paused")
    assert last_words([encode(Phase(at=2, name="preempted"))]) == LastWords(phase="preempted")
    leaving = [encode(Phase(at=2, name="leaving", detail=detail)) for detail in ("preempted", "nothing that we know")]
    assert last_words(leaving[:1]) == LastWords(phase="leaving", leaving=Cause.PREEMPTED)
    assert last_words(leaving) == LastWords(phase="leaving")


NATIVE = (
    "2026-11-21 20:01:12.345: E tsl/distributed_runtime/coordination/coordination_service_agent.cc:1] Coordination "
    "service agent is already in error state."
)
RAISED = "tensorflow.python.framework.errors_impl.UnavailableError: {{function_node}} Socket closed"


@pytest.mark.parametrize(
    ("status", "line", "lost_peer", "blame"),
    [
        (ExitStatus(None, 6), NATIVE, True, Blame.PEER),
        (ExitStatus(None, 6), RAISED, True, Blame.PEER),
        (ExitStatus(None, 6), "free(): invalid pointer", False, Blame.PROGRAM),
        (ExitStatus(None, 11), NATIVE, False, Blame.PROGRAM),
        (CODE_3, RAISED, True, Blame.PROGRAM),
        (CODE_3, "ValueError: unknown collective 'ring2', cancelled", False, Blame.PROGRAM),
        (CODE_3, "mylib.errors.UnavailableError: Socket closed", False, Blame.PROGRAM),
    ],
)
def test_of_a_process_that_said_nothing_tensorflows_own_words_tell_that_it_lost_a_peer(
    status: ExitStatus, line: str, lost_peer: bool, blame: Blame
) -> None:
    ending, _ = judge(status, words=LastWords(), stop=None, killed=False, memory_kills=0, last_lines=["a", line])
    assert (ending.lost_peer, ending.blame, ending.last_lines) == (lost_peer, blame, f"a\n{line}")


def test_what_the_training_process_knew_is_kept_and_how_it_ended_is_added() -> None:
    told = Ending(cause=Cause.EXCEPTION, lost_peer=True, exception="UnavailableError", file="recipe.py", line=3)
    failure = Failure(at=50.0, cause=Cause.EXCEPTION, message="A peer went away.", ending=told)
    ending, _ = judge(
        ExitStatus(1, None), words=LastWords(failure=failure), stop=None, killed=False, memory_kills=0, last_lines=[]
    )
    assert ending == msgspec.structs.replace(told, code=1)
