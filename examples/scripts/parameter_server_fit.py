"""Parameter servers with Keras `fit`. The file has no branch for workers and ps: Trainyard serves in their place, and
the chief alone runs it. tf_keras: Keras 3's `fit` has no parameter servers.
"""

import numpy as np
import tensorflow as tf

BATCH = 32

strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())


def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Called on each worker."""
    x = np.random.default_rng(0).normal(size=(1024, 16)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.shuffle(1024).repeat().batch(context.get_per_replica_batch_size(BATCH)).prefetch(2)


with strategy.scope():
    tf.keras.utils.set_random_seed(5)
    model = tf.keras.Sequential([tf.keras.layers.Input((16,)), tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss="mse")

history = model.fit(tf.keras.utils.experimental.DatasetCreator(batches), epochs=3, steps_per_epoch=40, verbose=2)
print("history", history.history["loss"])
