"""The way from what a strategy brings to a training (`Engine`) to the saved model, the same for all. Called by each
strategy's own module, once the gang has met."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import tensorflow as tf

from worker_agent.protocol.job.choices import Validator
from worker_agent.protocol.records import PhaseName
from worker_agent.trainer.loop.training import Engine, Training
from worker_agent.trainer.outcome import Paused, TrainingFailed
from worker_agent.trainer.recipe import recipe_file
from worker_agent.trainer.recipe.data import Rows
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.saving import export
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints
from worker_agent.trainer.setup import runtime
from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.training_run import TrainingRun


def train(process: Process, build: Callable[[Recipe, int], Engine]) -> None:
    """Train and save what `build` makes of the recipe, from the step on that it is given.

    1. Load the recipe, and build. 2. Take up the checkpoint that the run begins with. 3. Train. 4. Save the model.
    """
    run, emitter = process.run, process.emitter
    emitter.phase(PhaseName.BUILDING)
    runtime.seed_everything(run.spec.seed)
    runtime.set_precision(run.spec.precision)
    recipe = recipe_file.load(run.entry, run.code, run.spec.params)
    checkpoints = Checkpoints(run, emitter)
    engine = build(recipe, checkpoints.start.step)
    checkpoints.take_up(engine.state, size=engine.size, rate=engine.rate.aim)
    if checkpoints.has_other_rate:
        engine.rate.take()
    if run.restore is not None and engine.mean(checkpoints.start.step) != checkpoints.start.step:
        raise TrainingFailed("The processes of this gang found different checkpoints: the folder is not shared by all.")
    known = {
        "keras": runtime.keras_in_words(),
        "devices": process.devices,
        "precision": run.spec.precision,
        "steps_per_epoch": engine.size.steps_per_epoch,
    }
    emitter.facts(**known | dict(engine.facts))
    judged = Rows(recipe, "validation")
    training = Training(
        engine,
        run,
        validation=engine.validation(judged) if run.spec.validation == Validator.GANG and judged.exist else None,
        callbacks=recipe.callbacks(),
        emitter=emitter,
        stop=process.stop,
        checkpoints=checkpoints,
    )
    try:
        metrics = training.run()
    except Paused:
        _leave_together(engine)
        raise
    if run.leads:
        emitter.phase(PhaseName.SAVING)
    _save_model(run, recipe, engine, metrics)
    _leave_together(engine)


def _save_model(run: TrainingRun, recipe: Recipe, engine: Engine, metrics: Mapping[str, float]) -> None:
    steps = int(engine.steps.count.numpy())
    model = engine.learner.whole_model(keep=run.leads)
    if run.leads:
        export.write(run, recipe, model, metrics=metrics, steps=steps)
    elif engine.learner.saves_together and run.artifacts is not None:
        with TemporaryDirectory(prefix="export-") as scratch:
            dropped = replace(run, artifacts=Path(scratch) / "artifacts")
            export.write(dropped, recipe, model, metrics=metrics, steps=steps)


def _leave_together(engine: Engine) -> None:
    """Nobody of a gang ends while the leader still saves: its coordination service would take that for a death."""
    with suppress(tf.errors.OpError):  # the others were faster out of the door; everything of ours is done
        engine.mean(0.0)
