"""A custom loop under parameter servers whose rows come from Python. Each epoch makes its data, its iterators and its
functions anew, so those of the one before are collected while calls are under way."""

import gc

import numpy as np
import tensorflow as tf

import trainyard

EPOCHS, STEPS, BATCH = 5, 12, 16

cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    tf.keras.utils.set_random_seed(5)
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(3)])
    optimizer = tf.keras.optimizers.SGD(0.01)
lossof = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def batches():
    x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
    y = x[:, :3].argmax(axis=1).astype("int32")
    specs = (tf.TensorSpec((8,), tf.float32), tf.TensorSpec((), tf.int32))
    rows = tf.data.Dataset.from_generator(lambda: zip(x, y, strict=True), output_signature=specs)

    def looked_at(row, kind):
        seen = tf.py_function(lambda row: row, [row], tf.float32)
        seen.set_shape((8,))
        return seen, kind

    return rows.map(looked_at).shuffle(256).repeat().batch(BATCH)


def step_function(*, learns):
    @tf.function
    def step(iterator):
        def on_replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(lossof(y, model(x, training=learns)))
            if learns:
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        losses = strategy.run(on_replica, args=next(iterator))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    return step


for epoch in range(EPOCHS):
    calls = {}
    for learns in (True, False):
        step = step_function(learns=learns)
        data = iter(coordinator.create_per_worker_dataset(batches))
        calls[learns] = [coordinator.schedule(step, args=(data,)) for _ in range(STEPS if learns else 5)]
        del step, data
        gc.collect()  # at the worst moment; without it Python does so whenever it likes
    means = {learns: float(np.mean([call.fetch() for call in under_way])) for learns, under_way in calls.items()}
    trainyard.log((epoch + 1) * STEPS, loss=means[True], val_loss=means[False])
coordinator.join()
print("updates", int(optimizer.iterations.numpy()))
