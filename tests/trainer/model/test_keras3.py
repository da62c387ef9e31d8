"""What Keras 3 does at a start that a gang would pay for with collectives."""

import keras
import pytest
import tensorflow as tf
from tensorflow.python.distribute.values import SyncOnReadVariable

from worker_agent.trainer.model.keras3 import Keras3

pytestmark = pytest.mark.tf


def test_metrics_are_reset_without_being_read_over_all_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = keras.Sequential([keras.layers.InputLayer((2,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
        learner = Keras3(model, strategy)
    learner.create_variables((tf.TensorSpec((4, 2)), tf.TensorSpec((4, 1))))
    metrics = [each.value for each in learner.metric_variables]
    assert metrics
    assert all(isinstance(each, SyncOnReadVariable) for each in metrics)
    for each in metrics:
        each.assign(tf.ones(each.shape, each.dtype))
    reads: list[SyncOnReadVariable] = []
    with monkeypatch.context() as patch:
        patch.setattr(SyncOnReadVariable, "read_value", lambda self: reads.append(self))
        model.reset_metrics()
    assert not reads
    assert [each.numpy() for each in metrics] == [0.0] * len(metrics)
