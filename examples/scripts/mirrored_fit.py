"""All devices of one machine with Keras `fit`, validation, and TensorBoard's event files."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
print("devices", strategy.num_replicas_in_sync)

random = np.random.default_rng(0)
y = random.integers(0, 4, 512)
x = (random.normal(size=(4, 20))[y] + random.normal(size=(512, 20))).astype("float32")
rows = tf.data.Dataset.from_tensor_slices((x, y))
batch = 16 * strategy.num_replicas_in_sync
train, test = rows.skip(128).shuffle(400, seed=1).batch(batch), rows.take(128).batch(batch)

with strategy.scope():
    tf.keras.utils.set_random_seed(2)
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((20,)), tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(4)]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(0.01),
        metrics=["accuracy"],
    )


def decay(epoch: int) -> float:
    return 0.01 if epoch < 2 else 0.001


callbacks = [tf.keras.callbacks.LearningRateScheduler(decay), tf.keras.callbacks.TensorBoard(log_dir="logs")]
model.fit(train, epochs=4, validation_data=test, callbacks=callbacks, verbose=2)
print("test", model.evaluate(test, verbose=0))
