"""Keras `fit` under parameter servers with rows from Python, validation rows too."""

import numpy as np
import tensorflow as tf

EPOCHS, STEPS, BATCH = 5, 12, 16

strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())


def batches(context):
    x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
    y = x[:, :3].argmax(axis=1).astype("int32")
    specs = (tf.TensorSpec((8,), tf.float32), tf.TensorSpec((), tf.int32))
    rows = tf.data.Dataset.from_generator(lambda: zip(x, y, strict=True), output_signature=specs)
    return rows.shuffle(256).repeat().batch(BATCH)


with strategy.scope():
    tf.keras.utils.set_random_seed(5)
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(3)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.01), loss)

creator = tf.keras.utils.experimental.DatasetCreator
model.fit(
    creator(batches),
    epochs=EPOCHS,
    steps_per_epoch=STEPS,
    validation_data=creator(batches),
    validation_steps=5,
    verbose=2,
)
print("updates", int(model.optimizer.iterations.numpy()))
