"""Measures a recipe's model as one device trains it: its sizes, its gradients, and its step by batch and cores.

Steps are those of the trainer's own loop. Imported once it is settled which Keras this process holds.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import keras
import msgspec
import tensorflow as tf

from worker_agent.machine.affinity import pinned
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.workload import MeasuredModel, Question, Stretch, Table, Timed
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.loop.replica_steps import ReplicaSteps
from worker_agent.trainer.model.learner import ReplicaLearner
from worker_agent.trainer.model.learners import learner_of
from worker_agent.trainer.recipe import data
from worker_agent.trainer.recipe.data import Rows
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.training_run import TrainingRun

# Of one batch: shorter stretches are several per cent off, longer ones hardly better.
STRETCH_S, APPLY_S = 1.0, 0.3
CALLS_MIN = 4
CALL_S = 0.12
WARM_STEPS = 2


def measure(run: TrainingRun, recipe: Recipe, question: Question) -> MeasuredModel:
    """Sizes first; then the stretches in their order, while there is time. A batch that the training set cannot fill,
    or that would take too long as the one before it went, is left out."""
    deadline = time.monotonic() + question.seconds
    subject = _Subject.of(run, recipe)
    batch = min(
        [run.spec.global_batch_size, subject.rows, *(each for part in question.stretches for each in part.batches)]
    )
    steps = subject.steps(max(1, batch))
    sizes = _sizes(subject, steps, batch)
    timed = [each for part in question.stretches if (each := _timed(subject, sizes, part, deadline))]
    return msgspec.structs.replace(sizes, timed=timed)


@dataclass(frozen=True)
class _Subject:
    """The model with the rows that it is trained on."""

    run: TrainingRun
    source: Rows
    rows: int
    learner: ReplicaLearner

    @classmethod
    def of(cls, run: TrainingRun, recipe: Recipe) -> "_Subject":
        strategy = tf.distribute.OneDeviceStrategy("/device:CPU:0")
        with strategy.scope():
            learner = learner_of(recipe.model(), strategy)
        source = Rows(recipe, "train")
        return cls(run, source, data.count_rows(source.whole), learner)

    def steps(self, batch: int) -> ReplicaSteps:
        """The loop, on this batch."""
        each = self.rows // batch
        size = Size(rows=self.rows, batch=batch, steps_per_epoch=each, total_steps=each)
        share = data.Share(parts=1, part=0)
        train_data = data.training_input(share, self.source, size, seed=self.run.spec.seed)
        self.learner.create_variables(train_data.element_spec)
        with self.learner.strategy.scope():
            rate = rate_of(self.run, self.learner.optimizer, size, replicas=1)
        return ReplicaSteps(learner=self.learner, rate=rate, train_data=train_data, global_batch=batch)


def _sizes(subject: _Subject, steps: ReplicaSteps, batch: int) -> MeasuredModel:
    """All but the times."""
    learner, found = subject.learner, _Gradients()
    with _told_outputs() as outputs:
        graph = found.trace(steps, learner)
    bytes_of = [_bytes(variable) for variable in learner.trainable]
    count = sum(_count(variable) for variable in learner.trainable)
    tables = [
        Table(rows=int(variable.shape[0]), row_bytes=size // int(variable.shape[0]), touched=rows / batch)
        for variable, size, rows in zip(learner.trainable, bytes_of, found.rows, strict=True)
        if rows
    ]
    slots = sum(_count(variable) for variable in learner.optimizer.variables if len(variable.shape))
    return MeasuredModel(
        keras=keras_of(subject.run.spec),
        parameters=count,
        parameter_bytes=sum(bytes_of),
        variables=len(bytes_of),
        largest_bytes=max(bytes_of, default=0),
        slots=round(slots / max(1, count), 2),
        dense_bytes=sum(size for size, rows in zip(bytes_of, found.rows, strict=True) if not rows),
        tables=tables,
        activation_bytes=sum(outputs) / batch,
        boundary_bytes=max(outputs, default=0) / batch,
        flops=_flops(graph) / batch,
        examples=subject.rows,
        reads_apart=subject.source.division(subject.run.spec.sharding, pipelines=2).reads_apart,
    )


class _Gradients:
    """What kinds of gradients a batch has: `rows` for each variable, how many of a table are touched (0: dense)."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def trace(self, steps: ReplicaSteps, learner: ReplicaLearner) -> Any:
        """The graph of forward and backward pass. A train_step of the recipe's own keeps its gradients to itself, so
        they count as dense."""

        def look(batch: Any) -> Any:
            if learner.has_own_step:
                self.rows = [0] * len(learner.trainable)
                return learner.model.train_step(batch)
            gradients, loss, _ = steps.gradients(batch)
            self.rows = [_rows_in(each) for each in gradients]
            return loss, [tf.convert_to_tensor(each) for each in gradients if each is not None]

        batch = steps.element_spec
        return tf.function(look, autograph=False).get_concrete_function(batch).graph


