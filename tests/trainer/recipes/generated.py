"""Rows from Python generators, which under parameter servers run in the coordinator whenever a worker asks for them."""

import keras
import numpy as np
import tensorflow as tf

TITLE = "Generated"
DESCRIPTION = "For tests."
PARAMS = {}


def build_model(params):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def build_dataset(params, split):
    random = np.random.RandomState(1)
    x = random.randn(192 if split == "train" else 101, 8).astype("float32")
    y = x[:, :3].argmax(axis=1).astype("int32")
    specs = (tf.TensorSpec((8,), tf.float32), tf.TensorSpec((), tf.int32))
    return tf.data.Dataset.from_generator(lambda: zip(x, y, strict=True), output_signature=specs)
