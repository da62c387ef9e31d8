"""Layers large enough to see in a process's memory which part of them it holds."""

import keras
import numpy as np
import tensorflow as tf

TITLE = "Wide"
DESCRIPTION = "For tests."
PARAMS = {
    "width": {"type": "int", "default": 1536, "min": 1, "max": 100000, "help": ""},
    "layouts": {"type": "choice", "default": "rows", "choices": ["rows", "wrong"], "help": ""},
}
LAYERS = 12


def build_model(params):
    """Square layers, one after the other."""
    width = params["width"]
    layers = [keras.layers.Dense(width, activation="tanh", name=f"square_{n}") for n in range(LAYERS)]
    model = keras.Sequential([keras.layers.InputLayer((width,)), *layers])
    model.compile(keras.optimizers.Adam(1e-4), loss="mse")
    return model


def build_layouts(params):
    """Every kernel by its rows, unlike what would be derived."""
    if params["layouts"] == "wrong":
        return {"square_*/kernel": ["model", "model"]}
    return {"square_*/kernel": ["model", "unsharded"]}


def build_dataset(params, split):
    """Noise."""
    x = np.random.RandomState(7).randn(64, params["width"]).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x))
