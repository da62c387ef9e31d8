"""The chief of a parameter-server gang: builds the model with tf_keras, keeps the workers busy, validates, exports."""

from time import perf_counter
from typing import Any

import tensorflow as tf

from worker_agent.trainer import data, export, program, runtime
from worker_agent.trainer.loop.pace import Pace
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.voice import Voice
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.size import size_of
from worker_agent.trainer.strategies.interface import Task
from worker_agent.trainer.strategies.pump import Pump

IN_FLIGHT_PER_WORKER = 2
RATE_WINDOW_S = 0.2


class Window:
    """Rates over a stretch of time: results of several workers come in bunches, one alone tells nothing."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._steps = 0
        self._worked_s = 0.0

    def add(self, *, steps: int, seconds: float) -> bool:
        """Count `steps` that a worker did in `seconds`; True when the window is long enough to speak of."""
        self._steps += steps
        self._worked_s += seconds
        return perf_counter() - self._began >= RATE_WINDOW_S

    @property
    def step_time_s(self) -> float:
        """What one step takes one worker."""
        return self._worked_s / self._steps

    @property
    def steps_per_s(self) -> float:
        """Steps of all workers in a second."""
        return self._steps / (perf_counter() - self._began)


class Coordinator:
    """One training. The number of updates is exactly the number of steps scheduled, epoch by epoch."""

    def __init__(self, task: Task, strategy: tf.distribute.ParameterServerStrategy) -> None:
        self._task = task
        self._run = task.run
        task.emitter.phase("building")
        runtime.seed_everything(self._run.spec.seed)
        self._recipe = program.load(self._run.entry, self._run.code, self._run.spec.params)
        self._strategy = strategy
        rows = data.Rows(self._recipe, "train").whole
        self._validation = data.Rows(self._recipe, "validation")
        self._size = size_of(
            rows=data.count_rows(rows),
            global_batch=self._run.spec.global_batch_size,
            replicas=1,
            epochs=self._run.spec.epochs,
        )
        with strategy.scope():
            self._model = _checked(self._recipe.model())
            self._model.build(_batch_shape(rows.element_spec))
            self._model.optimizer.build(self._model.trainable_variables)
            self._applied = tf.Variable(
                0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
            self._rate = Rate(
                self._model.optimizer,
                base=self._run.spec.learning_rate,
                target=self._run.scaled_rate,
                factor=1,
                warmup_steps=round(self._run.spec.warmup_epochs * self._size.steps_per_epoch),
            )
        self._voice = Voice(task.emitter, self._size, leads=True, workers=1)
        self._pace = Pace()
        self._done = 0
        self._epoch_losses: list[float] = []
        self._window = Window()
        self._build_metrics(rows)
        self._evaluate_batch = tf.function(self._validation_step, reduce_retracing=True, autograph=False)

    def train(self) -> None:
        """Every epoch: its steps, then validation on the chief; at the end the export."""
        workers = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        # The recipe is plain Python to us: AutoGraph would rewrite whatever libraries it calls.
        input_function = tf.autograph.experimental.do_not_convert(self._worker_input)
        input_of_workers = iter(workers.create_per_worker_dataset(input_function))
        execute = tf.function(self._execution, autograph=False)

        def schedule(steps: int) -> Any:
            return workers.schedule(execute, args=(input_of_workers, tf.constant(steps)))

        pump = Pump(schedule, self._deliver, in_flight=IN_FLIGHT_PER_WORKER * self._run.workers)
        for epoch in range(1, self._size.epochs + 1):
            self._epoch(epoch, pump)
        pump.close()
        self._task.emitter.phase("saving")
        export.write(
            self._run, self._recipe, self._model, metrics=self._voice.last_metrics, steps=int(self._applied.numpy())
        )

    def _epoch(self, number: int, pump: Pump) -> None:
        began = perf_counter()
        self._model.reset_metrics()
        self._epoch_losses = []
        self._window = Window()
        left = self._size.steps_per_epoch
        while left:
            self._task.stop.check()
            steps = min(left, self._pace.steps)
            pump.put(steps)
            left -= steps
        pump.drain()
        logs = self._metrics_now() | {"loss": sum(self._epoch_losses) / len(self._epoch_losses)}
        if self._validation.exist:
            logs |= {f"val_{name}": value for name, value in self._validate().items()}
        self._voice.epoch(
            number=number, step=self._done, metrics=logs, rate=self._rate.now, seconds=perf_counter() - began
        )

    def _deliver(self, result: Any) -> None:
        """In the pump's thread, in the order of scheduling: one execution's losses and the seconds it took."""
        losses, seconds = result[0].tolist(), float(result[1])
        count = len(losses)
        first = self._done == 0
        self._done += count
        self._pace.measured(steps=count, seconds=seconds, traced=first)
        self._pace.agree(self._pace.wish())
        if first:
            self._task.emitter.phase("training")
        self._epoch_losses += losses
        if not first and self._window.add(steps=count, seconds=seconds):
            self._voice.rates(
                step=self._done, step_time_s=self._window.step_time_s, steps_per_s=self._window.steps_per_s
            )
            self._window = Window()
        self._voice.execution(first_step=self._done - count + 1, losses=losses, seconds=seconds)

    def _worker_input(self) -> tf.data.Dataset:
        """Traced once, run on every worker: its own share of the rows, in an order of its own, without end."""
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        rows = self._recipe.dataset("train", (1, 0))
        order = rows.shuffle(data.shuffle_rows(rows.element_spec, self._size.rows), seed=self._run.spec.seed)
        mine = order.shard(self._run.workers, worker).repeat()
        return mine.batch(self._size.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    def _execution(self, iterator: Any, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """On a worker: the losses of `steps` updates and the seconds they took."""
        began = tf.timestamp()

        def one_step(i: tf.Tensor, losses: Any) -> tuple[tf.Tensor, Any]:
            self._rate.before_step(self._applied.read_value())
            return i + 1, losses.write(i, self._strategy.run(self._worker_step, args=(next(iterator),)))

        losses = tf.TensorArray(tf.float32, size=steps, element_shape=())
        _, losses = tf.while_loop(lambda i, _: i < steps, one_step, (tf.constant(0), losses), parallel_iterations=1)
        stacked = losses.stack()
        with tf.control_dependencies([stacked]):
            return stacked, tf.timestamp() - began

    def _worker_step(self, batch: Any) -> tf.Tensor:
        model = self._model
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = model.compute_loss(x, y, y_pred, sample_weight)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        model.compute_metrics(x, y, y_pred, sample_weight)
        self._applied.assign_add(1)
        return tf.cast(loss, tf.float32)

    def _validate(self) -> dict[str, float]:
        self._model.reset_metrics()
        for batch in self._validation.whole.batch(self._size.batch):
            self._task.stop.check()
            self._evaluate_batch(batch)
        return self._metrics_now()

    def _validation_step(self, batch: Any) -> None:
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = self._model(x, training=False)
        self._model.compute_loss(x, y, y_pred, sample_weight)
        self._model.compute_metrics(x, y, y_pred, sample_weight)

    def _build_metrics(self, rows: tf.data.Dataset) -> None:
        """One batch through the model: what is created lazily has to exist before workers trace their step."""
        for batch in rows.batch(min(2, self._size.rows)).take(1):
            self._validation_step(batch)
        self._model.reset_metrics()

    def _metrics_now(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._model.get_metrics_result().items()}


def _checked(model: Any) -> Any:
    if not isinstance(model, tf.keras.Model):
        kind = f"{type(model).__module__}.{type(model).__name__}"
        raise TrainingFailed(f"build_model() returned {kind}, which is no tf_keras model.")
    if model.optimizer is None:
        raise TrainingFailed("build_model() returned a model that is not compiled: call model.compile(…) in it.")
    return model


def _batch_shape(element_spec: Any) -> Any:
    """The shape of a batch of the inputs, of whatever structure."""
    return tf.nest.map_structure(lambda spec: (None, *spec.shape), element_spec[0])