def _rows_in(gradient: Any) -> int:
    return int(gradient.indices.shape[0] or 0) if isinstance(gradient, tf.IndexedSlices) else 0


@contextmanager
def _told_outputs() -> Iterator[list[float]]:
    """The bytes of what each innermost layer puts out while a model is traced."""
    found: list[float] = []
    call = keras.layers.Layer.__call__

    def told(layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = call(layer, *args, **kwargs)
        if not any(True for _ in layer._flatten_layers(include_self=False)):
            tensors = [each for each in tf.nest.flatten(outputs) if tf.is_tensor(each)]
            found.append(sum((each.shape.num_elements() or 0) * each.dtype.size for each in tensors))
        return outputs

    keras.layers.Layer.__call__ = told
    try:
        yield found
    finally:
        keras.layers.Layer.__call__ = call


def _flops(graph: Any) -> float:
    """Multiplications and additions, of the operations of which TensorFlow knows them."""
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    return float(tf.compat.v1.profiler.profile(graph, options=options).total_float_ops)


def _timed(subject: _Subject, sizes: MeasuredModel, stretch: Stretch, deadline: float) -> Timed | None:
    with pinned(stretch.cores) as cores:
        known: list[tuple[int, float]] = []
        for batch in sorted(set(stretch.batches)):
            # The calls beside those that count: one step traced, the warm ones.
            expected_s = known[-1][1] / 1e3 * batch / known[-1][0] * (CALLS_MIN + WARM_STEPS + 1) if known else 0.0
            if not 1 <= batch <= subject.rows or time.monotonic() + STRETCH_S + expected_s > deadline:
                continue
            known.append((batch, 1e3 * _step_s(_trains(subject.steps(batch)), STRETCH_S, deadline)))
        if not known or subject.learner.has_own_step:
            return Timed(cores=cores, step_ms=known, apply_ms=0.0) if known else None
        return Timed(
            cores=cores, step_ms=known, apply_ms=1e3 * _step_s(_applies(subject.learner, sizes), APPLY_S, deadline)
        )


def _trains(steps: ReplicaSteps) -> Callable[[int], Any]:
    return lambda count: steps.run(count, 0)


def _applies(learner: ReplicaLearner, sizes: MeasuredModel) -> Callable[[int], Any]:
    """Calls of so many steps of the optimizer alone, on gradients of 0 that are dense or rows as the model's are."""
    tables = {(table.rows, table.row_bytes): table for table in sizes.tables}

    def nothing(variable: Any) -> Any:
        table = (
            tables.get((int(variable.shape[0]), _bytes(variable) // int(variable.shape[0]))) if variable.shape else None
        )
        if table is None:
            return tf.zeros(variable.shape, variable.dtype)
        rows = tf.range(max(1, min(table.rows, round(table.touched))), dtype=tf.int64)
        return tf.IndexedSlices(tf.zeros([tf.size(rows), *variable.shape[1:]], variable.dtype), rows, variable.shape)

    def one(i: tf.Tensor) -> tuple[tf.Tensor]:
        learner.strategy.run(lambda: learner.apply([nothing(variable) for variable in learner.trainable]))
        return (i + 1,)

    @tf.function(autograph=False)
    def several(count: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i: i < count, one, [tf.constant(0)], parallel_iterations=1)[0]

    return lambda count: several(tf.constant(count)).numpy()


def _step_s(run: Callable[[int], Any], seconds: float, deadline: float) -> float:
    """The median of calls of about `CALL_S`, over so many seconds, once it is traced and warm. From the deadline on
    (monotonic) what was measured until then has to do, be it a warm step."""
    run(1)
    warm: list[float] = []
    while not warm or (len(warm) < WARM_STEPS and time.monotonic() < deadline):
        warm.append(_took_s(run, 1))
    count = max(1, min(1000, round(CALL_S / warm[-1])))
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < deadline and (time.monotonic() < end or len(taken) < CALLS_MIN):
        taken.append(_took_s(run, count) / count)
    return median(taken or warm)


def _took_s(run: Callable[[int], Any], count: int) -> float:
    began = time.perf_counter()
    run(count)
    return time.perf_counter() - began


def _count(variable: Any) -> int:
    return int(tf.TensorShape(variable.shape).num_elements() or 0)


def _bytes(variable: Any) -> int:
    return _count(variable) * int(tf.as_dtype(variable.dtype).size)
