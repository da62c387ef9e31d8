"""The training step of a pipeline: a batch in micro-batches, which walk through the stages one behind the other.

As in GPipe (Huang et al. 2019, arXiv:1811.06965) the gradients of all micro-batches make one update, so the step
computes what the unsplit model would. Nothing orders the micro-batches but their data: TensorFlow's executors start
each operation when its inputs are there, and the gradient of an operation runs on the operation's device.
"""

from itertools import product
from time import perf_counter
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from worker_agent.trainer.emit import Emitter
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.steps import BlockingSteps
from worker_agent.trainer.model.reduce import added
from worker_agent.trainer.strategies.pipe.learner import PipeLearner

# Steps that are measured, each way, and how many are let go before: the first ones also place and compile.
MEASURED = 8
WARM = 3
# Of the first steps: is each micro-batch made in turn, and does its time count?
_MEASUREMENTS = list(product((True, False), [False] * WARM + [True] * MEASURED))
# Where less is left to train, a second trace costs more than is learnt.
WORTH_MEASURING = 200


class PipeSteps(BlockingSteps):
    """Runs steps one by one. The learner's variables exist already.

    What overlap is reached is measured once, on steps of the training itself: some are made with each micro-batch
    waiting for the one before it, which computes the same. Their time is the work W of all stages, so with K stages
    that need T together, a share 1 - W / (K T) of the devices' time is idle: the bubble.
    """

    def __init__(
        self, *, learner: PipeLearner, rate: Rate, train_data: Any, parts: int, total_steps: int, emitter: Emitter
    ) -> None:
        self._learner = learner
        self._rate = rate
        self._parts = parts
        self._emitter = emitter
        self._iterator = iter(train_data)
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._overlapped = tf.function(lambda batch: self._step(batch, in_turn=False), autograph=False)
        self._in_turn = tf.function(lambda batch: self._step(batch, in_turn=True), autograph=False)
        is_worth_it = total_steps >= WORTH_MEASURING
        self._measurements = iter(_MEASUREMENTS if is_worth_it else [])
        if not is_worth_it:
            emitter.facts(overlap=f"not measured: that is done in trainings of {WORTH_MEASURING} steps or more")
        self._seconds: dict[bool, list[float]] = {True: [], False: []}

    def run(self, steps: int, wish: int) -> tuple[np.ndarray, float]:
        """One process decides: the wish is the mean of all."""
        return np.array([self._one() for _ in range(steps)], np.float32), float(wish)

    def _one(self) -> float:
        batch = next(self._iterator)
        measured = next(self._measurements, None)
        if measured is None:
            return float(self._overlapped(batch).numpy())
        in_turn, counts = measured
        began = perf_counter()
        loss = float((self._in_turn if in_turn else self._overlapped)(batch).numpy())
        if counts:
            self._seconds[in_turn].append(perf_counter() - began)
            if len(self._seconds[False]) == MEASURED:
                self._tell()
        return loss

    def _tell(self) -> None:
        work, together = (float(np.median(self._seconds[in_turn])) for in_turn in (True, False))
        idle = max(0.0, 1 - work / (len(self._learner.stages) * together))
        self._emitter.log(int(self.count.numpy()), {"bubble": idle})
        reached = f"{work / together:.2f} times as fast as one part after the other"
        if work < together:
            reached = f"none: slower than one part after the other, {work / together:.2f} of its speed"
        self._emitter.facts(overlap=f"{reached} ({together * 1e3:.2f} ms a step, {work * 1e3:.2f} ms)")

    def _step(self, batch: Any, *, in_turn: bool) -> tf.Tensor:
        learner = self._learner
        self._rate.before_step(self.count)
        weights = [variable.value for variable in learner.trainable]
        total = tf.constant(0.0)
        gradients: list[Any] = []
        for part in _cut(batch, self._parts):
            if in_turn and gradients:
                with tf.control_dependencies([each for each in gradients if each is not None]):
                    part = tf.nest.map_structure(tf.identity, part)
            loss, scaled = self._part_loss(part)
            # Not a tape: only these are computed on the devices of what they are the gradients of.
            found = tf.compat.v1.gradients(scaled, weights, colocate_gradients_with_ops=True)
            gradients = _added(gradients, [None if each is None else tf.convert_to_tensor(each) for each in found])
            total += tf.cast(loss, tf.float32)
        learner.apply(gradients)
        self.count.assign_add(1)
        learner.average_weights()
        return total

    def _part_loss(self, part: Any) -> tuple[tf.Tensor, tf.Tensor]:
        learner = self._learner
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(part)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        y_pred = learner.forward(x, training=True)
        with tf.device(learner.plan.devices[-1]):
            loss = learner.loss(x, y, y_pred, sample_weight, rows, training=True) / self._parts
            scaled = learner.scaled(loss)
            learner.note(x, y, y_pred, sample_weight)
        return loss, scaled


def _cut(batch: Any, parts: int) -> list[Any]:
    """Equal parts of every tensor of the batch."""
    flat = [tf.split(each, parts) for each in tf.nest.flatten(batch)]
    return [tf.nest.pack_sequence_as(batch, list(part)) for part in zip(*flat, strict=True)]


def _added(before: list[Any], now: list[Any]) -> list[Any]:
    if not before:
        return now
    together = []
    for one, other in zip(before, now, strict=True):
        with tf.device(None if other is None else other.device):
            together.append(added(one, other))
    return together
