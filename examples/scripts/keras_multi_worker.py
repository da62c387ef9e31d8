"""Keras `fit` on several machines. Nothing in it knows of Trainyard: TF_CONFIG is in the environment.

Runs under Keras 3 and under tf_keras; alone, it is a training on one machine.
"""

import argparse

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

PER_WORKER = 32


def clothes_like(rows: int) -> tf.data.Dataset:
    """Rows of 64 numbers in ten classes."""
    random = np.random.default_rng(0)
    y = random.integers(0, 10, rows)
    x = random.normal(size=(10, 64))[y] + random.normal(size=(rows, 64))
    return tf.data.Dataset.from_tensor_slices((x.astype("float32"), y.astype("int64")))


strategy = tf.distribute.MultiWorkerMirroredStrategy()
batch = PER_WORKER * strategy.num_replicas_in_sync
data = clothes_like(batch * arguments.steps).shuffle(1000, seed=1).repeat().batch(batch)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = data.with_options(options)

tf.keras.utils.set_random_seed(7)
with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((64,)),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(0.05),
        metrics=["accuracy"],
    )

history = model.fit(data, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)
print("history", [round(value, 6) for value in history.history["loss"]])
