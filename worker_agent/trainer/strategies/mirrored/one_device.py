"""One device: the plain case, and the truth that every other strategy is compared with."""

import tensorflow as tf

from worker_agent.trainer.strategies.interface import Task
from worker_agent.trainer.strategies.mirrored import synchronous


def train(task: Task) -> None:
    """Train on the first device of this replica."""
    synchronous.train(task, tf.distribute.OneDeviceStrategy(f"/device:{task.devices[0]}"), communication="none")
