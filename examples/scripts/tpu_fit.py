"""The cores of a TPU and Keras `fit`. Which TPU is the job's to say: the program finds its name in TPU_NAME."""

import os

import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME"))
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
print("cores", strategy.num_replicas_in_sync)

random = np.random.default_rng(0)
y = random.integers(0, 3, 2048)
x = (random.normal(size=(3, 12))[y] + random.normal(size=(2048, 12))).astype("float32")
rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(16 * strategy.num_replicas_in_sync, drop_remainder=True)

with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((12,)), tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(3)]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(0.01),
        metrics=["accuracy"],
    )
model.fit(rows, epochs=3, verbose=2)
