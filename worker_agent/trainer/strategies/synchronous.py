"""What the synchronous strategies share: from a strategy object to the trained model, with Keras 3."""

from typing import Any

import tensorflow as tf

from worker_agent.trainer import data, export, program, runtime
from worker_agent.trainer.checkpoints import Checkpoints, Variables
from worker_agent.trainer.loop.driver import Driver
from worker_agent.trainer.loop.evaluate import Evaluation, state_averager
from worker_agent.trainer.loop.prepare import (
    batches_per_step,
    check_model,
    create_variables,
    decorrelate_seeds,
    state_variables,
    take_over,
)
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.step import Steps
from worker_agent.trainer.loop.voice import Voice
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.size import size_of
from worker_agent.trainer.strategies.interface import Task


def train(task: Task, strategy: tf.distribute.Strategy) -> None:
    """Build, train, validate and export under `strategy`; the process leads if its run is the chief's."""
    run = task.run
    replicas = strategy.num_replicas_in_sync
    task.emitter.phase("building")
    runtime.seed_everything(run.spec.seed)
    recipe = program.load(run.entry, run.code, run.spec.params)
    rows = data.Rows(recipe, "train")
    size = size_of(
        rows=data.count_rows(rows.whole),
        global_batch=run.spec.global_batch_size,
        replicas=replicas,
        epochs=run.spec.epochs,
    )
    checkpoints = Checkpoints(run, task.emitter)
    with strategy.scope():
        model = check_model(recipe.model())
    batches_done = checkpoints.start.step * batches_per_step(model.optimizer)
    train_data = data.training_input(strategy, rows, size, seed=run.spec.seed, start_step=batches_done)
    create_variables(model, train_data, strategy)
    decorrelate_seeds(model, strategy)
    taken = take_over(model.optimizer)
    with strategy.scope():
        rate = Rate(
            model.optimizer,
            base=run.spec.learning_rate,
            target=run.scaled_rate,
            factor=replicas if run.spec.lr_scaling == "linear" else 1,
            warmup_steps=round(run.spec.warmup_epochs * size.steps_per_epoch),
        )
    voice = Voice(task.emitter, size, leads=run.chief, workers=run.workers)
    voice.last_metrics = checkpoints.metrics
    steps = Steps(
        strategy=strategy, model=model, taken=taken, rate=rate, train_data=train_data, global_batch=size.batch
    )
    checkpoints.attach(Variables([*state_variables(model), steps.count]), size=size, rate=rate.aim)
    if run.restore is not None:
        _resume(checkpoints, strategy, model, rate)
    driver = Driver(
        model=model,
        steps=steps,
        rate=rate,
        size=size,
        validation=_validation(task, strategy, model, recipe),
        average_state=state_averager(model, strategy),
        callbacks=recipe.callbacks(),
        emitter=task.emitter,
        voice=voice,
        stop=task.stop,
        checkpoints=checkpoints,
    )
    steps_done = driver.train()
    if run.chief:
        task.emitter.phase("saving")
        export.write(run, recipe, model, metrics=voice.last_metrics, steps=steps_done)
    _leave_together(strategy, run.workers)


def _resume(checkpoints: Checkpoints, strategy: tf.distribute.Strategy, model: Any, rate: Rate) -> None:
    """Take up the checkpoint, in every process the same one."""
    step = checkpoints.restore().step
    decorrelate_seeds(model, strategy)  # what is stored is the first replica's
    if checkpoints.has_other_rate:
        rate.take()

    def summed() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(step, tf.int64))

    sums = strategy.experimental_local_results(tf.function(lambda: strategy.run(summed), autograph=False)())
    if int(sums[0]) != step * strategy.num_replicas_in_sync:
        raise TrainingFailed("The processes of this gang found different checkpoints: the folder is not shared by all.")


def _validation(task: Task, strategy: tf.distribute.Strategy, model: Any, recipe: program.Program) -> Evaluation | None:
    rows = data.Rows(recipe, "validation")
    if not rows.exist:
        return None
    return Evaluation(
        strategy,
        model,
        lambda: data.validation_input(
            strategy, rows, workers=task.run.workers, worker=task.run.index, batch=task.run.spec.global_batch_size
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
