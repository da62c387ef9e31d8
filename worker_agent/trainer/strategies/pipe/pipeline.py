"""Pipeline: consecutive layers on different devices, of one process or of several nodes.

The first worker builds the model, with each stage's variables on its device, reads the data and drives the steps; the
other workers serve their devices. The recipe says where the model is cut: `build_stages(params, count)`.
"""

from typing import Any

import tensorflow as tf

from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.trainer.emit import say
from worker_agent.trainer.loop.evaluate import ReplicaEvaluation
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.loop.training import Engine
from worker_agent.trainer.model.deferred import deferred
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import data, recipe_file
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import size_of
from worker_agent.trainer.saving.state import Variables
from worker_agent.trainer.setup import rendezvous
from worker_agent.trainer.setup.answering import stay_answerable
from worker_agent.trainer.strategies import engine
from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.strategies.pipe.learner import PipeLearner, checked
from worker_agent.trainer.strategies.pipe.stages import StagePlan, device_names
from worker_agent.trainer.strategies.pipe.steps import PipeSteps
from worker_agent.trainer.strategies.serving import serve
from worker_agent.trainer.training_run import TrainingRun


def train(process: Process) -> None:
    """In the first worker: the training. In the others: serve until the process is ended from outside."""
    run, spec = process.run, process.run.spec
    if run.index > 0:
        process.emitter.facts(devices=process.devices)
        serve(process, once_there=lambda: _tell_own_stages(process))
    if spec.global_batch_size % spec.micro_batches:
        raise TrainingFailed(
            f"The global batch of {spec.global_batch_size} does not divide by {spec.micro_batches} micro-batches."
        )
    if len(run.gang) > 1:
        _connect(process)
    engine.train(process, lambda recipe, start: _build(process, recipe, start))


def check(spec: JobSpec, recipe: Recipe, model: Any, dataset: Any) -> int:
    """See `interface.Check`."""
    devices = [f"stage {place}" for place in range(spec.workers * spec.devices_per_worker)]
    StagePlan(recipe.stages(len(devices)), devices).cut(checked(model))
    return 1


def _plan(run: TrainingRun, recipe: Recipe) -> StagePlan:
    devices = device_names(run)
    return StagePlan(recipe.stages(len(devices)), devices)


def _tell_own_stages(process: Process) -> None:
    """How many parameters lie here. The model is made without values: the first worker makes those, in this process."""
    run = process.run
    try:
        recipe = recipe_file.load(run.entry, run.code, run.spec.params)
        plan = _plan(run, recipe)
        with deferred():
            model = recipe.model()
        names = [name for names in plan.layers[run.index * run.devices :][: run.devices] for name in names]
        process.emitter.facts(
            parameters=sum(model.get_layer(name).count_params() for name in names),
            parameters_total=model.count_params(),
        )
    except Exception as error:  # what is wrong with the program, the first worker says
        say(f"How many parameters this worker holds is not known: {type(error).__name__}: {error}")


def _connect(process: Process) -> None:
    process.wait_for_servers()
    addresses = [f"{member.host}:{member.port}" for member in process.run.gang]
    with rendezvous.tensorflow_guard(process.run.rendezvous_timeout_s):
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec({"worker": addresses}), job_name="worker", task_index=0, protocol="grpc"
        )
    stay_answerable()


def _build(process: Process, recipe: Recipe, start_step: int) -> Engine:
    run, spec = process.run, process.run.spec
    plan = _plan(run, recipe)
    with plan.placing():
        learner = PipeLearner(recipe.model(), plan)
    rows = data.Rows(recipe, "train")
    size = size_of(spec, rows=data.count_rows(rows.whole), replicas=1)
    train_data = data.training_input(learner.strategy, rows, size, seed=spec.seed, start_step=start_step)
    with plan.placing():
        learner.create_variables(train_data.element_spec)
    rate = rate_of(run, learner.optimizer, size, replicas=1)
    steps = PipeSteps(
        learner=learner,
        rate=rate,
        train_data=train_data,
        parts=spec.micro_batches,
        total_steps=size.total_steps,
        emitter=process.emitter,
    )
    return Engine(
        learner=learner,
        steps=steps,
        rate=rate,
        size=size,
        # By the first worker alone: else every process would use its own machine's disk.
        state=Variables([*learner.state, steps.count], device=tf.config.list_logical_devices("CPU")[0].name),
        facts=_facts(run, learner),
        validation=lambda judged: ReplicaEvaluation(learner, judged, process.stop, batch=size.batch),
    )


def _facts(run: TrainingRun, learner: PipeLearner) -> dict[str, Any]:
    """What is particular to this training."""
    plan, parts = learner.plan, run.spec.micro_batches
    count = len(plan.devices)
    table = [
        {
            "stage": place,
            "device": device.partition("/device:")[2],
            "worker": place // run.devices,
            "layers": ", ".join(names),
            "parameters": stage.count_params(),
        }
        for place, (device, names, stage) in enumerate(zip(plan.devices, plan.layers, learner.stages, strict=True))
    ]
    return {
        "stages": table,
        "micro_batches": parts,
        "bubble": round((count - 1) / (parts + count - 1), 3),
        "replicas_in_sync": 1,
        "parameters": sum(stage.count_params() for stage in learner.stages[: run.devices]),
        "parameters_total": learner.model.count_params(),
    }
