"""The gang's own meeting, over real sockets and without TensorFlow."""

import socket
import threading
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from tests.trainer.gang import free_ports
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.states import Cause, Strategy
from worker_agent.trainer.outcome import Stopped, TrainingFailed
from worker_agent.trainer.setup import rendezvous
from worker_agent.trainer.training_run import Member, TrainingRun


class NoStop:
    """A stop that never comes, or has come."""

    def __init__(self, *, asked: bool = False) -> None:
        self._asked = asked

    def check(self) -> None:
        if self._asked:
            raise Stopped


@pytest.fixture
def runs() -> list[TrainingRun]:
    """Three workers of one gang."""
    gang = tuple(Member(role="worker", index=i, host="127.0.0.1", port=port) for i, port in enumerate(free_ports(3)))
    base = TrainingRun(
        entry=Path("r.py"),
        code=Path(),
        spec=JobSpec(
            name="-", cluster="-", code=CodeRef(sha256="", entry="r.py"), strategy=Strategy.MULTI_WORKER_MIRRORED
        ),
        gang=gang,
        rendezvous_key="1/1",
        rendezvous_timeout_s=5.0,
    )
    return [replace(base, index=i) for i in range(3)]


def soon() -> float:
    return monotonic() + 5


def joining(run: TrainingRun) -> tuple[threading.Thread, list[Exception]]:
    """`join` in a thread, and what it raised."""
    raised: list[Exception] = []

    def run_it() -> None:
        try:
            rendezvous.join(run, run.gang[0], deadline=monotonic() + run.rendezvous_timeout_s, stop=NoStop())
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run_it)
    thread.start()
    return thread, raised


def test_everybody_meets_and_the_port_is_free_for_tensorflow(runs: list[TrainingRun]) -> None:
    meeting = rendezvous.Meeting(runs[0])
    threads = [joining(run) for run in runs[1:]]
    meeting.gather(deadline=soon(), stop=NoStop())
    with rendezvous.listen(runs[0].me):  # what TensorFlow does next; the others wait for it
        for thread, raised in threads:
            thread.join(5)
            assert not thread.is_alive()
            assert raised == []


def test_probes_and_strangers_do_not_count(runs: list[TrainingRun]) -> None:
    meeting = rendezvous.Meeting(runs[0])
    socket.create_connection(("127.0.0.1", runs[0].me.port)).close()
    stranger, _ = joining(replace(runs[1], rendezvous_key="2/1", rendezvous_timeout_s=0.5))
    with pytest.raises(TrainingFailed) as told:
        meeting.gather(deadline=monotonic() + 0.5, stop=NoStop())
    assert told.value.cause is Cause.RENDEZVOUS_TIMEOUT
    assert "worker:1 (127.0.0.1:" in told.value.message
    assert "worker:2 (127.0.0.1:" in told.value.message
    with rendezvous.listen(runs[0].me):
        stranger.join(6)


def test_a_guest_that_leaves_again_has_not_come(runs: list[TrainingRun]) -> None:
    meeting = rendezvous.Meeting(runs[0])
    with socket.create_connection(("127.0.0.1", runs[0].me.port)) as guest:
        guest.sendall(b'{"key": "1/1", "name": "worker:1"}\n')
    with pytest.raises(TrainingFailed, match="worker:1") as told:
        meeting.gather(deadline=monotonic() + 0.3, stop=NoStop())
    assert "worker:2" in told.value.message


def test_worker_0_that_never_comes_is_named(runs: list[TrainingRun]) -> None:
    with pytest.raises(TrainingFailed, match="worker:0") as told:
        rendezvous.join(runs[2], runs[0].me, deadline=monotonic() + 0.2, stop=NoStop())
    assert told.value.cause is Cause.RENDEZVOUS_TIMEOUT


def test_who_waits_with_worker_0_names_who_is_missing_too(runs: list[TrainingRun]) -> None:
    """Its own time may be over first."""
    meeting = rendezvous.Meeting(runs[0])
    waiting, raised = joining(replace(runs[1], rendezvous_timeout_s=0.5))
    with pytest.raises(TrainingFailed, match=r"worker:2 \(127.0.0.1:\d+\) did not come"):
        meeting.gather(deadline=monotonic() + 2, stop=NoStop())
    waiting.join(5)
    (told,) = raised
    assert str(told).startswith("The gang did not meet: worker:2 (127.0.0.1:")
    assert "worker:0" not in str(told)


def test_only_the_missing_ones_are_named(runs: list[TrainingRun]) -> None:
    with rendezvous.listen(runs[1].me), pytest.raises(TrainingFailed) as told:
        rendezvous.wait_for_ports(runs[0], runs[0].others, deadline=monotonic() + 0.2, stop=NoStop())
    assert "worker:2" in told.value.message
    assert "worker:1" not in told.value.message


def test_a_stop_ends_every_wait(runs: list[TrainingRun]) -> None:
    asked = NoStop(asked=True)
    with pytest.raises(Stopped):
        rendezvous.Meeting(runs[0]).gather(deadline=soon(), stop=asked)
    with pytest.raises(Stopped):
        rendezvous.join(runs[1], runs[0].me, deadline=soon(), stop=asked)
    with pytest.raises(Stopped):
        rendezvous.wait_for_ports(runs[0], runs[0].others, deadline=soon(), stop=asked)


def test_a_taken_port_is_told(runs: list[TrainingRun]) -> None:
    with (
        socket.create_server(("127.0.0.1", runs[0].me.port)),
        pytest.raises(TrainingFailed, match="meant for worker:0, is taken") as told,
    ):
        rendezvous.check_port(runs[0].me)
    assert told.value.cause is Cause.PORT_TAKEN
    rendezvous.check_port(runs[0].me)
