"""Work in flight between a coordinator and its workers: bounded, and fetched in order by a thread of its own, so that
the training never waits for one particular result."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Pump:
    """`schedule(k)` begins an execution of `k` steps somewhere and returns something with `fetch()`.

    `deliver(result)` is called in the pump's thread, in the order of scheduling; results that are several values come
    as a tuple. The first error of either ends the pump and is raised by the next `put` or by `drain`.
    """

    def __init__(self, schedule: Callable[[int], Any], deliver: Callable[[Any], None], *, in_flight: int) -> None:
        self._schedule = schedule
        self._deliver = deliver
        self._in_flight = in_flight
        self._waiting: deque[Any] = deque()
        self._changed = threading.Condition()
        self._count = 0
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._fetch_in_order, name="pump", daemon=True)
        self._thread.start()

    def put(self, steps: int) -> None:
        """Begin `steps` steps as soon as there is room."""
        with self._changed:
            self._changed.wait_for(lambda: self._count < self._in_flight or self._error)
            self._raise_error()
            self._count += 1
        remote = self._schedule(steps)
        with self._changed:
            self._waiting.append(remote)
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until everything scheduled has been delivered."""
        with self._changed:
            self._changed.wait_for(lambda: self._count == 0 or self._error)
            self._raise_error()

    def close(self) -> None:
        """Let the thread end; call it after `drain`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _fetch_in_order(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                remote = self._waiting.popleft()
            try:
                self._deliver(remote.fetch())
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._count -= 1
                self._changed.notify_all()
