"""From variables that exist to a trained model: what strategies whose processes all take the same steps have in common.

Used by `synchronous`, `tensor_parallel` and `pipeline`; each brings its own steps, learner and validation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from worker_agent.trainer.loop.driver import Driver
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.training_report import TrainingReport
from worker_agent.trainer.outcome import Paused
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints
from worker_agent.trainer.strategies.interface import Task


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How many steps were taken in all, and the metrics of the last epoch."""

    steps: int
    metrics: Mapping[str, float]


def take(
    task: Task,
    *,
    recipe: Recipe,
    learner: Any,
    steps: Any,
    rate: Rate,
    size: Size,
    checkpoints: Checkpoints,
    validation: Any,
    workers: int,
    average_state: Callable[[], None] = lambda: None,
    leave_together: Callable[[], None] = lambda: None,
) -> Trained:
    """Train to the end. `workers` share the rows of a step; `validation` is None where there is nothing to judge by.
    `checkpoints` have their state already. `leave_together` returns in all processes of the gang at once: none leaves a
    paused training while the chief still saves."""
    run = task.run
    report = TrainingReport(task.emitter, size, leads=run.chief, workers=workers)
    report.last_metrics = checkpoints.metrics
    driver = Driver(
        learner=learner,
        steps=steps,
        rate=rate,
        size=size,
        validation=validation,
        average_state=average_state,
        callbacks=recipe.callbacks(),
        emitter=task.emitter,
        report=report,
        stop=task.stop,
        checkpoints=checkpoints,
        steps_per_execution=run.spec.steps_per_execution,
    )
    try:
        done = driver.train()
    except Paused:
        leave_together()
        raise
    checkpoints.finish()
    if run.chief:
        task.emitter.phase("saving")
    return Trained(steps=done, metrics=report.last_metrics)
