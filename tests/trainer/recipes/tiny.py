"""A recipe small enough to compare strategies by, which can also go wrong on request."""

import keras
import numpy as np
import tensorflow as tf

TITLE = "Tiny"
DESCRIPTION = "For tests."
PARAMS = {
    "lr": {"type": "float", "default": 0.05, "min": 0.0, "max": 10.0, "help": ""},
    "clip": {"type": "float", "default": 0.0, "min": 0.0, "max": 10.0, "help": ""},
    "rows": {"type": "int", "default": 320, "min": 1, "max": 100000, "help": ""},
    "fault": {"type": "choice", "default": "", "choices": ["", "nan", "model", "uncompiled", "data"], "help": ""},
    "dropout": {"type": "float", "default": 0.0, "min": 0.0, "max": 0.9, "help": ""},
    "width": {"type": "int", "default": 16, "min": 1, "max": 1000, "help": ""},
    "patience": {"type": "int", "default": 0, "min": 0, "max": 100, "help": "Epochs until early stopping, 0 never"},
}
WIDTH = 8


def build_model(params):
    """Two layers, well conditioned."""
    if params["fault"] == "model":
        raise ValueError("no such layer")
    model = keras.Sequential(
        [
            keras.layers.InputLayer((WIDTH,)),
            keras.layers.Dense(params["width"], activation="tanh"),
            *([keras.layers.Dropout(params["dropout"])] if params["dropout"] else []),
            keras.layers.Dense(3),
        ]
    )
    if params["fault"] == "uncompiled":
        return model
    model.compile(
        optimizer=keras.optimizers.SGD(params["lr"], momentum=0.9, global_clipnorm=params["clip"] or None),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def build_dataset(params, split):
    """Points and which of three directions they lie in."""
    if params["fault"] == "data":
        return [1, 2, 3]
    random = np.random.RandomState(7)
    directions = random.randn(WIDTH, 3)
    count = params["rows"] if split == "train" else 101
    x = random.randn(params["rows"] + 101, WIDTH).astype("float32")[-count:]
    y = (x @ directions).argmax(axis=1).astype("int32")
    if params["fault"] == "nan" and split == "train":
        x[200] = np.nan
    return tf.data.Dataset.from_tensor_slices((x, y))


def callbacks(params):
    """Early stopping where it is asked for."""
    if not params["patience"]:
        return []
    return [keras.callbacks.EarlyStopping(monitor="val_loss", patience=params["patience"], min_delta=10.0)]
