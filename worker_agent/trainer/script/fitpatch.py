"""Keras 3's `fit`, `evaluate` and `predict` on several workers: two corrections, without which 3.15 fails at once.

Applied by the launcher to Keras 3 in a script's process. Under any strategy but MultiWorkerMirrored, Keras' own code
runs unchanged. With them the histories equal a single process' (shared/design/LOOP.md has the table), apart from what
is Keras' own under every strategy: clipping happens before the all-reduce, BatchNormalization's moving statistics stay
each worker's own, `gradient_accumulation_steps` and `steps_per_execution` > 1 fail.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from worker_agent.trainer.emit import say

NOTE = (
    "trainyard: Keras 3's fit does not run under MultiWorkerMirrored by itself: two corrections are in place "
    "(the batch that shapes the model is a local one; results are reduced without an axis)."
)


def correct_fit(module: ModuleType) -> None:
    """Keras 3's fit is corrected for several workers."""
    trainer: Any = module
    tree: Any = trainer.tree
    own_reduce: Callable[..., Any] = trainer.reduce_per_replica
    own_build: Callable[..., Any] = trainer.TensorFlowTrainer._maybe_symbolic_build
    several: Callable[[Any], bool] = trainer._collective_all_reduce_multi_worker
    said: list[str] = []

    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        """Keras takes the mean of the batch over the workers to learn its shapes; one local batch tells them."""
        strategy = self._distribute_strategy
        if strategy is None or not several(strategy):
            return own_build(self, iterator=iterator, data_batch=data_batch)
        if not said:
            said.append(NOTE)
            say(NOTE)
        if iterator is not None:
            for _, _, batches in iterator:
                values = next(batches)
                data_batch = tree.map_structure(lambda value: strategy.experimental_local_results(value)[0], values)
                break
        with strategy.scope():
            self._symbolic_build(data_batch=data_batch)

    def reduce(values: Any, strategy: Any, reduction: str) -> Any:
        """Keras reduces scalars along an axis they do not have."""
        if several(strategy) and reduction in ("auto", "mean", "sum"):
            operation = "SUM" if reduction == "sum" else "MEAN"
            return tree.map_structure(lambda value: strategy.reduce(operation, value, axis=None), values)
        return own_reduce(values, strategy, reduction)

    trainer.TensorFlowTrainer._maybe_symbolic_build = build
    trainer.reduce_per_replica = reduce
