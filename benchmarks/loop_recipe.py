"""The recipe that `loop` has the product train. Its callback is where the rounds alternate: each epoch of the product's
own training is timed, and when it is over, the rivals take as many steps in the same process.
"""

import sys
from time import perf_counter

import keras
import numpy as np
import tensorflow as tf

from benchmarks.loop_rivals import LEARNING_RATE, BareMesh, BarePipe, BareReplicas, BareServed, Course, Fit, timed
from trainyard import log
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.recipe.run_size import Size
from worker_agent.trainer.script.fitpatch import correct_fit

PARAMS = {
    "model": {"type": "choice", "default": "mlp", "choices": ["mlp", "cnn", "wide"]},
    "strategy": {"type": "str", "default": "one_device"},
    "steps": {"type": "int", "default": 400},
    "fit_steps": {"type": "int", "default": 0},
    "batch": {"type": "int", "default": 64},
    "epochs": {"type": "int", "default": 8},
    "seed": {"type": "int", "default": 0},
    "devices": {"type": "int", "default": 1},
    "parts": {"type": "int", "default": 1},
    "checked_rounds": {"type": "int", "default": 2},
}
CLASSES = 10
SHAPES = {"mlp": (32,), "cnn": (16, 16, 3), "wide": (256,)}
STAGES = {
    "mlp": [["first"], ["second", "scores"]],
    "cnn": [["first"], ["second", "pool", "flat", "scores"]],
    "wide": [["first"], ["second", "scores"]],
}


def build_model(params):
    """A small one, where a step is mostly overhead, and two where it is mostly computing. Smooth ones: at the kink of a
    ReLU, rounding alone would part the losses of loops that compute the same."""
    layers = keras.layers
    body = {
        "mlp": lambda: [layers.Dense(64, "tanh", name="first"), layers.Dense(64, "tanh", name="second")],
        "wide": lambda: [layers.Dense(1024, "tanh", name="first"), layers.Dense(1024, "tanh", name="second")],
        "cnn": lambda: [
            layers.Conv2D(32, 3, activation="tanh", name="first"),
            layers.Conv2D(64, 3, activation="tanh", name="second"),
            layers.MaxPooling2D(name="pool"),
            layers.Flatten(name="flat"),
        ],
    }[params["model"]]()
    model = keras.Sequential([keras.Input(SHAPES[params["model"]]), *body, layers.Dense(CLASSES, name="scores")])
    model.compile(
        keras.optimizers.SGD(LEARNING_RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def build_dataset(params, split):
    """Rows whose class can be learnt. No validation."""
    if split != "train":
        return None
    draw = np.random.RandomState(1)
    x = draw.rand(params["steps"] * params["batch"], *SHAPES[params["model"]]).astype("float32")
    y = x.reshape(len(x), -1)[:, :CLASSES].argmax(axis=1).astype("int32")
    return tf.data.Dataset.from_tensor_slices((x, y))


def build_stages(params, count):
    return STAGES[params["model"]]


def callbacks(params):
    return [Rounds(params)]


class Rounds(keras.callbacks.Callback):
    """Logs, for every round, the milliseconds per step of each, and the losses of the rivals' first ones."""

    def __init__(self, params):
        super().__init__()
        self._asked = params

    def on_train_begin(self, logs=None):
        asked = self._asked
        steps, batch = asked["steps"], asked["batch"]
        size = Size(rows=steps * batch, batch=batch, steps_per_epoch=steps, epochs=asked["epochs"])
        course = Course(program=Recipe(sys.modules[__name__], asked), size=size, seed=asked["seed"])
        strategy = self.model.distribute_strategy
        match asked["strategy"]:
            case "tensor_parallel":
                self._bare = BareMesh(course, self.model, asked["devices"])
            case "pipeline":
                self._bare = BarePipe(course, self.model, STAGES[asked["model"]], parts=asked["parts"])
            case "parameter_server":
                self._bare = BareServed(course, strategy)
            case _:
                self._bare = BareReplicas(course, strategy)
        if asked["strategy"] == "multi_worker_mirrored":
            correct_fit(keras.src.backend.tensorflow.trainer)
        self._fit = Fit(course, strategy, steps=asked["fit_steps"]) if asked["fit_steps"] else None

    def on_epoch_begin(self, epoch, logs=None):
        self._began = perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self._ended = perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        steps = self._asked["steps"]
        seconds = {"ours": (self._ended - self._began) / steps}
        seconds["bare"], losses = timed(self._bare.run, steps)
        if self._fit:
            seconds["fit"], fit_loss = self._fit.run()
        log(epoch + 1, **{f"{name}_ms": value * 1000 for name, value in seconds.items()})
        if epoch < self._asked["checked_rounds"]:
            for place, loss in enumerate(losses.tolist(), start=epoch * steps + 1):
                log(place, bare_loss=loss)
        if epoch == 0 and self._fit:
            log(1, fit_loss=fit_loss)
