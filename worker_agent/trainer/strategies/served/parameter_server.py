"""ParameterServer: variables live on the ps processes, each worker makes its own updates, a chief hands out the work.

Speaks tf_keras: under Keras 3 updates get lost. Workers and ps only serve; the chief builds the model, schedules
calls of several steps and is the only one with anything to tell but of itself.
`global_batch_size` examples make one update of one worker, shared by its devices.
"""

from typing import Any

import tensorflow as tf

from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Role
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.loop.training import Engine
from worker_agent.trainer.recipe import data
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import size_of
from worker_agent.trainer.saving.state import Variables
from worker_agent.trainer.setup import rendezvous, runtime
from worker_agent.trainer.setup.answering import stay_answerable
from worker_agent.trainer.strategies import engine
from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.strategies.served import numbered_batches
from worker_agent.trainer.strategies.served.learner import ServedLearner
from worker_agent.trainer.strategies.served.steps import ServedEvaluation, ServedSteps
from worker_agent.trainer.strategies.served.worker_step import WorkerStep
from worker_agent.trainer.strategies.serving import serve

HERE = "/job:chief/task:0/device:CPU:0"


def train(process: Process) -> None:
    """In the chief: the training. In a worker or ps: serve until the process is ended from outside."""
    devices = process.devices if process.run.role is Role.WORKER else []
    process.emitter.facts(keras=runtime.keras_in_words(), devices=devices)
    if process.run.role is not Role.CHIEF:
        serve(process)
    strategy = _connect(process)
    engine.train(process, lambda recipe, start: _build(process, strategy, recipe, start))


def check(spec: JobSpec, recipe: Recipe, model: Any, dataset: Any) -> int:
    """See `interface.Check`. It takes any model."""
    return 1


def _connect(process: Process) -> tf.distribute.ParameterServerStrategy:
    run, spec = process.run, process.run.spec
    process.wait_for_servers()
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner
    with rendezvous.tensorflow_guard(run.rendezvous_timeout_s):
        strategy = tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.TFConfigClusterResolver(),
            variable_partitioner=partitioner(spec.min_shard_bytes, spec.ps) if spec.min_shard_bytes else None,
        )
    stay_answerable()
    # Said of several devices per worker; their parts of a batch are cut in `worker_step`.
    tf.get_logger().addFilter(lambda record: "Please use DistributedDataset" not in record.getMessage())
    if not tf.config.list_logical_devices("GPU"):
        _compute_on_logical_cpus(strategy, spec.devices_per_worker)
    return strategy


def _compute_on_logical_cpus(strategy: tf.distribute.ParameterServerStrategy, count: int) -> None:
    """Have every worker compute on its first `count` CPU devices. TensorFlow computes on all GPUs of a worker, but on
    its first CPU only; the same code runs on the others once it is told of them, before any variable is made."""
    if count > 1:
        kind = strategy.extended.__class__
        devices = tuple(f"/device:CPU:{index}" for index in range(count))
        strategy.extended.__class__ = type(kind.__name__, (kind,), {"worker_devices": property(lambda _: devices)})
        strategy.extended._num_gpus_per_worker = count  # the number of compute devices, whatever they are


def _build(
    process: Process, strategy: tf.distribute.ParameterServerStrategy, recipe: Recipe, start_step: int
) -> Engine:
    run, spec = process.run, process.run.spec
    replicas = strategy.num_replicas_in_sync
    rows = data.Rows(recipe, "train").whole
    size = size_of(spec, rows=data.count_rows(rows), replicas=replicas)
    learner = ServedLearner(recipe, strategy, rows.batch(size.batch).element_spec, seed=spec.seed)
    with strategy.scope():
        rate = rate_of(run, learner.optimizer, size, replicas=replicas)
    step = WorkerStep(learner, rate, rows=size.batch)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    return Engine(
        learner=learner,
        steps=ServedSteps(
            coordinator=coordinator,
            step=step,
            batches=lambda start: numbered_batches.training_batches(recipe, size, seed=spec.seed, start_step=start),
            workers=run.workers,
            start_step=start_step,
            emitter=process.emitter,
        ),
        rate=rate,
        size=size,
        takers=run.workers,
        state=Variables([*learner.state, step.applied], device=HERE),
        facts={
            "devices": [],
            "replicas_in_sync": replicas,
            "sharding": numbered_batches.DIVISION.facts,
            **learner.facts(step.applied, servers=spec.ps),
        },
        validation=lambda judged: ServedEvaluation(
            coordinator=coordinator,
            step=step,
            batches=lambda start: numbered_batches.validation_batches(recipe, batch=size.batch, start=start),
            count=-(-data.count_rows(judged.whole) // size.batch),
            workers=run.workers,
        ),
    )
