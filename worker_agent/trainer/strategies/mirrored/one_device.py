"""One device: the plain case, and the truth that every other strategy is compared with."""

import tensorflow as tf

from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.strategies.mirrored import synchronous


def train(process: Process) -> None:
    """Train on the first device of this replica."""
    synchronous.train(process, tf.distribute.OneDeviceStrategy(f"/device:{process.devices[0]}"), communication="none")
