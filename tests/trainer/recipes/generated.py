"""Rows from Python, by a generator, by `py_function` or by both, which under parameter servers run in the coordinator
whenever a worker asks for them."""

import keras
import numpy as np
import tensorflow as tf

TITLE = "Generated"
DESCRIPTION = "For tests."
PARAMS = {
    "rows": {"type": "choice", "default": "generator", "choices": ["generator", "py_function", "both"], "help": ""},
    "validation": {"type": "choice", "default": "generator", "choices": ["generator", "py_function"], "help": ""},
}
SPECS = (tf.TensorSpec((8,), tf.float32), tf.TensorSpec((), tf.int32))


def build_model(params):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def build_dataset(params, split):
    way = params["rows" if split == "train" else "validation"]
    random = np.random.RandomState(1)
    x = random.randn(192 if split == "train" else 101, 8).astype("float32")
    y = x[:, :3].argmax(axis=1).astype("int32")
    if way == "py_function":
        return tf.data.Dataset.range(len(x)).map(lambda row: _by_python(lambda row: (x[row], y[row]), row))
    rows = tf.data.Dataset.from_generator(lambda: zip(x, y, strict=True), output_signature=SPECS)
    return rows if way == "generator" else rows.map(lambda *row: _by_python(lambda *row: row, *row))


def _by_python(function, *row):
    found = tf.py_function(function, row, [spec.dtype for spec in SPECS])
    for tensor, spec in zip(found, SPECS, strict=True):
        tensor.set_shape(spec.shape)
    return tuple(found)
