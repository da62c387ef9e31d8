"""Handwritten digits with a small convolutional network: the default demonstration."""

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TITLE = "Digits, convolutional network"
DESCRIPTION = "1,797 handwritten digits of 8 × 8 pixels from scikit-learn; two convolutions. Reaches 97 % in 8 epochs."
PARAMS = {
    "filters": {"type": "int", "default": 16, "min": 1, "max": 512, "help": "Filters of the first convolution"},
    "units": {"type": "int", "default": 64, "min": 1, "max": 4096, "help": "Neurons of the hidden layer"},
    "dropout": {"type": "float", "default": 0.1, "min": 0.0, "max": 0.9, "help": "Share of neurons silenced"},
    "lr": {"type": "float", "default": 0.003, "min": 1e-6, "max": 10.0, "help": "Learning rate of Adam"},
}
VALIDATION_EVERY = 5


def build_model(params):
    """A compiled classifier of 8 × 8 images."""
    model = keras.Sequential(
        [
            keras.layers.InputLayer((8, 8, 1)),
            keras.layers.Conv2D(params["filters"], 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(2 * params["filters"], 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(params["units"], activation="relu"),
            keras.layers.Dropout(params["dropout"]),
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
    """Rows of (image 0..1, digit); every fifth row is kept for validation."""
    pixels, digits = load_digits(return_X_y=True)
    images = (pixels / 16).astype("float32").reshape(-1, 8, 8, 1)
    held_out = np.arange(len(digits)) % VALIDATION_EVERY == 0
    rows = held_out if split == "validation" else ~held_out
    return tf.data.Dataset.from_tensor_slices((images[rows], digits[rows].astype("int32")))
