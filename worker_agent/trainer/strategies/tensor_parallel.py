"""Tensor parallel: each layer is split over `model_parallel` devices, and what is left of the gang splits the batch.

One process or several, on one node or several: DTensor makes one mesh of all their devices, and every process runs the
same steps. No process holds all parameters; only the export at the end brings the whole model together, in the chief.
"""

import math
from dataclasses import replace
from time import time
from typing import Any

import keras
import tensorflow as tf

from worker_agent.protocol.records import Facts
from worker_agent.trainer import data, export, program, rendezvous, runtime
from worker_agent.trainer.checkpoints import Checkpoints
from worker_agent.trainer.emit import say
from worker_agent.trainer.loop.driver import Driver
from worker_agent.trainer.loop.rate import Rate
from worker_agent.trainer.loop.voice import Voice
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.size import Size, size_of
from worker_agent.trainer.strategies.interface import Task
from worker_agent.trainer.strategies.tensor import layouts, mesh, variables
from worker_agent.trainer.strategies.tensor.mesh import Mesh
from worker_agent.trainer.strategies.tensor.pins import Pins
from worker_agent.trainer.strategies.tensor.steps import Evaluation, MeshModel, Steps

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
    recipe = program.load(run.entry, run.code, spec.params)
    rows = data.Rows(recipe, "train")
    size = size_of(
        rows=data.count_rows(rows.whole), global_batch=spec.global_batch_size, replicas=grid.batch, epochs=spec.epochs
    )
    train_data = data.training_input(grid.share, rows, size, seed=spec.seed)
    with variables.deferred():
        model = variables.checked(recipe.model())
        batch = _symbols(train_data, size.batch)
        if not all(layer.built for layer in model._flatten_layers()):
            keras.src.backend.compute_output_spec(model, batch[0], training=False)
    specs = layouts.of_model(model, recipe.layouts(), grid.model)
    listed = variables.place_all(model, grid, specs, batch)
    _tell(task, grid, model)
    learner = MeshModel(model, Pins(grid, model, specs))
    _drive(task, grid, recipe, learner, listed, size, train_data)


def check_spec(spec: Any) -> None:
    """Raise `TrainingFailed` for what this strategy does not do."""
    refused = {
        "precision": (spec.precision != "float32", "float32 only"),
        "accumulation": (spec.accumulation != 1, "no accumulation: make the global batch smaller"),
        "jit": (spec.jit, "no XLA"),
        "validation": (spec.validation != "gang", "validation by the gang only"),
        "resume_from": (spec.resume_from != 0, "no checkpoints yet: it writes none and begins with none"),
    }
    for wrong, reason in refused.values():
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


def _symbols(train_data: Any, rows: int) -> Any:
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
    facts = {
        "mesh": {"batch": grid.batch, "model": grid.model},
        "replicas_in_sync": grid.batch,
        "devices": task.devices,
        "keras": runtime.keras_in_words(),
        "precision": task.run.spec.precision,
        "parameters": sum(value.elements_here for _, value in placed),
        "parameters_total": sum(value.shape.num_elements() for _, value in placed),
        "layouts": table[:LAYOUTS_TOLD],
    }
    task.emitter.record(Facts(at=time(), facts=facts))
    if task.run.chief and task.run.artifacts is not None:
        say("Tensor parallel writes no checkpoints; the whole model comes together once, in the chief, for model.keras")


def _drive(
    task: Task, grid: Mesh, recipe: program.Program, learner: MeshModel, listed: list[Any], size: Size, train_data: Any
) -> None:
    run, spec, model = task.run, task.run.spec, learner.model
    rate = Rate(
        model.optimizer,
        base=spec.learning_rate,
        target=run.scaled_rate,
        factor={"linear": grid.batch, "sqrt": math.sqrt(grid.batch)}.get(spec.lr_scaling, 1),
        warmup_steps=round(spec.warmup_epochs * size.steps_per_epoch),
    )
    voice = Voice(task.emitter, size, leads=run.chief, workers=run.workers)
    validation_rows = data.Rows(recipe, "validation")
    driver = Driver(
        learner=learner,
        steps=Steps(mesh=grid, learner=learner, variables=listed, rate=rate, train_data=train_data),
        rate=rate,
        size=size,
        validation=Evaluation(
            mesh=grid, learner=learner, variables=listed, rows=validation_rows, batch=size.batch, stop=task.stop
        )
        if validation_rows.exist
        else None,
        average_state=lambda: None,
        callbacks=recipe.callbacks(),
        emitter=task.emitter,
        voice=voice,
        stop=task.stop,
        checkpoints=Checkpoints(replace(run, checkpoints=None, restore=None), task.emitter),
        steps_per_execution=spec.steps_per_execution,
    )
    steps_done = driver.train()
    task.emitter.phase("saving")
    variables.bring_together(model, keep=run.chief)
    if run.chief:
        export.write(run, recipe, model, metrics=voice.last_metrics, steps=steps_done)
    grid.mean(0.0)  # nobody leaves while the chief still saves: its coordination service would take that for a death
