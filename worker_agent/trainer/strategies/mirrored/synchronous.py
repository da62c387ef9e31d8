"""What the synchronous strategies share: from a strategy object to the trained model, in either Keras."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf

from worker_agent.trainer.loop.evaluate import Evaluation, state_averager
from worker_agent.trainer.loop.learner import Learner
from worker_agent.trainer.loop.learners import learner_of
from worker_agent.trainer.loop.rate import Rate, rate_of
from worker_agent.trainer.loop.step import Steps
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import data, recipe_file
from worker_agent.trainer.recipe.run_size import size_of
from worker_agent.trainer.saving import export
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints, Variables
from worker_agent.trainer.setup import runtime
from worker_agent.trainer.strategies import course
from worker_agent.trainer.strategies.interface import Task


def train(task: Task, strategy: tf.distribute.Strategy, *, communication: str) -> None:
    """Build, train, validate and export under `strategy`; the process leads if its run is the chief's.

    `communication` says in words how the replicas exchange gradients.
    """
    run, spec = task.run, task.run.spec
    replicas = strategy.num_replicas_in_sync
    task.emitter.phase("building")
    runtime.seed_everything(spec.seed)
    runtime.set_precision(spec.precision)
    recipe = recipe_file.load(run.entry, run.code, spec.params)
    with strategy.scope():
        learner = learner_of(recipe.model(), strategy)
    parts = parts_of(spec.accumulation, learner.parts)
    rows = data.Rows(recipe, "train")
    division = rows.division(spec.sharding, pipelines=run.workers)
    size = size_of(
        rows=data.shared_rows(strategy, rows, division, pipelines=run.workers),
        global_batch=spec.global_batch_size,
        replicas=replicas,
        epochs=spec.epochs,
        parts=parts,
    )
    checkpoints = Checkpoints(run, task.emitter)
    train_data = data.training_input(
        strategy,
        rows,
        size.in_parts(parts),
        seed=spec.seed,
        start_step=checkpoints.start.step * parts,
        sharding=spec.sharding,
    )
    learner.create_variables(_one_replica(train_data.element_spec))
    with strategy.scope():
        rate = rate_of(run, learner.optimizer, size, replicas=replicas)
    steps = Steps(learner=learner, rate=rate, train_data=train_data, global_batch=size.batch, parts=parts, jit=spec.jit)
    checkpoints.attach(Variables([*learner.state, steps.count], learner.metrics_as_sums), size=size, rate=rate.aim)
    if run.restore is not None:
        _resume(checkpoints, strategy, rate)
    task.emitter.facts(
        replicas_in_sync=replicas,
        devices=task.devices,
        communication=communication,
        keras=runtime.keras_in_words(),
        precision=spec.precision,
        accumulation=parts,
        jit=spec.jit,
        parameters=learner.model.count_params(),
        sharding=division.told,
    )
    trained = course.take(
        task,
        recipe=recipe,
        learner=learner,
        steps=steps,
        rate=rate,
        size=size,
        checkpoints=checkpoints,
        validation=_validation(task, learner, recipe),
        workers=run.workers,
        average_state=state_averager(learner),
        leave_together=lambda: _leave_together(strategy, run.workers),
    )
    if run.chief:
        export.write(run, recipe, learner.model, metrics=trained.metrics, steps=trained.steps)
    elif learner.saves_together and run.artifacts is not None:
        with TemporaryDirectory(prefix="export-") as scratch:
            dropped = replace(run, artifacts=Path(scratch) / "artifacts")
            export.write(dropped, recipe, learner.model, metrics=trained.metrics, steps=trained.steps)
    _leave_together(strategy, run.workers)


def parts_of(asked: int, own: int) -> int:
    """In how many parts a step is computed: as the job asks, or as the recipe's optimizer does by itself (`own`)."""
    if asked > 1 and own > 1 and asked != own:
        raise TrainingFailed(
            f"The job accumulates {asked} parts of a step, the recipe's optimizer {own}: set one of the two."
        )
    return max(asked, own)


def _one_replica(element_spec: Any) -> Any:
    """The shapes of one replica's batch, of a dataset for several."""
    return tf.nest.map_structure(
        lambda spec: spec if isinstance(spec, tf.TensorSpec) else spec._value_specs[0], element_spec
    )


def _resume(checkpoints: Checkpoints, strategy: tf.distribute.Strategy, rate: Rate) -> None:
    """Take up the checkpoint, in every process the same one."""
    step = checkpoints.restore().step
    if checkpoints.has_other_rate:
        rate.take()

    def summed() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(step, tf.int64))

    sums = strategy.experimental_local_results(tf.function(lambda: strategy.run(summed), autograph=False)())
    if int(sums[0]) != step * strategy.num_replicas_in_sync:
        raise TrainingFailed("The processes of this gang found different checkpoints: the folder is not shared by all.")


def _validation(task: Task, learner: Learner, recipe: recipe_file.Recipe) -> Evaluation | None:
    rows = data.Rows(recipe, "validation")
    if task.run.spec.validation == "evaluator" or not rows.exist:
        return None
    run = task.run
    return Evaluation(
        learner,
        lambda: data.validation_input(
            learner.strategy, rows, workers=run.workers, worker=run.place, batch=run.spec.global_batch_size
        ),
        task.stop,
    )


def _leave_together(strategy: tf.distribute.Strategy, workers: int) -> None:
    """Nobody of a gang ends while the chief still saves: its coordination service would take that for a death."""
    if workers == 1:
        return
    try:
        strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None)
    except tf.errors.OpError:  # the others were faster out of the door; everything of ours is done
        return
