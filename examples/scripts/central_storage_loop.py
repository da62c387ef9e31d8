"""Variables once, on the host, and all devices of one machine computing on them, in a loop of one's own.

TensorFlow takes the GPUs by itself, but of CPU devices only the first: so they are named.
"""

import numpy as np
import tensorflow as tf

import trainyard

STEPS = 40

devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.experimental.CentralStorageStrategy(
    compute_devices=[device.name for device in devices], parameter_device="/device:CPU:0"
)
global_batch = 32 * strategy.num_replicas_in_sync

random = np.random.default_rng(0)
x = random.normal(size=(512, 10)).astype("float32")
y = (x @ random.normal(size=(10, 1))).astype("float32")
rows = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(global_batch)
batches = iter(strategy.experimental_distribute_dataset(rows))

with strategy.scope():
    tf.keras.utils.set_random_seed(5)
    model = tf.keras.Sequential([tf.keras.layers.Input((10,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam(0.1)


@tf.function
def distributed_step(batch):
    def on_replica(features, targets):
        with tf.GradientTape() as tape:
            errors = tf.reduce_sum(tf.square(model(features, training=True) - targets), axis=1)
            loss = tf.nn.compute_average_loss(errors, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(on_replica, args=batch), axis=None)


for step in range(1, STEPS + 1):
    loss = distributed_step(next(batches))
    trainyard.log(step, loss=loss)
print(f"loss {float(loss):.5f} on {strategy.num_replicas_in_sync} devices")
