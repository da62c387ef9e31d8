"""TensorFlow set up for one run, before anything of it is used: devices, threads, seeds. The environment (TF_CONFIG,
CUDA_VISIBLE_DEVICES, the Keras flavour) is the caller's."""

from importlib.metadata import version

import numpy as np
import tensorflow as tf

from worker_agent.protocol.states import DeviceKind
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.training_run import TrainingRun


def configure(run: TrainingRun) -> list[str]:
    """Configure devices and threads; the names of the devices this replica computes on, as strategies take them."""
    set_threads(run)
    if run.device_kind is DeviceKind.GPU:
        return _gpus(run.devices)
    divide_cpu(run.devices)
    return [f"CPU:{index}" for index in range(run.devices)]


def set_threads(run: TrainingRun) -> None:
    """The run's share of the cores."""
    if run.threads:
        tf.config.threading.set_intra_op_parallelism_threads(run.threads)
        # A collective waits inside a thread; two let computing go on beside it.
        tf.config.threading.set_inter_op_parallelism_threads(max(2, run.threads))


def divide_cpu(devices: int) -> None:
    """Have TensorFlow see so many logical CPUs."""
    if devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)


def seed_everything(seed: int) -> None:
    """Python, NumPy, TensorFlow and Keras from one number. Call it inside no scope, before the recipe runs."""
    tf.keras.utils.set_random_seed(seed % np.iinfo(np.uint32).max)


def set_precision(policy: str) -> None:
    """Keras' policy for all layers made from now on. With "mixed_float16", `compile` adds the loss scaling itself."""
    tf.keras.mixed_precision.set_global_policy(str(policy))  # to Keras an enum is no text: it has a `name`


def keras_in_words() -> str:
    """The Keras that this process speaks: "keras 3.15.1", "tf_keras 2.21.0"."""
    name = tf.keras.Model.__module__.partition(".")[0]
    return f"{name} {version(name)}"


def _gpus(count: int) -> list[str]:
    found = tf.config.list_physical_devices("GPU")
    if len(found) < count:
        raise TrainingFailed(f"TensorFlow sees {len(found)} of the {count} GPUs this replica was given.")
    tf.config.set_visible_devices(found[:count], "GPU")
    for gpu in found[:count]:
        tf.config.experimental.set_memory_growth(gpu, enable=True)
    return [f"GPU:{index}" for index in range(count)]
