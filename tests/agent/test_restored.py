"""A launch that an earlier agent took and did not begin: begun only when Redis says that it is still wanted."""

import threading
import time
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from tests.agent.plans import make_launch
from tests.waiting import wait_until
from worker_agent.daemon import replica_runner
from worker_agent.daemon.control_plane import NotFetched
from worker_agent.daemon.core import Event, ReplicaEnded, ReplicaKey
from worker_agent.daemon.journal import Journal
from worker_agent.daemon.replica_runner import ReplicaRunner
from worker_agent.daemon.zygotes import Zygotes
from worker_agent.protocol.commands import Launch, Stop
from worker_agent.protocol.records import Exit
from worker_agent.protocol.states import Cause
from worker_agent.replica.folder import find_exit, write_stop
from worker_agent.replica.verdict import StopRequest

LAUNCH = make_launch()
KEY = ReplicaKey(LAUNCH.replica_id, LAUNCH.attempt)
STOP = StopRequest(at=1.0, cause=Cause.STOPPED, reason="Enough.", grace_s=1)


class Node:
    """A runner whose Redis says what `answer` is, and knows of acknowledgements what `knows` says. That a launch is
    begun shows in its code, which is refused."""

    def __init__(self, folder: Path, *, answer: bool | None, knows: bool = True) -> None:
        self.answer, self.knows = answer, knows
        self.events: list[Event] = []
        self.asked = threading.Event()
        self.journal = Journal(folder, notify="")
        self.journal.record(LAUNCH)
        unused: Any = None
        code: Any = self
        self.runner = ReplicaRunner(
            self.journal,
            code,
            unused,
            Zygotes(folder, enabled=False),
            self.events.append,
            permitted=self._permitted,
            position_is_known=lambda key: key == KEY and self.knows,
        )

    def install(self, *_what: object, wait: Callable[[float], bool]) -> None:
        raise NotFetched("It was begun.")

    def restore(self) -> None:
        self.runner.spawn(LAUNCH, restored=True)

    def exit(self) -> Exit:
        wait_until(lambda: self.events == [ReplicaEnded(KEY)], within_s=10)
        found = find_exit(self.journal.spool(KEY))
        assert found is not None
        return found

    def _permitted(self, launch: Launch) -> bool | None:
        assert launch == LAUNCH
        self.asked.set()
        return self.answer


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_runner, "WATCH_S", 0.01)


def test_it_is_begun_while_it_is_permitted(tmp_path: Path) -> None:
    node = Node(tmp_path, answer=True)
    node.restore()
    assert (node.exit().cause, node.exit().message) == (Cause.LAUNCH_REFUSED, "It was begun.")


def test_it_is_refused_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    node = Node(tmp_path, answer=False)
    node.restore()
    assert node.exit().cause is Cause.NODE_LOST


@pytest.mark.parametrize(("said", "cause"), [(True, Cause.LAUNCH_REFUSED), (False, Cause.NODE_LOST)])
def test_it_waits_until_redis_has_said_so(said: bool, cause: Cause, tmp_path: Path) -> None:
    node = Node(tmp_path, answer=None)
    node.restore()
    assert node.asked.wait(10)
    time.sleep(0.1)
    assert node.events == []
    node.answer = said
    assert node.exit().cause is cause


def test_nothing_is_asked_before_it_is_known_how_far_its_streams_are_stored(tmp_path: Path) -> None:
    node = Node(tmp_path, answer=True, knows=False)
    node.restore()
    assert not node.asked.wait(0.1)
    node.knows = True
    assert node.exit().message == "It was begun."


@pytest.mark.parametrize("knows", [True, False])
def test_a_stop_ends_the_waiting_for_redis(knows: bool, tmp_path: Path) -> None:
    node = Node(tmp_path, answer=None, knows=knows)
    node.restore()
    assert node.asked.wait(10 if knows else 0.1) is knows
    node.runner.stop(Stop(command_id=1, replica_id=KEY.replica_id, attempt=KEY.attempt, reason=STOP.reason, grace_s=1))
    assert (node.exit().cause, node.exit().message) == (Cause.STOPPED, "Enough. It had not started yet.")


def test_a_full_disk_keeps_no_stop_from_ending_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_stop(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(replica_runner, "write_stop", write_stop)
    node = Node(tmp_path, answer=None)
    node.restore()
    assert node.asked.wait(10)
    node.runner.stop(Stop(command_id=1, replica_id=KEY.replica_id, attempt=KEY.attempt, reason=STOP.reason, grace_s=1))
    assert (node.exit().cause, node.exit().message) == (Cause.STOPPED, "Enough. It had not started yet.")


def test_one_that_an_earlier_agent_was_asked_to_end_asks_for_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, answer=None, knows=False)
    write_stop(node.journal.folder(KEY), STOP)
    node.restore()
    assert node.exit().cause is Cause.STOPPED
    assert not node.asked.is_set()
