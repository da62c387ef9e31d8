"""The learning rate of a run: given, scaled, and warmed up by the step. For Keras 3 and tf_keras optimizers alike."""

from typing import Any

import tensorflow as tf

from worker_agent.trainer.outcome import TrainingFailed


class Rate:
    """Sets the optimizer's rate at the start and, during the first `warmup_steps`, before every step.

    A recipe whose optimizer follows a schedule keeps it: such a schedule can be neither replaced nor warmed up here.
    """

    def __init__(self, optimizer: Any, *, given: float | None, factor: float, warmup_steps: int) -> None:
        self._optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        self._warmup_steps = warmup_steps
        if is_schedule(self._optimizer):
            if given is not None or factor != 1 or warmup_steps:
                raise TrainingFailed(
                    "The recipe's optimizer follows a learning rate schedule of its own: "
                    "leave learning rate, scaling and warm-up empty."
                )
            return
        self._target = (self.now if given is None else given) * factor
        self._optimizer.learning_rate.assign(self._target)

    @property
    def now(self) -> float:
        """The rate the next step takes."""
        if is_schedule(self._optimizer):
            schedule = getattr(self._optimizer, "_learning_rate")  # noqa: B009
            if callable(schedule):
                return float(schedule(tf.cast(self._optimizer.iterations, tf.int64)))
        return float(self._optimizer.learning_rate.numpy())

    def before_step(self, step: tf.Tensor) -> None:
        """In the graph, across replicas: the ramp while it lasts; afterwards callbacks may set what they like."""
        if not self._warmup_steps:
            return
        rate = self._optimizer.learning_rate
        ramp = self._target * tf.cast(step + 1, tf.float32) / self._warmup_steps
        rate.assign(tf.where(step < self._warmup_steps, ramp, tf.convert_to_tensor(rate)))


def is_schedule(optimizer: Any) -> bool:
    """True for an optimizer whose rate is computed from the step."""
    return not hasattr(getattr(optimizer, "_learning_rate", None), "assign")
