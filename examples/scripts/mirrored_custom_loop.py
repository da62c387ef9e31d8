"""All devices of one machine with a loop of one's own; its loss goes to `tf.summary`, where Trainyard finds it."""

import numpy as np
import tensorflow as tf

EPOCHS = 3

strategy = tf.distribute.MirroredStrategy()
replicas = strategy.num_replicas_in_sync
global_batch = 32 * replicas

random = np.random.default_rng(0)
x = random.normal(size=(1024, 10)).astype("float32")
y = (x @ random.normal(size=(10, 1))).astype("float32")
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(global_batch))

with strategy.scope():
    tf.keras.utils.set_random_seed(4)
    model = tf.keras.Sequential([tf.keras.layers.Input((10,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)  # Keras 3 cannot do it inside the distributed step


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


writer = tf.summary.create_file_writer("logs")
step = 0
with writer.as_default():
    for epoch in range(EPOCHS):
        for batch in data:
            loss = distributed_step(batch)
            step += 1
            tf.summary.scalar("loss", loss, step=step)
        print(f"epoch {epoch + 1} loss {float(loss):.5f} on {replicas} devices")
writer.close()
