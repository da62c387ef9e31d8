"""Tensor parallel: each layer is split over `model_parallel` devices, and what is left of the gang splits the batch.

One process or several, on one node or several: DTensor makes one mesh of all their devices, and every process runs the
same steps. No process holds all parameters; checkpoints bring
some variables together at a time, in the leader, and the export at the end the whole model.
"""

from typing import Any

import keras
import tensorflow as tf

from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import DeviceKind
from worker_agent.trainer.loop.rate import rate_of
from worker_agent.trainer.loop.training import Engine
from worker_agent.trainer.model.compiled_model import private
from worker_agent.trainer.model.deferred import deferred
from worker_agent.trainer.recipe import data
from worker_agent.trainer.recipe.division import Division, Policy
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import size_of
from worker_agent.trainer.setup import rendezvous
from worker_agent.trainer.strategies import engine
from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.strategies.tensor import layouts, mesh, variables
from worker_agent.trainer.strategies.tensor.learner import MeshLearner
from worker_agent.trainer.strategies.tensor.mesh import Mesh, Specs
from worker_agent.trainer.strategies.tensor.pins import Pins
from worker_agent.trainer.strategies.tensor.steps import MeshEvaluation, MeshSteps
from worker_agent.trainer.strategies.tensor.stored import MeshState
from worker_agent.trainer.training_run import TrainingRun

LAYOUTS_MAX = 200


def train(process: Process) -> None:
    """Meet the gang, lay out the mesh, then train as one part of it."""
    run = process.run
    if run.gang:
        process.meet()
    with rendezvous.tensorflow_guard(run.rendezvous_timeout_s):
        grid = mesh.create(run)
    engine.train(process, lambda recipe, start: _build(process, grid, recipe, start))


def _build(process: Process, grid: Mesh, recipe: Recipe, start_step: int) -> Engine:
    run, spec = process.run, process.run.spec
    rows = data.Rows(recipe, "train")
    size = size_of(spec, rows=data.count_rows(rows.whole), replicas=grid.batch)
    train_data = data.training_input(grid.share, rows, size, seed=spec.seed, start_step=start_step)
    with deferred():
        model = variables.checked(recipe.model())
        batch = _symbols(train_data, size.batch)
        specs = _layouts(recipe, model, batch, grid.model)
    listed = variables.place_all(model, grid, specs, batch)
    learner = MeshLearner(model, Pins(grid, model, specs))
    facts = _facts(run, grid, model)
    rate = rate_of(run, model.optimizer, size, replicas=grid.batch)
    steps = MeshSteps(mesh=grid, learner=learner, variables=listed, rate=rate, train_data=train_data)
    return Engine(
        learner=learner,
        steps=steps,
        rate=rate,
        size=size,
        state=MeshState([*variables.values_of(model), steps.count], leads=run.leads),
        facts=facts,
        validation=lambda judged: MeshEvaluation(
            mesh=grid, learner=learner, variables=listed, rows=judged, batch=size.batch, stop=process.stop
        ),
        workers=run.workers,
        mean=grid.mean,
    )


def check(spec: JobSpec, recipe: Recipe, model: Any, dataset: Any) -> int:
    """See `interface.Check`."""
    batch = _symbols(dataset.batch(spec.global_batch_size), spec.global_batch_size)
    _layouts(recipe, variables.checked(model), batch, spec.model_parallel)
    return 1


def _layouts(recipe: Recipe, model: Any, batch: Any, model_parallel: int) -> dict[str, Specs]:
    """What splits each variable, once all of them are there."""
    if not all(layer.built for layer in model._flatten_layers()):
        private("keras.src.backend", "compute_output_spec")(model, batch[0], training=False)
    return layouts.model_layouts(model, recipe.layouts(), model_parallel)


def _symbols(train_data: Any, rows: int) -> Any:
    """Symbols of a global batch."""

    def symbol(spec: tf.TensorSpec) -> Any:
        return keras.KerasTensor((rows, *spec.shape[1:]), keras.backend.standardize_dtype(spec.dtype))

    return tf.nest.map_structure(symbol, train_data.element_spec)


def _facts(run: TrainingRun, grid: Mesh, model: Any) -> dict[str, Any]:
    """What is particular to this replica."""
    placed = [(variable.path, variable._value) for variable in model.variables]
    table = [
        {"variable": path, "shape": list(value.shape), "layout": value.specs, "bytes_here": value.bytes_here}
        for path, value in placed
    ]
    return {
        "mesh": {"batch": grid.batch, "model": grid.model},
        "replicas_in_sync": grid.batch,
        "communication": _communication(run),
        "sharding": Division(policy=Policy.DATA, reason=_shared_out(grid)).facts,
        "parameters": sum(value.elements_here for _, value in placed),
        "parameters_total": sum(value.shape.num_elements() for _, value in placed),
        "layouts": table[:LAYOUTS_MAX],
    }


def _communication(run: TrainingRun) -> str:
    if run.workers * run.devices == 1:
        return "none"
    how = "NCCL" if run.device_kind is DeviceKind.GPU else "gRPC" if run.workers > 1 else "memory"
    return f"DTensor, over {how}"


def _shared_out(grid: Mesh) -> str:
    if grid.batch == 1:
        return "All devices split the layers, so each of them sees every row."
    return f"Every process reads all rows and keeps those of its devices' place among {grid.batch} parts of a batch."
