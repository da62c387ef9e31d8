"""A model whose only random part is a dropout mask, and whose weights tell which mask each of two replicas drew.

Each replica has one row of ones, so a weight moves by half of a step for each replica that kept it.
"""

import keras
import numpy as np
import tensorflow as tf

from trainyard import log

TITLE = "Masks"
DESCRIPTION = "For tests."
PARAMS = {}
WIDTH = 64


@keras.saving.register_keras_serializable()
class Scale(keras.layers.Layer):
    """A weight for each feature."""

    def build(self, shape):
        self.weight = self.add_weight(shape=(WIDTH,), initializer="ones", name="weight")

    def call(self, x):
        return x * self.weight


def build_model(params):
    """Weights, then a mask."""
    model = keras.Sequential([keras.Input((WIDTH,)), Scale(), keras.layers.Dropout(0.5)])
    model.compile(keras.optimizers.SGD(1.0), loss=lambda _, y: keras.ops.mean(y, axis=-1))
    return model


def build_dataset(params, split):
    """A step of two rows."""
    x = np.ones((2, WIDTH), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, x)) if split == "train" else None


class TellMasks(keras.callbacks.Callback):
    """After each step, `apart`: which share of the weights was kept by one replica and dropped by the other."""

    def on_train_begin(self, logs=None):
        self.before = self.model.get_weights()[0]

    def on_epoch_end(self, epoch, logs=None):
        now = self.model.get_weights()[0]
        kept_by = np.round((self.before - now) * WIDTH)
        self.before = now
        log(epoch + 1, apart=np.mean(kept_by == 1), kept=np.mean(kept_by) / 2)


def callbacks(params):
    """Only what tells."""
    return [TellMasks()]
