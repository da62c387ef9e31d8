"""What `loop` measures the product's training loop against, in the same process and under the same strategy.

The floor is what a person writes by hand: a tf.function of many steps per call, plain loss and gradients, rows counted
right instead of a metric. It reads the product's own input, so that the same batches come in the same order and only
the loop differs. The peer is Keras' `model.fit` on a tf.data pipeline of the same rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from worker_agent.trainer.recipe import data
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.strategies.served import numbered_batches

LEARNING_RATE = 0.05


@dataclass(frozen=True, kw_only=True)
class Course:
    """The training that all rivals take. `size.steps_per_epoch` steps make one round."""

    program: Recipe
    size: Size
    seed: int

    def model(self) -> Any:
        """The recipe's model with the first weights that the product's has."""
        keras.utils.set_random_seed(self.seed)
        return self.program.model()

    def input(self, strategy: Any) -> Any:
        """The product's endless input."""
        return data.training_input(strategy, data.Rows(self.program, "train"), self.size, seed=self.seed)


class BareReplicas:
    """One device, Mirrored, MultiWorkerMirrored, central storage: strategy.run in a loop of the graph."""

    def __init__(self, course: Course, strategy: Any) -> None:
        self._strategy = strategy
        with strategy.scope():
            self._model = course.model()
            self._model.optimizer.build(self._model.trainable_variables)
        self._iterator = iter(self._input(course))
        self._batch = course.size.batch
        self._execute = tf.function(self._steps)

    def run(self, steps: int) -> np.ndarray:
        """The losses of so many steps."""
        losses, _ = self._execute(self._iterator, tf.constant(steps))
        return losses.numpy()

    def _input(self, course: Course) -> Any:
        return course.input(self._strategy)

    def _steps(self, iterator: Any, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        losses = tf.TensorArray(tf.float32, size=steps, element_shape=())
        right = tf.constant(0)
        for i in tf.range(steps):
            loss, rows = self._strategy.run(self._step, args=next(iterator))
            losses = losses.write(i, self._strategy.reduce("SUM", loss, axis=None))
            right += self._strategy.reduce("SUM", rows, axis=None)
        return losses.stack(), right

    def _step(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        model = self._model
        with tf.GradientTape() as tape:
            scores = model(x, training=True)
            loss = _summed(y, scores) / self._batch
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, _right(y, scores)


class BareServed(BareReplicas):
    """ParameterServer: the same loop as one function, scheduled on the worker."""

    def run(self, steps: int) -> np.ndarray:
        """The losses of so many steps."""
        losses, _ = self._workers.schedule(self._execute, args=(self._iterator, tf.constant(steps))).fetch()
        return losses

    def _input(self, course: Course) -> Any:
        @tf.autograph.experimental.do_not_convert
        def batches() -> tf.data.Dataset:
            numbered = numbered_batches.training_batches(course.program, course.size, seed=course.seed, start_step=0)
            return numbered.map(lambda _, batch: batch).prefetch(tf.data.AUTOTUNE)

        self._workers = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        return self._workers.create_per_worker_dataset(batches)


class BareMesh:
    """Tensor parallel: DTensor by hand, for Dense layers alone. Columns and rows of kernels take turns."""

    def __init__(self, course: Course, model: Any, devices: int) -> None:
        self._devices = devices
        self._mesh = dtensor.create_distributed_mesh([("batch", 1), ("model", devices)], device_type="CPU")
        whole = dtensor.UNSHARDED
        self._layers = [
            (
                self._variable(layer.kernel, ["model", whole] if number % 2 else [whole, "model"]),
                self._variable(layer.bias, [whole] if number % 2 else ["model"]),
            )
            for number, layer in enumerate(model.layers)
        ]
        self._batches = iter(course.input(tf.distribute.get_strategy()))
        self._rows = course.size.batch
        self._step = tf.function(self._one_step)

    def run(self, steps: int) -> np.ndarray:
        """The losses of so many steps, asked for after the last one."""
        losses = [self._step(*(self._whole(each) for each in next(self._batches)))[0] for _ in range(steps)]
        return np.array([dtensor.unpack(loss)[0].numpy() for loss in losses])

    def _variable(self, of: Any, specs: list[str]) -> Any:
        """With the present value of a variable of the product's."""
        value = of.value.numpy()
        parts = np.split(value, self._devices, specs.index("model")) if "model" in specs else [value] * self._devices
        return dtensor.DVariable(dtensor.pack(parts, dtensor.Layout(specs, self._mesh)))

    def _whole(self, value: tf.Tensor) -> Any:
        return dtensor.pack([value] * self._devices, dtensor.Layout.replicated(self._mesh, value.shape.rank))

    def _one_step(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        variables = [each for pair in self._layers for each in pair]
        with tf.GradientTape() as tape:
            scores = x
            for number, (kernel, bias) in enumerate(self._layers):
                scores = scores @ kernel + bias
                if number < len(self._layers) - 1:
                    scores = tf.tanh(scores)
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores)) / self._rows
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss, _right(y, scores)


class BarePipe:
    """Pipeline: layers placed by hand, micro-batches in one function, one call a step."""

    def __init__(self, course: Course, model: Any, stages: list[list[str]], *, parts: int) -> None:
        self._stages = [(f"/device:CPU:{place}", names) for place, names in enumerate(stages)]
        self._layers: dict[str, Any] = {}
        for device, names in self._stages:
            with tf.device(device):
                for name in names:
                    theirs = model.get_layer(name)
                    self._layers[name] = type(theirs).from_config(theirs.get_config())
                    self._layers[name].build(theirs.input.shape)
                    self._layers[name].set_weights(theirs.get_weights())
        self._batches = iter(course.input(tf.distribute.get_strategy()))
        self._parts = parts
        self._rows = course.size.batch
        self._step = tf.function(self._one_step)

    def run(self, steps: int) -> np.ndarray:
        """The losses of so many steps."""
        return np.array([self._step(*next(self._batches))[0].numpy() for _ in range(steps)])

    def _one_step(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        variables = [each.value for layer in self._layers.values() for each in layer.trainable_variables]
        losses, found, right = [], [], []
        for part, truth in zip(tf.split(x, self._parts), tf.split(y, self._parts), strict=True):
            for device, names in self._stages:
                with tf.device(device):
                    for name in names:
                        part = self._layers[name](part)
            with tf.device(self._stages[-1][0]):
                losses.append(_summed(truth, part) / self._rows)
                right.append(_right(truth, part))
            found.append(tf.compat.v1.gradients(losses[-1], variables, colocate_gradients_with_ops=True))
        for variable, gradients in zip(variables, zip(*found, strict=True), strict=True):
            with tf.device(variable.device):
                variable.assign_sub(LEARNING_RATE * tf.add_n(gradients))
        return tf.add_n(losses), tf.add_n(right)


class Fit:
    """Keras' `model.fit`. Its start-up is no part of a step: Keras 3's is timed from its second step on."""

    def __init__(self, course: Course, strategy: Any, *, steps: int) -> None:
        self._steps = steps
        with strategy.scope():
            self._model = course.model()
        serves = isinstance(strategy, tf.distribute.ParameterServerStrategy)

        def batches(_: Any = None) -> tf.data.Dataset:
            rows = course.program.dataset("train")
            window = data.shuffle_rows(rows.element_spec, course.size.rows)
            tf.random.set_seed(1)  # with it, the order of the product's first epoch
            order = rows.shuffle(window, seed=course.seed, reshuffle_each_iteration=False)
            return order.batch(course.size.batch, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE)

        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        self._data = tf.keras.utils.experimental.DatasetCreator(batches) if serves else batches().with_options(options)
        self._clock = _WholeEpoch() if serves else _BetweenSteps()

    def run(self) -> tuple[float, float]:
        """Seconds per step of one epoch, and its mean loss."""
        history = self._model.fit(self._data, epochs=1, steps_per_epoch=self._steps, callbacks=[self._clock], verbose=0)
        return self._clock.seconds_per_step, history.history["loss"][0]


class _BetweenSteps(keras.callbacks.Callback):
    """From the beginning of the second step to that of the last. It has no hook at their ends, where fit would wait for
    it: fit may run ahead as it likes."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            self._began = perf_counter()
        self.seconds_per_step = (perf_counter() - self._began) / (batch - 1) if batch > 1 else 0.0


class _WholeEpoch(keras.callbacks.Callback):
    """Under parameter servers steps are only handed out one by one; the epoch's end waits for them."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began = perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds_per_step = (perf_counter() - self._began) / self.params["steps"]


def _summed(y: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores))


def _right(y: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(tf.argmax(scores, axis=1, output_type=tf.int32) == y, tf.int32))


def timed(run: Callable[[int], np.ndarray], steps: int) -> tuple[float, np.ndarray]:
    """Seconds per step, and the losses."""
    began = perf_counter()
    losses = run(steps)
    return (perf_counter() - began) / steps, losses
