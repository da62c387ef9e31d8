"""The learning rate of a run: given, scaled, and warmed up by the step. For Keras 3 and tf_keras optimizers alike."""

import math
from typing import Any

import tensorflow as tf

from worker_agent.protocol.job.choices import LrScaling
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.training_run import TrainingRun


def rate_of(run: TrainingRun, optimizer: Any, size: Size, *, replicas: int) -> "Rate":
    """As the job asks for it: scaled to `replicas` in sync, warmed up over so many of its epochs."""
    spec = run.spec
    return Rate(
        optimizer,
        base=spec.learning_rate,
        target=run.scaled_rate,
        factor={LrScaling.LINEAR: replicas, LrScaling.SQRT: math.sqrt(replicas)}.get(spec.lr_scaling, 1),
        warmup_steps=round(spec.warmup_epochs * size.steps_per_epoch),
    )


class Rate:
    """Sets the optimizer's rate at the start and, during the first `warmup_steps`, before every step.

    `base` is the unscaled rate (None: the recipe's own), `target` the one to train with (None: base × `factor`). A
    warm-up climbs from the one to the other in equal steps, up to `aim`. A recipe whose optimizer follows a schedule
    keeps it: such a schedule can be neither replaced nor scaled here, and `aim` is None.
    """

    def __init__(
        self, optimizer: Any, *, base: float | None, target: float | None, factor: float, warmup_steps: int
    ) -> None:
        self._optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        self._warmup_steps = warmup_steps
        self.aim: float | None = None
        if is_schedule(self._optimizer):
            if base is not None or target is not None or factor != 1 or warmup_steps:
                raise TrainingFailed(
                    "The recipe's optimizer follows a learning rate schedule of its own",
                    remedy="leave learning rate, scaling and warm-up empty",
                )
            return
        self._base = self.now if base is None else base
        self.aim = self._base * factor if target is None else target
        self.take()

    def take(self) -> None:
        """Set the rate aimed at, whatever it is now."""
        if self.aim is not None:
            self._optimizer.learning_rate.assign(self.aim)

    @property
    def now(self) -> float:
        """The rate the next step takes."""
        schedule = getattr(self._optimizer, "_learning_rate", None)
        if is_schedule(self._optimizer) and callable(schedule):
            return float(schedule(tf.cast(self._optimizer.iterations, tf.int64)))
        return float(self._optimizer.learning_rate.numpy())

    def before_step(self, step: tf.Tensor) -> None:
        """In the graph, across replicas: the ramp while it lasts; afterwards callbacks may set what they like."""
        if not self._warmup_steps or self.aim is None:
            return
        rate = self._optimizer.learning_rate
        ramp = self._base + (self.aim - self._base) * tf.cast(step + 1, tf.float32) / self._warmup_steps
        rate.assign(tf.where(step < self._warmup_steps, tf.cast(ramp, rate.dtype), tf.convert_to_tensor(rate)))


def is_schedule(optimizer: Any) -> bool:
    """True for an optimizer whose rate is computed from the step."""
    return not hasattr(getattr(optimizer, "_learning_rate", None), "assign")
