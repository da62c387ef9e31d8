"""Central storage: the variables lie once, on the host; every device of one process computes on them.

For models whose optimizer slots do not fit beside the activations on each GPU.
"""

from typing import Any

import tensorflow as tf

from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Keras
from worker_agent.trainer.model.compiled_model import check_unscaled
from worker_agent.trainer.recipe.recipe_file import Recipe
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


def check(spec: JobSpec, recipe: Recipe, model: Any, dataset: Any) -> int:
    """See `interface.Check`."""
    if keras_of(spec) is Keras.KERAS3:
        check_unscaled(model)
    return synchronous.check(spec, recipe, model, dataset)
