"""A loop of one's own on several machines, with checkpoints that only the first worker keeps.

`trainyard.log` shows its numbers on the job's page; run by itself it prints them.
"""

import json
import os
import tempfile

import numpy as np
import tensorflow as tf

import trainyard

EPOCHS, STEPS, PER_WORKER = 2, 15, 16

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "worker", "index": 0})
is_first = task["type"] == "chief" or (task["type"] == "worker" and task["index"] == 0)
global_batch = PER_WORKER * strategy.num_replicas_in_sync


def numbers(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """This worker's share of a line with noise."""
    random = np.random.default_rng(3)
    x = random.normal(size=(2048, 8)).astype("float32")
    y = (x @ np.arange(8, dtype="float32"))[:, None]
    data = tf.data.Dataset.from_tensor_slices((x, y)).shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.repeat().batch(context.get_per_replica_batch_size(global_batch))


data = iter(strategy.distribute_datasets_from_function(numbers))
with strategy.scope():
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.05)
    epoch_counter = tf.Variable(0, trainable=False)


@tf.function
def train_step(iterator):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            errors = tf.reduce_sum(tf.square(model(x, training=True) - y), axis=1)
            loss = tf.nn.compute_average_loss(errors, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    per_replica = strategy.run(on_replica, args=next(iterator))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)


folder = "checkpoints" if is_first else tempfile.mkdtemp()
checkpoint = tf.train.Checkpoint(model=model, epoch=epoch_counter)
manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)

step = 0
for epoch in range(EPOCHS):
    for _ in range(STEPS):
        loss = train_step(data)
        step += 1
        trainyard.log(step, loss=loss)
        trainyard.progress(step, of=EPOCHS * STEPS, epoch=epoch + 1, epochs=EPOCHS)
    epoch_counter.assign(epoch + 1)
    manager.save()
print("final loss", float(loss))
