"""A recipe with a cause of slowness planted in it: a worker that computes longer, or rows that come late."""

import json
import os
import time

import keras
import numpy as np
import tensorflow as tf

TITLE = "Planted"
DESCRIPTION = "For tests."
PARAMS = {
    "lag_ms": {"type": "float", "default": 0.0, "min": 0.0, "max": 1000.0, "help": "A forward pass takes so much more"},
    "of_worker": {"type": "int", "default": 0, "min": 0, "max": 100, "help": "which lags"},
    "input_ms": {
        "type": "float",
        "default": 0.0,
        "min": 0.0,
        "max": 1000.0,
        "help": "A batch of 16 rows takes so much",
    },
    "seconds": {"type": "float", "default": 35.0, "min": 0.0, "max": 1000.0, "help": "Length of an epoch, about"},
}
WIDTH = 8


def held_up(value, ms):
    """`value`, `ms` later."""
    with tf.control_dependencies([tf.numpy_function(lambda: (time.sleep(ms / 1e3), 0)[1], [], tf.int64)]):
        return tf.identity(value)


class Lag(keras.layers.Layer):
    """Holds up the training's forward pass."""

    def __init__(self, ms):
        super().__init__()
        self.ms = ms

    def call(self, x, training=False):
        """The same, later."""
        return held_up(x, self.ms) if training and self.ms else x


def build_model(params):
    """Two layers, and what holds them up in one worker."""
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"index": 0})
    lag = params["lag_ms"] if task["index"] == params["of_worker"] else 0.0
    model = keras.Sequential([keras.layers.InputLayer((WIDTH,)), Lag(lag), keras.layers.Dense(3)])
    model.compile("sgd", "mse")
    return model


def build_dataset(params, split):
    """Noise, for so many seconds as the planted time takes."""
    step_ms = max(params["lag_ms"], params["input_ms"], 1.0) + 5.0
    rows = 16 * int(params["seconds"] * 1000 / step_ms)
    x = np.random.RandomState(7).randn(rows, WIDTH).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :3])) if split == "train" else None
    if data is None or not params["input_ms"]:
        return data
    return data.map(lambda a, b: (held_up(a, params["input_ms"] / 16), b))
