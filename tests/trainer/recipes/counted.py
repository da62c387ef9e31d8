"""A recipe that counts how often each row was trained on in an epoch, takes its own train_step, and stops itself."""

import keras
import numpy as np
import tensorflow as tf

from trainyard import log

TITLE = "Counted"
DESCRIPTION = "For tests."
PARAMS = {"stop_after": {"type": "int", "default": 2, "min": 1, "max": 100, "help": "Epochs"}}
ROWS = 192


class Extreme(keras.metrics.Metric):
    """The fewest or the most times that a row was seen."""

    def __init__(self, name, reduce):
        super().__init__(name=name)
        self._reduce = reduce
        self._times = self.add_weight(name="times", shape=(ROWS,), initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        row = tf.cast(tf.reshape(y_true, (-1,)), tf.int32)
        self._times.assign_add(tf.reduce_sum(tf.one_hot(row, ROWS), axis=0))

    def reset_state(self):
        self._times.assign(tf.zeros((ROWS,)))

    def result(self):
        return self._reduce(self._times)


class Own(keras.Sequential):
    """As Keras does it, written out."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {**self.compute_metrics(x, y, y_pred, None), "loss": loss}


def off_by(y_true, y_pred):
    return tf.square(tf.cast(y_true, tf.float32) / ROWS - y_pred)


def build_model(params):
    """One layer that learns a row's number, scaled."""
    model = Own([keras.layers.InputLayer((4,)), keras.layers.Dense(1)])
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=off_by,
        metrics=[Extreme("fewest", tf.reduce_min), Extreme("most", tf.reduce_max)],
    )
    return model


def build_dataset(params, split):
    """Rows with a number each."""
    if split != "train":
        return None
    x = np.random.RandomState(3).rand(ROWS, 4).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, np.arange(ROWS, dtype="int32")[:, None]))


class StopAfter(keras.callbacks.Callback):
    """Ends the training after some epochs; says how many batches it saw."""

    def __init__(self, epochs):
        super().__init__()
        self._epochs = epochs
        self._batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self._batches += 1

    def on_epoch_end(self, epoch, logs=None):
        log(epoch + 1, batches=self._batches)
        self.model.stop_training = epoch + 1 >= self._epochs


def callbacks(params):
    """One that stops."""
    return [StopAfter(params["stop_after"])]
