"""Calls of the coordinator of parameter servers to whichever worker is free: bounded in number, in order, and with
results that outlive the worker.

TensorFlow gives a call whose worker went away to another worker. But what a call that was done leaves lies on its
worker until it is fetched, and goes away with it: then the call is made once more. In both cases updates that the lost
worker had applied already are applied twice, which asynchronous training does not mind.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
# A worker that is back already, but knows nothing of the result.
_UNKNOWN_THERE = ("unable to find the relevant tensor remote_handle", "unknown device", "primary device is not remote")


class CallsUnderWay:
    """At most `limit` of them. `schedule`, given with each, makes the call and returns a `RemoteValue`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: deque[WorkerCall] = deque()

    def add(self, schedule: Callable[[], Any]) -> Iterator[Any]:
        """Make one more, then wait for results, in the order of the calls, until there is room for the next."""
        self._calls.append(WorkerCall(schedule))
        while len(self._calls) >= self._limit:
            yield self._calls.popleft().fetch()

    def rest(self) -> Iterator[Any]:
        """Wait for the results of all."""
        while self._calls:
            yield self._calls.popleft().fetch()

    def __len__(self) -> int:
        return len(self._calls)


class WorkerCall:
    """`schedule()` makes the call and returns a `RemoteValue`."""

    def __init__(self, schedule: Callable[[], Any]) -> None:
        self._schedule = schedule
        self._remote = schedule()

    def fetch(self) -> Any:
        """The result; raises what the call raised."""
        while True:
            try:
                return self._remote.fetch()
            except tf.errors.OpError as error:
                if not went_away(error):
                    raise
                self._remote = self._schedule()


def went_away(error: tf.errors.OpError) -> bool:
    """Whether a worker is gone, and no parameter server."""
    message = str(error).lower()
    if "/job:worker" not in message or "/job:ps" in message:
        return False
    is_unknown = isinstance(error, tf.errors.InvalidArgumentError) and any(words in message for words in _UNKNOWN_THERE)
    return isinstance(error, _GONE) or is_unknown
