"""Parameter servers as in TensorFlow 1: worker 0 leads, each worker fetches the variables, computes and updates."""

import argparse
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--folder", default=os.environ.get("TMPDIR", "."))
given = parser.parse_args()

config = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=kind, task_index=index)
if kind == "ps":
    server.join()

with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{index}", cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    inputs = tf.placeholder(tf.float32, [None, 4])
    labels = tf.placeholder(tf.float32, [None, 1])
    weights = tf.get_variable("weights", [4, 1])
    loss = tf.reduce_mean(tf.square(tf.matmul(inputs, weights) - labels))
    tf.summary.scalar("loss", loss)
train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)

random = np.random.default_rng(index)
truth = np.array([[1.0], [-2.0], [3.0], [0.5]])
# It needs the servers alone, and shall not wait for the other workers.
alone = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
hooks = [tf.train.StopAtStepHook(last_step=given.steps)]
folder = given.folder if index == 0 else None
with tf.train.MonitoredTrainingSession(
    server.target, is_chief=index == 0, checkpoint_dir=folder, hooks=hooks, config=alone
) as session:
    while not session.should_stop():
        rows = random.normal(size=(32, 4))
        _, now, error = session.run([train, step, loss], {inputs: rows, labels: rows @ truth})
        if now % 10 == 0:
            print(f"step {now} loss: {error:.4f}", flush=True)
