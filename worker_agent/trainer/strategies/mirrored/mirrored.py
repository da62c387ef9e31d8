"""Mirrored: every device of one process holds the model, the gradients are reduced between them."""

import tensorflow as tf

from worker_agent.protocol.job.choices import CrossDevice
from worker_agent.protocol.states import DeviceKind
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.strategies.interface import Process
from worker_agent.trainer.strategies.mirrored import synchronous

_REDUCTIONS = {
    CrossDevice.NCCL: tf.distribute.NcclAllReduce,
    CrossDevice.HIERARCHICAL_COPY: tf.distribute.HierarchicalCopyAllReduce,
    CrossDevice.REDUCTION_TO_ONE_DEVICE: tf.distribute.ReductionToOneDevice,
}


def train(process: Process) -> None:
    """Train on all devices of this replica; `cross_device` says how they reduce."""
    asked, on_gpus = process.run.spec.cross_device, process.run.device_kind is DeviceKind.GPU
    if asked == CrossDevice.NCCL and not on_gpus:
        raise TrainingFailed(
            "NCCL connects GPUs, and this replica has CPU devices", remedy="choose another cross-device way"
        )
    # Named, so that the job can tell: it is what TensorFlow chooses by itself.
    reduction = (
        _REDUCTIONS.get(asked) or _REDUCTIONS[CrossDevice.NCCL if on_gpus else CrossDevice.REDUCTION_TO_ONE_DEVICE]
    )
    several = len(process.devices) > 1
    strategy = tf.distribute.MirroredStrategy(
        [f"/device:{name}" for name in process.devices], cross_device_ops=reduction() if several else None
    )
    synchronous.train(process, strategy, communication=reduction.__name__ if several else "none")
