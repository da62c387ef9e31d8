"""Central storage: the variables lie once, on the host; every device of one process computes on them.

For models whose optimizer slots do not fit beside the activations on each GPU.
"""

import tensorflow as tf

from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.strategies.mirrored import synchronous

HOST = "/device:CPU:0"


def train(process: Process) -> None:
    """Train on all devices of this replica, the variables on its host."""
    strategy = tf.distribute.experimental.CentralStorageStrategy(
        compute_devices=[f"/device:{name}" for name in process.devices], parameter_device=HOST
    )
    # Else the last batches of a validation are dropped when they do not suffice for all devices.
    strategy.extended.experimental_enable_get_next_as_optional = True
    synchronous.train(process, strategy, communication=f"through {HOST.removeprefix('/device:')}")
