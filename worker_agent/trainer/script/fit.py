"""Metrics of a script's `fit`, of Keras 3 and of tf_keras, without a change to the script: one more callback.

The callback tells loss and metrics as Keras reports them (within an epoch: the mean so far), a few batches a second
and at every epoch's end, how far the training is, and how fast. It changes nothing: no value that the script's own
callbacks see, no step that Keras takes.
"""

import contextlib
import inspect
import threading
from collections.abc import Mapping
from functools import wraps
from importlib import import_module
from queue import Empty, Queue
from time import monotonic
from types import ModuleType
from typing import Any

from worker_agent.trainer.script.facts import facts_of
from worker_agent.trainer.script.script_report import ScriptReport

EVERY_BATCH_UNTIL = 50
POINTS_EVERY_S = 0.1
RATES_EVERY_S = 1.0
RESULT_WAIT_S = 2.0


class Fits:
    """All calls of `fit` in this process, counted as one training."""

    def __init__(self, report: ScriptReport) -> None:
        self.report = report
        self.steps = 0
        self.epochs = 0

    def watch_keras3(self, module: ModuleType) -> None:
        """Metrics of Keras 3's fit are told."""
        self._watch(module.TensorFlowTrainer, "keras")

    def watch_tf_keras(self, module: ModuleType) -> None:
        """Metrics of tf_keras' fit are told."""
        self._watch(module.Model, "tf_keras")

    def _watch(self, kind: Any, package: str) -> None:
        """Have the `fit` of such models of that Keras call one more callback."""
        fit = kind.fit
        signature = inspect.signature(fit)

        @wraps(fit)
        def watched(*arguments: Any, **named: Any) -> Any:
            try:
                bound = signature.bind(*arguments, **named)
            except TypeError:
                return fit(*arguments, **named)  # says itself what is wrong
            callback = _callback(self, package)
            bound.arguments["callbacks"] = _with(bound.arguments.get("callbacks"), callback, model=arguments[0])
            try:
                return fit(*bound.args, **bound.kwargs)
            finally:
                self.report.stepping(expected=False)

        kind.fit = watched


def _callback(fits: Fits, package: str) -> Any:
    """Made at a fit: while its training module is imported, Keras itself is still on its way in."""
    keras = import_module(package)
    made: Any = type("TrainyardMetrics", (_Metrics, keras.callbacks.Callback), {})
    return made(fits, package, keras.__version__)


