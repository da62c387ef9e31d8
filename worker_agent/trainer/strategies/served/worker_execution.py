"""One call of the coordinator of parameter servers to whichever worker is free, whose result outlives that worker.

TensorFlow gives a call whose worker went away to another worker. But what a call that was done leaves lies on its
worker until it is fetched, and goes away with it: then the call is made once more. In both cases updates that the lost
worker had applied already are applied twice, which asynchronous training does not mind.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_GONE = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
# A worker that is back already, but knows nothing of the result.
_UNKNOWN_THERE = ("unable to find the relevant tensor remote_handle", "unknown device", "primary device is not remote")


class Execution:
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
    said = str(error).lower()
    if "/job:worker" not in said or "/job:ps" in said:
        return False
    is_unknown = isinstance(error, tf.errors.InvalidArgumentError) and any(words in said for words in _UNKNOWN_THERE)
    return isinstance(error, _GONE) or is_unknown
