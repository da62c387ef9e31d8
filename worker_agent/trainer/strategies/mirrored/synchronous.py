"""What the synchronous strategies share: from a strategy object to its engine, in either Keras."""

from typing import Any

import tensorflow as tf

from worker_agent.protocol.job.gang_shape import least_replicas
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import DeviceKind
from worker_agent.trainer.loop.evaluate import ReplicaEvaluation
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.loop.replica_steps import ReplicaSteps, check_jit, check_own_step
from worker_agent.trainer.loop.training import Engine
from worker_agent.trainer.model.compiled_model import own_parts
from worker_agent.trainer.model.learners import learner_of
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import data
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import size_of
from worker_agent.trainer.saving.state import Variables
from worker_agent.trainer.strategies import engine
from worker_agent.trainer.strategies.interface import Process


def train(process: Process, strategy: tf.distribute.Strategy, *, communication: str) -> None:
    """Train under `strategy`. `communication` says in words how the replicas exchange gradients."""
    engine.train(process, lambda recipe, start: _build(process, strategy, communication, recipe, start))


def _build(
    process: Process, strategy: tf.distribute.Strategy, communication: str, recipe: Recipe, start_step: int
) -> Engine:
    run, spec = process.run, process.run.spec
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        learner = learner_of(recipe.model(), strategy)
    parts = parts_of(spec.accumulation, learner.parts)
    rows = data.Rows(recipe, "train")
    division = rows.division(spec.sharding, pipelines=run.workers)
    usable = data.shared_rows(strategy, rows, division, pipelines=run.workers)
    size = size_of(spec, rows=usable, replicas=replicas, parts=parts)
    # One replica on the processor needs nobody to bring its batches to devices.
    alone = replicas == run.workers and run.device_kind is DeviceKind.CPU
    reader = data.Share(parts=run.workers, part=run.place) if alone else strategy
    train_data = data.training_input(
        reader, rows, size.in_parts(parts), seed=spec.seed, start_step=start_step * parts, sharding=spec.sharding
    )
    learner.create_variables(_one_replica(train_data.element_spec))
    with strategy.scope():
        rate = rate_of(run, learner.optimizer, size, replicas=replicas)
    steps = ReplicaSteps(
        learner=learner, rate=rate, train_data=train_data, global_batch=size.batch, parts=parts, jit=spec.jit
    )
    return Engine(
        learner=learner,
        steps=steps,
        rate=rate,
        size=size,
        state=Variables([*learner.state, steps.count], learner.metrics_as_sums),
        facts={
            "replicas_in_sync": replicas,
            "communication": communication,
            "accumulation": parts,
            "jit": spec.jit,
            "parameters": learner.model.count_params(),
            "sharding": division.facts,
        },
        validation=lambda judged: ReplicaEvaluation(
            learner, judged, process.stop, batch=size.batch, workers=run.workers, worker=run.place
        ),
        workers=run.workers,
        mean=lambda number: _mean(strategy, number) if run.workers > 1 else number,
    )


def check(spec: JobSpec, recipe: Recipe, model: Any, dataset: Any) -> int:
    """See `interface.Check`."""
    parts = parts_of(spec.accumulation, own_parts(model))
    check_own_step(model, parts=parts, jit=spec.jit)
    if spec.jit:
        check_jit(model, replicas=least_replicas(spec))
    return parts


def parts_of(asked: int, own: int) -> int:
    """In how many parts a step is computed: as the job asks, or as the recipe's optimizer does by itself (`own`)."""
    if asked > 1 and own > 1 and asked != own:
        raise TrainingFailed(
            f"The job accumulates {asked} parts of a step, the recipe's optimizer {own}", remedy="set one of the two"
        )
    return max(asked, own)


def _one_replica(element_spec: Any) -> Any:
    """The shapes of one replica's batch, of a dataset for several."""
    return tf.nest.map_structure(
        lambda spec: spec if isinstance(spec, tf.TensorSpec) else spec._value_specs[0], element_spec
    )


def _mean(strategy: tf.distribute.Strategy, number: float) -> float:
    """Over the replicas, of what their processes say."""
    mine = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(number, tf.float64))
    return float(strategy.reduce(tf.distribute.ReduceOp.MEAN, mine, axis=None))
