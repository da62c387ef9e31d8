"""What a checkpoint holds of a training: its variables, in an order that every strategy keeps."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from worker_agent.protocol.checkpoint import Variable

PREFIX = "state"


@dataclass(frozen=True)
class Variables:
    """TensorFlow variables in a fixed order, whatever their names: distributed ones, too. `as_stored()` is entered
    while they are read or written: within it they have the values that every strategy stores alike. `device` names
    the one whose process reads and writes: left to itself, TensorFlow has every process use its own disk."""

    listed: Sequence[Any]
    as_stored: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    device: str | None = None

    @property
    def variables(self) -> list[Variable]:
        """Name, shape and type of each, for comparison."""
        return [
            Variable(name=name_of_variable(each), shape=list(each.shape), dtype=tf.as_dtype(each.dtype).name)
            for each in self.listed
        ]

    def write(self, prefix: str) -> None:
        """All values; `prefix` begins the paths of all files."""
        with self.as_stored():
            self._checkpoint().write(prefix, options=self._options())

    def read(self, prefix: str) -> None:
        """All values; raises when one is missing."""
        with self.as_stored():
            self._checkpoint().read(prefix, options=self._options()).assert_existing_objects_matched()

    def _checkpoint(self) -> Any:
        return tf.train.Checkpoint(**{name_of_place(place): each for place, each in enumerate(self.listed)})

    def _options(self) -> tf.train.CheckpointOptions:
        return tf.train.CheckpointOptions(experimental_io_device=self.device)


def load(checkpoint: Path, state: Variables) -> bool:
    """Read a checkpoint into `state`; False when it has been dropped meanwhile: then ask for the next one."""
    try:
        state.read(str(checkpoint / PREFIX))
    except (tf.errors.NotFoundError, tf.errors.DataLossError, tf.errors.OutOfRangeError):
        return False
    return True


def name_of_variable(variable: Any) -> str:
    """The variable's name, whether it is partitioned or not."""
    is_partitioned = isinstance(variable, tf.__internal__.distribute.ShardedVariable)
    name: str = (variable.variables[0] if is_partitioned else variable).name
    return name.replace("/part_0", "").removesuffix(":0")


def name_of_place(place: int) -> str:
    """The name of the variable number `place` in a checkpoint."""
    return f"v{place:05d}"
