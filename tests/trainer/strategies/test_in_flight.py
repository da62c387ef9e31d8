"""The pump of parameter servers: bounded, in order, errors handed on."""

import threading

import pytest

from worker_agent.trainer.strategies.served.in_flight import Pump


class Remote:
    """A result that comes when it is let go."""

    def __init__(self, value: int, *, ready: bool = True) -> None:
        self._value = value
        self.ready = threading.Event()
        if ready:
            self.ready.set()

    def fetch(self) -> int:
        self.ready.wait(5)
        if self._value < 0:
            raise ValueError("lost")
        return self._value


def test_results_arrive_in_the_order_of_scheduling() -> None:
    remotes = [Remote(i, ready=i != 0) for i in range(4)]
    waiting = iter(remotes)
    got: list[int] = []
    pump = Pump(lambda steps: next(waiting), got.append, in_flight=8)
    for _ in remotes:
        pump.put(1)
    assert got == []
    remotes[0].ready.set()
    pump.drain()
    assert got == [0, 1, 2, 3]
    pump.close()


def test_no_more_than_the_bound_is_in_flight() -> None:
    remotes: list[Remote] = []

    def schedule(steps: int) -> Remote:
        remotes.append(Remote(steps, ready=False))
        return remotes[-1]

    pump = Pump(schedule, lambda result: None, in_flight=2)
    pump.put(1)
    pump.put(2)
    third = threading.Thread(target=pump.put, args=(3,))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    assert len(remotes) == 2
    remotes[0].ready.set()
    third.join(5)
    assert len(remotes) == 3
    for remote in remotes:
        remote.ready.set()
    pump.drain()
    pump.close()


def test_an_error_of_a_worker_reaches_whoever_waits() -> None:
    pump = Pump(lambda steps: Remote(-1), lambda result: None, in_flight=2)
    pump.put(1)
    with pytest.raises(ValueError, match="lost"):
        pump.drain()
    with pytest.raises(ValueError, match="lost"):
        pump.put(1)
