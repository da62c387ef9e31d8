"""The learner for the Keras that this process speaks."""

from typing import Any

import keras
import tensorflow as tf

from worker_agent.trainer.model.compiled_model import check_model
from worker_agent.trainer.model.learner import ReplicaLearner


def learner_of(model: Any, strategy: tf.distribute.Strategy) -> ReplicaLearner:
    """The model of `build_model`, ready; raises `TrainingFailed` when it cannot be trained."""
    check_model(model)
    if keras.__name__ == "tf_keras":
        from worker_agent.trainer.model.tf_keras import TfKeras

        return TfKeras(model, strategy)
    from worker_agent.trainer.model.keras3 import Keras3

    return Keras3(model, strategy)
