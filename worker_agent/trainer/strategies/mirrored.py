"""Mirrored: every device of one process holds the model, the gradients are reduced between them."""

import tensorflow as tf

from worker_agent.trainer.strategies import synchronous
from worker_agent.trainer.strategies.interface import Task


def train(task: Task) -> None:
    """Train on all devices of this replica."""
    synchronous.train(task, tf.distribute.MirroredStrategy([f"/device:{name}" for name in task.devices]))
