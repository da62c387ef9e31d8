"""Batch and learning-rate arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.batching import BatchPlan, Indivisible, divide
from worker_agent.protocol.states import Strategy


def test_global_to_worker_to_replica():
    plan = divide(Strategy.MULTI_WORKER_MIRRORED, workers=2, devices_per_worker=4, global_batch_size=256)
    assert (plan.replicas_in_sync, plan.per_worker, plan.per_replica) == (8, 128, 32)
    assert plan.sentences[0] == "256 examples a step = 2 workers × 4 devices × 32 per replica"


def test_a_parameter_server_update_is_one_workers_batch():
    plan = divide(Strategy.PARAMETER_SERVER, workers=3, devices_per_worker=1, global_batch_size=64)
    assert (plan.replicas_in_sync, plan.per_worker, plan.per_replica) == (1, 64, 64)
    assert "3 workers update on their own" in plan.sentences[0]


def test_what_does_not_divide_names_the_nearest():
    outcome = divide(Strategy.MULTI_WORKER_MIRRORED, workers=3, devices_per_worker=1, global_batch_size=64)
    assert outcome == Indivisible(
        "64 does not divide over 3 workers × 1 device = 3 replicas: use 63 or 66", nearest=(63, 66)
    )


def test_a_batch_smaller_than_the_gang():
    outcome = divide(Strategy.MIRRORED, workers=1, devices_per_worker=4, global_batch_size=3)
    assert outcome.nearest == (4,)


@pytest.mark.parametrize(
    ("scaling", "workers", "rate", "expected"),
    [("linear", 4, 0.1, 0.4), ("none", 4, 0.1, 0.1), ("linear", 1, 0.1, 0.1), ("none", 4, None, None)],
)
def test_linear_scaling(scaling, workers, rate, expected):
    plan = divide(
        Strategy.MULTI_WORKER_MIRRORED,
        workers=workers,
        devices_per_worker=1,
        global_batch_size=64,
        learning_rate=rate,
        lr_scaling=scaling,
    )
    assert plan.learning_rate == expected


def test_warm_up_is_told_with_the_rate_it_starts_from():
    plan = divide(
        Strategy.MIRRORED,
        workers=1,
        devices_per_worker=2,
        global_batch_size=64,
        learning_rate=0.1,
        lr_scaling="linear",
        warmup_epochs=5.0,
    )
    assert plan.warmup_epochs == 5.0
    assert plan.sentences[1] == (
        "learning rate 0.1 × 2 replicas in sync = 0.2, reached from 0.1 over the first 5 epochs"
    )


@given(st.sampled_from(list(Strategy)), st.integers(1, 64), st.integers(1, 16), st.integers(1, 1 << 20))
def test_nothing_is_lost_in_the_division(strategy, workers, devices, size):
    outcome = divide(strategy, workers=workers, devices_per_worker=devices, global_batch_size=size)
    if isinstance(outcome, BatchPlan):
        assert outcome.per_replica * outcome.replicas_in_sync == size
        assert outcome.per_worker == outcome.per_replica * devices
    else:
        assert outcome.nearest
        for nearest in outcome.nearest:
            again = divide(strategy, workers=workers, devices_per_worker=devices, global_batch_size=nearest)
            assert isinstance(again, BatchPlan)
