"""The recipe that `whole_runs` has the product train: a few convolutions, and a callback that logs its time."""

import time

import keras
import numpy as np
import tensorflow as tf

from trainyard import log

PARAMS = {"rows": {"type": "int", "default": 32_000}}


def build_model(params):
    """A step of some ten milliseconds."""
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((16, 16, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def build_dataset(params, split):
    """Noise. No validation."""
    if split != "train":
        return None
    draw = np.random.RandomState(1)
    rows = params["rows"]
    return tf.data.Dataset.from_tensor_slices((draw.rand(rows, 16, 16, 3).astype("float32"), np.arange(rows) % 10))


def callbacks(params):
    return [Seconds()]


class Seconds(keras.callbacks.Callback):
    """Logs, at each epoch's end, what this process took since the first one's."""

    def on_epoch_end(self, epoch, logs=None):
        cpu, clock = time.process_time(), time.perf_counter()
        if epoch == 0:
            self._cpu, self._clock = cpu, clock
        log(epoch + 1, cpu_s=cpu - self._cpu, clock_s=clock - self._clock)
