"""Tensor parallel: each layer is split over `model_parallel` devices, and what is left of the gang splits the batch.

One process or several, on one node or several: DTensor makes one mesh of all their devices, and every process runs the
same steps. No process holds all parameters; checkpoints bring
some variables together at a time, in the chief, and the export at the end the whole model.
"""

from typing import Any

import keras
import tensorflow as tf

from worker_agent.protocol.states import DeviceKind
from worker_agent.trainer.loop.compiled_model import private
from worker_agent.trainer.loop.rate import Rate, rate_of
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe import data, recipe_file
from worker_agent.trainer.recipe.division import Division, Policy
from worker_agent.trainer.recipe.run_size import Size, size_of
from worker_agent.trainer.saving import export
from worker_agent.trainer.saving.gang_checkpoints import Checkpoints
from worker_agent.trainer.setup import rendezvous, runtime
from worker_agent.trainer.strategies import course
from worker_agent.trainer.strategies.interface import Task
from worker_agent.trainer.strategies.tensor import layouts, mesh, variables
from worker_agent.trainer.strategies.tensor.mesh import Mesh
from worker_agent.trainer.strategies.tensor.pins import Pins
from worker_agent.trainer.strategies.tensor.steps import Evaluation, MeshModel, Steps
from worker_agent.trainer.strategies.tensor.stored import MeshState
from worker_agent.trainer.training_run import TrainingRun

LAYOUTS_TOLD = 200


def train(task: Task) -> None:
    """Meet the gang, lay out the mesh, then train as one part of it."""
    run, spec = task.run, task.run.spec
    check_spec(spec)
    mesh.shape_of(run)
    _meet(task)
    with rendezvous.tensorflow_guard(run.rendezvous_timeout_s):
        grid = mesh.create(run)
    task.emitter.phase("building")
    runtime.seed_everything(spec.seed)
    recipe = recipe_file.load(run.entry, run.code, spec.params)
    rows = data.Rows(recipe, "train")
    size = size_of(
        rows=data.count_rows(rows.whole),
        global_batch=spec.global_batch_size,
        replicas=grid.batch,
        epochs=spec.epochs,
    )
    checkpoints = Checkpoints(run, task.emitter)
    train_data = data.training_input(grid.share, rows, size, seed=spec.seed, start_step=checkpoints.start.step)
    compute_output_spec = private("keras.src.backend", "compute_output_spec")
    with variables.deferred():
        model = variables.checked(recipe.model())
        batch = symbols(train_data, size.batch)
        if not all(layer.built for layer in model._flatten_layers()):
            compute_output_spec(model, batch[0], training=False)
    specs = layouts.of_model(model, recipe.layouts(), grid.model)
    listed = variables.place_all(model, grid, specs, batch)
    _tell(task, grid, model)
    learner = MeshModel(model, Pins(grid, model, specs))
    _drive(task, grid, recipe, learner, listed, size, train_data, checkpoints)


def check_spec(spec: Any) -> None:
    """Raise `TrainingFailed` for what this strategy does not do."""
    refused = (
        (spec.precision != "float32", "float32 only"),
        (spec.accumulation != 1, "no accumulation: make the global batch smaller"),
        (spec.jit, "no XLA"),
        (spec.validation != "gang", "validation by the gang only"),
    )
    for wrong, reason in refused:
        if wrong:
            raise TrainingFailed(f"Tensor parallel offers {reason}.")


def _meet(task: Task) -> None:
    run = task.run
    if not run.gang:
        return
    deadline = task.deadline()
    task.emitter.phase("rendezvous", f"{len(run.gang)} processes")
    if task.meeting is not None:
        task.meeting.gather(deadline=deadline, stop=task.stop)
    else:
        first = next(member for member in run.gang if member.index == 0)
        rendezvous.join(run, first, deadline=deadline, stop=task.stop)


def symbols(train_data: Any, rows: int) -> Any:
    """Symbols of a global batch."""

    def symbol(spec: tf.TensorSpec) -> Any:
        return keras.KerasTensor((rows, *spec.shape[1:]), keras.backend.standardize_dtype(spec.dtype))

    return tf.nest.map_structure(symbol, train_data.element_spec)


def _tell(task: Task, grid: Mesh, model: Any) -> None:
    """What is particular to this replica."""
    placed = [(variable.path, variable._value) for variable in model.variables]
    table = [
        {"variable": path, "shape": list(value.shape), "layout": value.specs, "bytes_here": value.bytes_here}
        for path, value in placed
    ]
    task.emitter.facts(
        mesh={"batch": grid.batch, "model": grid.model},
        replicas_in_sync=grid.batch,
        communication=_communication(task.run),
        sharding=Division(policy=Policy.DATA, reason=_shared_out(grid)).told,
        devices=task.devices,
        keras=runtime.keras_in_words(),
        precision=task.run.spec.precision,
        parameters=sum(value.elements_here for _, value in placed),
        parameters_total=sum(value.shape.num_elements() for _, value in placed),
        layouts=table[:LAYOUTS_TOLD],
    )


def _communication(run: TrainingRun) -> str:
    if run.workers * run.devices == 1:
        return "none"
    how = "NCCL" if run.device_kind is DeviceKind.GPU else "gRPC" if run.workers > 1 else "memory"
    return f"DTensor, over {how}"


def _shared_out(grid: Mesh) -> str:
    if grid.batch == 1:
        return "All devices split the layers, so each of them sees every row."
    return f"Every process reads all rows and keeps those of its devices' place among {grid.batch} parts of a batch."


def _drive(
    task: Task,
    grid: Mesh,
    recipe: recipe_file.Recipe,
    learner: MeshModel,
    listed: list[Any],
    size: Size,
    train_data: Any,
    checkpoints: Checkpoints,
) -> None:
    run, model = task.run, learner.model
    rate = rate_of(run, model.optimizer, size, replicas=grid.batch)
    steps = Steps(mesh=grid, learner=learner, variables=listed, rate=rate, train_data=train_data)
    state = MeshState([*variables.values_of(model), steps.count], chief=run.chief)
    checkpoints.attach(state, size=size, rate=rate.aim)
    if run.restore is not None:
        _resume(checkpoints, grid, rate)
    rows = data.Rows(recipe, "validation")
    validation = None
    if rows.exist:
        validation = Evaluation(
            mesh=grid, learner=learner, variables=listed, rows=rows, batch=size.batch, stop=task.stop
        )
    trained = course.take(
        task,
        recipe=recipe,
        learner=learner,
        steps=steps,
        rate=rate,
        size=size,
        checkpoints=checkpoints,
        validation=validation,
        workers=run.workers,
        leave_together=lambda: _leave_together(grid),
    )
    variables.bring_together(model, keep=run.chief)
    if run.chief:
        export.write(run, recipe, model, metrics=trained.metrics, steps=trained.steps)
    _leave_together(grid)


def _leave_together(grid: Mesh) -> None:
    """Nobody leaves while the chief still saves: its coordination service would take that for a death."""
    grid.mean(0.0)


def _resume(checkpoints: Checkpoints, grid: Mesh, rate: Rate) -> None:
    """Take up the checkpoint, in every process the same one."""
    step = checkpoints.restore().step
    if checkpoints.has_other_rate:
        rate.take()
    if grid.mean(step) != step:
        raise TrainingFailed("The processes of this gang found different checkpoints: the folder is not shared by all.")
