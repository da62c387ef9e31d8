"""Parameter-server workers with several logical CPU devices. TensorFlow's strategy computes on all GPUs of a worker,
but on the first CPU only; the same code runs on the others once it is told of them."""

from functools import cache

import tensorflow as tf


def compute_on_logical_cpus(strategy: tf.distribute.ParameterServerStrategy, count: int) -> None:
    """Have every worker compute on its first `count` CPU devices. Before any variable is made."""
    if count > 1:
        strategy.extended.__class__ = _with_cpus(strategy.extended.__class__, count)
        strategy.extended._num_gpus_per_worker = count  # the number of compute devices, whatever they are


@cache
def _with_cpus(kind: type, count: int) -> type:
    devices = tuple(f"/device:CPU:{index}" for index in range(count))
    return type(kind.__name__, (kind,), {"worker_devices": property(lambda _: devices)})
