"""One device and Keras `fit`: the plain program that most start with."""

import numpy as np
import tensorflow as tf

random = np.random.default_rng(0)
y = random.integers(0, 3, 384)
x = (random.normal(size=(3, 12))[y] + random.normal(size=(384, 12))).astype("float32")

tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential(
    [tf.keras.layers.Input((12,)), tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(3)]
)
model.compile(
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=tf.keras.optimizers.Adam(0.01),
    metrics=["accuracy"],
)
history = model.fit(x, y, batch_size=32, epochs=3, validation_split=1 / 3, verbose=2)
print("last loss", history.history["loss"][-1])
