"""Validation: loss and metrics of rows that nothing is learnt from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import tensorflow as tf

from worker_agent.trainer.model.learner import Learner, ReplicaLearner
from worker_agent.trainer.recipe.data import Rows, validation_input
from worker_agent.trainer.setup.stopping import StopSignal


class Validation(Protocol):
    """What judges a model, as the course of a training sees it. A collective: each worker of a gang calls it."""

    def run(self, moves: Callable[[], None]) -> dict[str, float]:
        """Loss and metrics of the whole validation set; `moves` is called as it gets on."""


class Evaluation(ABC):
    """One batch after the other, each brought into the learner's metrics."""

    def __init__(self, learner: Learner, stop: StopSignal) -> None:
        self._learner = learner
        self._stop = stop

    def run(self, moves: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Loss and metrics of the whole validation set; `moves` is called for each batch. Leaves the metrics reset."""
        self._learner.model.reset_metrics()
        for batch in self.batches():
            self._stop.check()
            moves()
            self.judge(batch)
        result = self._learner.metrics_now()
        self._learner.model.reset_metrics()
        return result

    @abstractmethod
    def batches(self) -> Iterable[Any]:
        """Those of this process."""

    @abstractmethod
    def judge(self, batch: Any) -> None:
        """Bring it into the metrics."""


class ReplicaEvaluation(Evaluation):
    """Exact on every row: no collective inside a batch, so workers may have different numbers of batches; metric
    variables are summed over replicas only when they are read. A `batch` is that of all workers."""

    def __init__(
        self, learner: ReplicaLearner, rows: Rows, stop: StopSignal, *, batch: int, workers: int = 1, worker: int = 0
    ) -> None:
        super().__init__(learner, stop)
        self._batches = validation_input(learner.strategy, rows, workers=workers, worker=worker, batch=batch)
        self._judge = tf.function(
            lambda batch: learner.strategy.run(learner.judge, args=(batch,)), reduce_retracing=True, autograph=False
        )

    def batches(self) -> Iterable[Any]:
        return self._batches

    def judge(self, batch: Any) -> None:
        self._judge(batch)
