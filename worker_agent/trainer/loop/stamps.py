"""Moments inside the graph of a training step: `tf.timestamp`, held in place by control dependencies."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def moment(things: Any, *, device_number: tf.Tensor | None = None) -> tf.Tensor:
    """The time when all of them are there (s, float64).

    A GPU counts an operation as done once it is queued. So `device_number`, one that it has computed, is doubled behind
    all of them, and has to reach the host.
    """
    tensors = [each for each in tf.nest.flatten(things, expand_composites=True) if each is not None]
    if device_number is not None and tf.config.list_logical_devices("GPU"):
        with tf.control_dependencies(tensors):
            doubled = device_number + device_number
        with tf.device("/device:CPU:0"):
            tensors = [tf.identity(doubled)]
    with tf.device("/device:CPU:0"), tf.control_dependencies(tensors):
        return tf.timestamp()


class ReplicaStamps:
    """The moments of one step in one of `replicas`: its batch was there, its gradients were, their sum was. Nothing is
    added to the graph where `since`, the end of the reduction before (s), is None."""

    def __init__(self, since: tf.Tensor | None, *, replicas: int) -> None:
        self._since = since
        self._replicas = replicas
        self._place = tf.distribute.get_replica_context().replica_id_in_sync_group
        self._taken: list[tf.Tensor] = []

    def take(self, things: Any, *, device_number: tf.Tensor | None = None) -> None:
        """All of them are there."""
        if self._since is not None:
            self._taken.append(moment(things, device_number=device_number))

    def own(self) -> list[tf.Tensor]:
        """What this replica took by itself until the last moment, in its place among all: to be summed over them."""
        if self._since is None:
            return []
        return [tf.one_hot(self._place, self._replicas) * tf.cast(self._taken[-1] - self._since, tf.float32)]

    def told(self, owns: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Its place with the moments (float64), and what each replica took by itself: the sum of their `own`."""
        if self._since is None:
            return ()
        return tf.stack([tf.cast(self._place, tf.float64), *self._taken]), tf.cast(owns, tf.float64)


def row_of(began: tf.Tensor, replicas: Sequence[tuple[tf.Tensor, ...]]) -> tf.Tensor:
    """A step's stamps as `Moments.of` reads them; `replicas` are what those of this process `told`."""
    return tf.concat([[began], *(moments for moments, _ in replicas), replicas[0][1]], 0)
