"""Pipeline: consecutive layers on different devices, of one process or of several nodes.

The first worker builds the model, with each stage's variables on its device, reads the data and drives the steps; the
other workers serve their devices. The recipe says where the model is cut: `build_stages(params, count)`.
"""

from typing import Any

import tensorflow as tf

from worker_agent.trainer.emit import say
from worker_agent.trainer.loop.evaluate import Evaluation
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import data, recipe_file
from worker_agent.trainer.recipe.run_size import Size, size_of
from worker_agent.trainer.saving import export
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints
from worker_agent.trainer.setup import rendezvous, runtime
from worker_agent.trainer.strategies import course
from worker_agent.trainer.strategies.interface import Task
from worker_agent.trainer.strategies.pipe import stages
from worker_agent.trainer.strategies.pipe.learner import PipeLearner, PipeVariables
from worker_agent.trainer.strategies.pipe.steps import Steps
from worker_agent.trainer.strategies.serving import serve
from worker_agent.trainer.strategies.tensor.variables import deferred


def train(task: Task) -> None:
    """In the first worker: the training. In the others: serve until the process is ended from outside."""
    if task.run.index > 0:
        task.emitter.facts(devices=task.devices)
        serve(task, once_there=lambda: _tell_own_stages(task))
    run, spec = task.run, task.run.spec
    if spec.global_batch_size % spec.micro_batches:
        raise TrainingFailed(
            f"The global batch of {spec.global_batch_size} does not divide by {spec.micro_batches} micro-batches."
        )
    if len(run.gang) > 1:
        _connect(task)
    task.emitter.phase("building")
    runtime.seed_everything(spec.seed)
    runtime.set_precision(spec.precision)
    recipe = recipe_file.load(run.entry, run.code, spec.params)
    devices = stages.device_names(run)
    plan = stages.Plan(recipe.stages(len(devices)), devices)
    with plan.placing():
        learner = PipeLearner(recipe.model(), plan)
    rows = data.Rows(recipe, "train")
    size = size_of(
        rows=data.count_rows(rows.whole), global_batch=spec.global_batch_size, replicas=1, epochs=spec.epochs
    )
    _tell(task, learner)
    _drive(task, recipe, learner, rows, size)


def _tell_own_stages(task: Task) -> None:
    """How many parameters lie here. The model is made without values: the first worker makes those, in this process."""
    run = task.run
    try:
        recipe = recipe_file.load(run.entry, run.code, run.spec.params)
        devices = stages.device_names(run)
        plan = stages.Plan(recipe.stages(len(devices)), devices)
        with deferred():
            model = recipe.model()
        names = [name for names in plan.layers[run.index * run.devices :][: run.devices] for name in names]
        task.emitter.facts(
            parameters=sum(model.get_layer(name).count_params() for name in names),
            parameters_total=model.count_params(),
        )
    except Exception as error:  # what is wrong with the program, the first worker says
        say(f"How many parameters this worker holds is not known: {type(error).__name__}: {error}")


def _connect(task: Task) -> None:
    run = task.run
    task.emitter.phase("rendezvous", f"{len(run.gang)} processes")
    rendezvous.wait_for_ports(run, run.others, deadline=task.deadline(), stop=task.stop)
    addresses = [f"{member.host}:{member.port}" for member in run.gang]
    with rendezvous.tensorflow_guard(run.rendezvous_timeout_s):
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec({"worker": addresses}), job_name="worker", task_index=0, protocol="grpc"
        )


def _tell(task: Task, learner: PipeLearner) -> None:
    """What is particular to this training."""
    run, plan = task.run, learner.plan
    count, parts = len(plan.devices), run.spec.micro_batches
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
    task.emitter.facts(
        stages=table,
        micro_batches=parts,
        bubble=round((count - 1) / (parts + count - 1), 3),
        replicas_in_sync=1,
        devices=task.devices,
        keras=runtime.keras_in_words(),
        precision=run.spec.precision,
        parameters=sum(stage.count_params() for stage in learner.stages[: run.devices]),
        parameters_total=learner.model.count_params(),
    )


def _drive(task: Task, recipe: recipe_file.Recipe, learner: PipeLearner, rows: data.Rows, size: Size) -> None:
    run, spec = task.run, task.run.spec
    checkpoints = Checkpoints(run, task.emitter)
    train_data = data.training_input(learner.strategy, rows, size, seed=spec.seed, start_step=checkpoints.start.step)
    with learner.plan.placing():
        learner.create_variables(train_data.element_spec)
    rate = rate_of(run, learner.optimizer, size, replicas=1)
    steps = Steps(
        learner=learner,
        rate=rate,
        train_data=train_data,
        parts=spec.micro_batches,
        total_steps=size.total_steps,
        emitter=task.emitter,
    )
    checkpoints.attach(PipeVariables([*learner.state, steps.count]), size=size, rate=rate.aim)
    if run.restore is not None:
        checkpoints.restore()
        if checkpoints.has_other_rate:
            rate.take()
    trained = course.take(
        task,
        recipe=recipe,
        learner=learner,
        steps=steps,
        rate=rate,
        size=size,
        checkpoints=checkpoints,
        validation=_validation(task, learner, recipe),
        workers=1,
    )
    export.write(run, recipe, learner.model, metrics=trained.metrics, steps=trained.steps)


def _validation(task: Task, learner: PipeLearner, recipe: recipe_file.Recipe) -> Any:
    rows = data.Rows(recipe, "validation")
    if not rows.exist:
        return None
    return Evaluation(
        learner,
        lambda: data.validation_input(
            learner.strategy, rows, workers=1, worker=0, batch=task.run.spec.global_batch_size
        ),
        task.stop,
    )
