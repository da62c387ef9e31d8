"""Handwritten digits with two dense layers: the smallest recipe that learns something real."""

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TITLE = "Digits, dense network"
DESCRIPTION = "1,797 handwritten digits of 8 × 8 pixels from scikit-learn; two dense layers. Learns in seconds."
PARAMS = {
    "units": {"type": "int", "default": 128, "min": 1, "max": 4096, "help": "Neurons of each hidden layer"},
    "dropout": {
        "type": "float",
        "default": 0.1,
        "min": 0.0,
        "max": 0.9,
        "help": "Share of neurons silenced",
    },
    "activation": {"type": "choice", "default": "relu", "choices": ["relu", "gelu", "tanh"], "help": "Activation"},
    "lr": {"type": "float", "default": 0.002, "min": 1e-6, "max": 10.0, "help": "Learning rate of Adam"},
}
VALIDATION_EVERY = 5


def build_model(params):
    """A compiled classifier of 64 pixels."""
    model = keras.Sequential(
        [
            keras.layers.InputLayer((64,)),
            keras.layers.Dense(params["units"], activation=params["activation"]),
            keras.layers.Dropout(params["dropout"]),
            keras.layers.Dense(params["units"], activation=params["activation"]),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(params["lr"]),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def build_dataset(params, split):
    """Rows of (pixels 0..1, digit); every fifth row is kept for validation."""
    pixels, digits = load_digits(return_X_y=True)
    held_out = np.arange(len(digits)) % VALIDATION_EVERY == 0
    rows = held_out if split == "validation" else ~held_out
    return tf.data.Dataset.from_tensor_slices(((pixels[rows] / 16).astype("float32"), digits[rows].astype("int32")))
