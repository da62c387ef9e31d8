"""One worker of the bare gang: what a person would write by hand to train the demo recipe's model on two machines.

Started by `bare_gang.sh` with TF_CONFIG in its environment; prints the unix time at which step 1 was done.
"""

import importlib.util
import os
import sys
import time

import keras
import tensorflow as tf

GLOBAL_BATCH = 64


def main(recipe_path: str) -> None:
    """Train two steps of the recipe's model under MultiWorkerMirroredStrategy."""
    spec = importlib.util.spec_from_file_location("recipe", recipe_path)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    params = {name: declared["default"] for name, declared in recipe.PARAMS.items()}
    keras.utils.set_random_seed(0)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = recipe.build_model(params)
        model.optimizer.build(model.trainable_variables)
    data = recipe.build_dataset(params, "train").repeat().batch(GLOBAL_BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = iter(strategy.experimental_distribute_dataset(data.with_options(options)))

    @tf.function
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        def replica(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = model.compute_loss(x, y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply(gradients, model.trainable_variables)
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=next(iterator)), axis=None)

    float(step(batches))
    os.write(1, f"first_step {time.time():.6f}\n".encode())  # one write: both workers share the pipe
    float(step(batches))


if __name__ == "__main__":
    main(sys.argv[1])
