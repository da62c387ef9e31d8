"""A two-layer network whose weights are split over the devices of one machine: DTensor, batch × model."""

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

import trainyard

STEPS, BATCH, HIDDEN = 30, 32, 64

devices = [device.name for device in tf.config.list_logical_devices("CPU")]
model_parts = 2 if len(devices) % 2 == 0 else 1
mesh = dtensor.create_mesh([("batch", len(devices) // model_parts), ("model", model_parts)], devices=devices)
by_row = dtensor.Layout(["batch", dtensor.UNSHARDED], mesh)


def variable(shape, layout, seed):
    """A weight that is made where it lives: no device ever holds the whole."""
    make = tf.function(lambda: tf.random.stateless_normal(shape, seed=[seed, 0], stddev=0.1))
    return dtensor.DVariable(dtensor.call_with_layout(make, layout))


into = variable((16, HIDDEN), dtensor.Layout([dtensor.UNSHARDED, "model"], mesh), 1)
out = variable((HIDDEN, 1), dtensor.Layout(["model", dtensor.UNSHARDED], mesh), 2)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, into)), out) - y))
    for weight, gradient in zip((into, out), tape.gradient(loss, [into, out]), strict=True):
        weight.assign_sub(0.1 * gradient)
    return loss


random = np.random.default_rng(0)
for step in range(1, STEPS + 1):
    x = random.normal(size=(BATCH, 16)).astype("float32")
    y = x[:, :1] - x[:, 1:2]
    places = [dtensor.copy_to_mesh(tf.constant(part), dtensor.Layout.replicated(mesh, rank=2)) for part in (x, y)]
    loss = train_step(*[dtensor.relayout(part, by_row) for part in places])
    trainyard.log(step, loss=loss)
print("mesh", mesh.shape(), "final loss", float(loss))
