"""Parameter servers with a loop of one's own. Every role runs this file and looks at its TF_CONFIG: workers and ps
start their server and wait for ever; the chief trains. tf_keras: Keras 3 loses updates here.
"""

import sys

import numpy as np
import tensorflow as tf

import trainyard

STEPS, BATCH = 60, 32

cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if cluster.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc", start=True
    )
    server.join()
    sys.exit(0)

strategy = tf.distribute.ParameterServerStrategy(
    cluster, variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(256, max_shards=2)
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

with strategy.scope():
    tf.keras.utils.set_random_seed(5)
    model = tf.keras.Sequential([tf.keras.layers.Input((16,)), tf.keras.layers.Dense(16), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.01)


def batches() -> tf.data.Dataset:
    """Each worker makes its own."""
    x = np.random.default_rng(0).normal(size=(1024, 16)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1024).repeat().batch(BATCH)


@tf.function
def step_on_worker(iterator):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = strategy.run(on_replica, args=next(iterator))
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)


@tf.function
def dataset_of_worker():
    return batches()


data = iter(coordinator.create_per_worker_dataset(dataset_of_worker))
for step in range(10, STEPS + 1, 10):
    results = [coordinator.schedule(step_on_worker, args=(data,)) for _ in range(10)]
    coordinator.join()
    trainyard.log(step, loss=np.mean([result.fetch() for result in results]))
print("updates", int(optimizer.iterations.numpy()))