class _Metrics:
    """The callback; mixed with the `Callback` of the Keras that calls it. Keras 3 calls it from several threads."""

    model: Any
    params: dict[str, Any]
    async_safe = True

    def __init__(self, fits: Fits, package: str, version: str) -> None:
        super().__init__()
        self._supports_tf_logs = True  # else tf_keras waits for every batch, and refuses it under parameter servers
        self._fits = fits
        self._report = fits.report
        self._package = package
        self._keras = f"{package} {version}"
        self._lock = threading.Lock()
        self._divisor = 1
        self._step = 0
        self._results: _Results | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """What this process is, as far as Keras knows."""
        self._epoch_steps: int | None = self.params.get("steps")
        self._epochs_before: int | None = None
        self._epoch = self._fits.epochs
        self._begun = self._step_of_epoch = self._step = self._fits.steps
        self._logged_at = self._rated_at = monotonic()
        self._rated_step = self._logged_step = self._step
        self._logged_names: frozenset[str] = frozenset()
        strategy = self.model.distribute_strategy
        replicas = int(getattr(strategy, "num_replicas_in_sync", 1) or 1)
        # tf_keras adds up over the workers what every one of them has reduced already.
        several = bool(getattr(getattr(strategy, "extended", None), "_in_multi_worker_mode", bool)())
        if self._package == "tf_keras" and several:
            self._divisor = replicas
        self._report.facts(**{"keras": self._keras, "replicas_in_sync": replicas, **facts_of(strategy)})

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Epochs are numbered from 1 for people, over all fits."""
        if self._epochs_before is None:
            self._epochs_before = self._fits.epochs - epoch
        self._epoch = self._epochs_before + epoch + 1
        self._epochs = self._epochs_before + int(self.params.get("epochs") or 0)
        with self._lock:
            self._step_of_epoch = self._step
        self._report.stepping(expected=True)

    def on_test_begin(self, logs: Any = None) -> None:
        """The epoch is validated: no step is due."""
        self._report.stepping(expected=False)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Steps up to `batch` of this epoch are done (or, under parameter servers, handed out)."""
        now = monotonic()
        with self._lock:
            step = self._step_of_epoch + int(batch) + 1
            if step <= self._step:
                return
            self._step = step
            if step - self._step_of_epoch == self._epoch_steps:
                self._report.stepping(expected=False)
            if step - self._begun > EVERY_BATCH_UNTIL and now - self._logged_at < POINTS_EVERY_S:
                return
            self._logged_at = now
            rates = self._rates(step, now)
        if hasattr(logs, "fetch"):
            self._results = self._results or _Results(self._report)
            self._results.add(step, logs)
        else:
            values = _numbers(logs, self._divisor)
            with self._lock:
                self._logged_step, self._logged_names = step, frozenset(values)
            self._report.points(step, values)
        self._report.points(step, rates)
        self._tell_progress(step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The epoch's values are right under every strategy; those of the last batch are not told twice."""
        metrics = _numbers(logs, 1)
        with self._lock:
            step = self._step
            logged = self._logged_names if self._logged_step == step else frozenset()
            if self._epoch_steps is None:
                self._epoch_steps = step - self._step_of_epoch
        scalars = _learning_rate(self.model) | metrics
        self._report.points(step, {name: value for name, value in scalars.items() if name not in logged})
        self._report.epoch(self._epoch, metrics)
        self._tell_progress(step)
        self._report.stepping(expected=False)
        self._report.facts(**_parameters(self.model))

    def on_train_end(self, logs: Any = None) -> None:
        """The next `fit` counts on from here."""
        if self._results is not None:
            self._results.close()
        self._fits.steps, self._fits.epochs = self._step, self._epoch

    def _tell_progress(self, step: int) -> None:
        total = 0
        if self._epoch_steps:
            total = max(step, self._begun + (self._epochs - self._fits.epochs) * self._epoch_steps)
        self._report.counted(step, total, self._epoch, self._epochs)

    def _rates(self, step: int, now: float) -> dict[str, float]:
        seconds, steps = now - self._rated_at, step - self._rated_step
        if seconds < RATES_EVERY_S or not steps:
            return {}
        self._rated_at, self._rated_step = now, step
        return {"step_time_ms": seconds / steps * 1000, "steps_per_s": steps / seconds}


class _Results:
    """Values of batches that workers still compute, fetched in a thread of its own so that no step waits for them.

    While one is awaited, of those that come meanwhile only the latest is kept.
    """

    def __init__(self, report: ScriptReport) -> None:
        self._report = report
        self._next: Queue[tuple[int, Any] | None] = Queue()
        self._thread = threading.Thread(target=self._run, name="fit-results", daemon=True)
        self._thread.start()

    def add(self, step: int, result: Any) -> None:
        """`result.fetch()` will give the values of `step`."""
        with contextlib.suppress(Empty):
            self._next.get_nowait()
        self._next.put((step, result))

    def close(self) -> None:
        """No more will come."""
        self._next.put(None)
        self._thread.join(RESULT_WAIT_S)

    def _run(self) -> None:
        while (given := self._next.get()) is not None:
            step, result = given
            with contextlib.suppress(Exception):  # the step failed or was cancelled: fit itself says so
                self._report.points(step, _numbers(result.fetch(), 1))


def _with(callbacks: Any, mine: Any, *, model: Any) -> Any:
    """The script's callbacks and ours; a ready CallbackList is added to."""
    if callbacks is None:
        return [mine]
    if isinstance(callbacks, list | tuple):
        return [*callbacks, mine]
    if hasattr(callbacks, "append") and hasattr(callbacks, "callbacks"):
        mine.set_model(model)
        mine.set_params(callbacks.params or {})
        callbacks.append(mine)
        return callbacks
    return [callbacks, mine]


def _numbers(logs: Any, divisor: int) -> dict[str, float]:
    """The scalars among Keras' logs. tf_keras' schedulers call the learning rate `lr`."""
    found: dict[str, float] = {}
    for name, value in logs.items() if isinstance(logs, Mapping) else ():
        try:
            if name == "lr":
                found["learning_rate"] = float(value)
            elif name not in ("batch", "size"):
                found[str(name)] = float(value) / divisor
        except (TypeError, ValueError):  # a metric of several numbers
            continue
    return found


def _learning_rate(model: Any) -> dict[str, float]:
    try:
        rate = model.optimizer.learning_rate
        return {"learning_rate": float(rate.numpy() if hasattr(rate, "numpy") else rate)}
    except Exception:  # an optimizer of the script's own
        return {}


def _parameters(model: Any) -> dict[str, int]:
    try:
        return {"parameters": int(model.count_params())}
    except Exception:  # not built, or none of Keras' models
        return {}
