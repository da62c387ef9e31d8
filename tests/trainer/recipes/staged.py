"""A model that can be cut into two or four stages, on made-up rows; its tail is a head of its own."""

import keras
import numpy as np
import tensorflow as tf

PARAMS = {
    "optimizer": {"type": "choice", "default": "adam", "choices": ["sgd", "adam"]},
    "rows": {"type": "int", "default": 240},
    "wrong": {"type": "str", "default": ""},
}
LAYERS = ("first", "second", "third", "scores")


def build_model(params):
    model = keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(32, activation="tanh", name="first"),
            keras.layers.Dense(32, activation="tanh", name="second", kernel_regularizer="l2"),
            keras.layers.Dense(32, activation="tanh", name="third"),
            keras.layers.Dense(4, name="scores"),
        ]
    )
    optimizer = {
        "sgd": keras.optimizers.SGD(0.1, momentum=0.9),
        "adam": keras.optimizers.Adam(0.01, global_clipnorm=1.0),
    }
    model.compile(
        optimizer=optimizer[params["optimizer"]],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def build_stages(params, count):
    if params["wrong"] == "name":
        return [["first"], ["second", "third", "nowhere"]]
    if params["wrong"] == "homeless":
        return [["first"], ["third", "scores"]]
    if params["wrong"] == "count":
        return [list(LAYERS)]
    each = len(LAYERS) // count
    return [list(LAYERS[place : place + each]) for place in range(0, len(LAYERS), each)]


def build_dataset(params, split):
    draw = np.random.RandomState(5 if split == "train" else 6)
    x = draw.rand(params["rows"], 16).astype("float32")
    y = (x[:, :4].argmax(axis=1)).astype("int32")
    return tf.data.Dataset.from_tensor_slices((x, y))
