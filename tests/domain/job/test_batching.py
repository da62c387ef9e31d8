"""Batch and learning-rate arithmetic."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.job.batching import BatchPlan, Indivisible, of_spec
from tests.domain.gang.gangs import spec
from worker_agent.protocol.job.gang_shape import device_count, process_count
from worker_agent.protocol.states import Strategy


def plan(strategy=Strategy.MULTI_WORKER_MIRRORED, **fields):
    outcome = of_spec(spec(strategy, **fields))
    assert isinstance(outcome, BatchPlan), outcome
    return outcome


def test_global_to_worker_to_replica():
    found = plan(workers=2, devices_per_worker=4, global_batch_size=256)
    assert (found.replicas_in_sync, found.per_worker, found.per_replica) == (8, 128, 32)
    assert found.sentences[0] == "256 examples a step = 2 workers × 4 devices × 32 per replica"


@pytest.mark.parametrize(
    ("strategy", "fields", "numbers", "sentence"),
    [
        ("one_device", {}, (1, 64, 64, 1, 64), "64 examples a step on one device"),
        ("mirrored", {"devices_per_worker": 4}, (4, 64, 16, 1, 16), "1 worker × 4 devices × 16 per replica"),
        (
            "central_storage",
            {"devices_per_worker": 2},
            (2, 64, 32, 1, 32),
            "64 examples a step = 1 worker × 2 devices × 32 per replica; variables stay in main memory",
        ),
        ("parameter_server", {"workers": 3}, (1, 64, 64, 1, 64), "3 workers make updates of their own"),
        (
            "parameter_server",
            {"workers": 2, "devices_per_worker": 2},
            (2, 64, 32, 1, 32),
            "one update of one worker (2 devices × 32); 2 workers make updates of their own",
        ),
        ("tpu", {"tpu": "local"}, (1, 64, 64, 1, 64), "divided over the cores of the TPU"),
        (
            "tensor_parallel",
            {"workers": 2, "devices_per_worker": 2, "model_parallel": 2},
            (2, 32, 32, 1, 32),
            "64 examples a step = 2 groups of 2 devices × 32; the devices of a group hold parts of every layer",
        ),
        (
            "tensor_parallel",
            {"workers": 2, "devices_per_worker": 2, "model_parallel": 4},
            (1, 64, 64, 1, 64),
            "1 group of 4 devices × 64",
        ),
        ("tensor_parallel", {"workers": 2}, (2, 32, 32, 1, 32), "2 workers × 1 device × 32 per replica"),
        (
            "pipeline",
            {"workers": 2, "micro_batches": 4},
            (1, 64, 64, 4, 16),
            "64 examples a step pass through 2 stages (2 workers × 1 device)",
        ),
    ],
)
def test_each_strategy_divides_its_own_way(strategy, fields, numbers, sentence):
    found = plan(Strategy(strategy), **fields)
    assert (found.replicas_in_sync, found.per_worker, found.per_replica, found.parts, found.per_part) == numbers
    assert sentence in found.sentences[0]


def test_accumulation_divides_what_a_replica_computes():
    found = plan(workers=2, accumulation=4)
    assert (found.per_replica, found.parts, found.per_part) == (32, 4, 8)
    assert found.sentences[1] == "each replica sums 4 passes of 8 examples before one update"
    outcome = of_spec(spec(workers=2, accumulation=3))
    assert outcome == Indivisible(
        "64 does not divide over 2 workers × 1 device × 3 parts of a step = 6: use 60 or 66", (60, 66)
    )


def test_a_pipeline_says_what_share_its_stages_are_idle_at_best():
    found = plan(Strategy.PIPELINE, workers=2, micro_batches=4)
    assert found.sentences[1] == "4 micro-batches of 16: ideally each stage is idle 20% of a step"
    outcome = of_spec(spec(Strategy.PIPELINE, workers=2, micro_batches=5))
    assert outcome == Indivisible("64 does not divide over 5 micro-batches: use 60 or 65", (60, 65))


def test_what_does_not_divide_names_the_nearest():
    outcome = of_spec(spec(workers=3))
    assert outcome == Indivisible(
        "64 does not divide over 3 workers × 1 device = 3 replicas: use 63 or 66", nearest=(63, 66)
    )


def test_a_batch_smaller_than_the_gang():
    outcome = of_spec(spec(Strategy.MIRRORED, devices_per_worker=4, global_batch_size=3))
    assert outcome.nearest == (4,)


@pytest.mark.parametrize(
    ("scaling", "workers", "rate", "expected"),
    [
        ("linear", 4, 0.1, 0.4),
        ("sqrt", 4, 0.1, 0.2),
        ("sqrt", 2, 1.0, sqrt(2)),
        ("none", 4, 0.1, 0.1),
        ("linear", 1, 0.1, 0.1),
        ("none", 4, None, None),
        ("sqrt", 4, None, None),
    ],
)
def test_scaling(scaling, workers, rate, expected):
    assert plan(workers=workers, learning_rate=rate, lr_scaling=scaling).learning_rate == expected


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ("linear", "learning rate 0.1 × 2 replicas in sync = 0.2, reached from 0.1 over the first 5 epochs"),
        ("sqrt", "learning rate 0.1 × √2 (replicas in sync) = 0.141421, reached from 0.1 over the first 5 epochs"),
    ],
)
def test_warm_up_is_told_with_the_rate_it_starts_from(scaling, words):
    fields = {"devices_per_worker": 2, "learning_rate": 0.1, "lr_scaling": scaling, "warmup_epochs": 5.0}
    found = plan(Strategy.MIRRORED, **fields)
    assert found.warmup_epochs == 5.0
    assert found.sentences[-1] == words


def test_one_replica_is_not_scaled():
    found = plan(Strategy.PIPELINE, workers=2, learning_rate=0.1, lr_scaling="sqrt", warmup_epochs=1.0)
    assert (found.learning_rate, found.warmup_epochs) == (0.1, 0.0)
    assert found.sentences[-1] == "learning rate 0.1: one replica in sync, so square-root scaling changes nothing"


@given(
    st.sampled_from(list(Strategy)),
    st.integers(1, 64),
    st.integers(1, 16),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 1 << 20),
)
def test_nothing_is_lost_in_the_division(strategy, workers, devices, parts, split, size):
    asked = spec(
        strategy,
        workers=workers,
        devices_per_worker=devices,
        accumulation=parts,
        micro_batches=parts,
        model_parallel=split,
        global_batch_size=size,
    )
    outcome = of_spec(asked)
    if isinstance(outcome, BatchPlan):
        assert outcome.per_replica * outcome.replicas_in_sync == size
        assert outcome.per_part * outcome.parts == outcome.per_replica
        assert outcome.per_worker >= outcome.per_replica
        assert all(outcome.sentences)
    else:
        assert outcome.nearest
        for nearest in outcome.nearest:
            again = of_spec(spec(strategy, **_sizes(asked) | {"global_batch_size": nearest}))
            assert isinstance(again, BatchPlan)


def _sizes(asked):
    names = ("workers", "devices_per_worker", "accumulation", "micro_batches", "model_parallel")
    return {name: getattr(asked, name) for name in names}


@pytest.mark.parametrize(
    ("asked", "processes", "devices"),
    [
        ({"strategy": Strategy.PARAMETER_SERVER, "workers": 3, "ps": 2}, 6, 3),
        ({"strategy": Strategy.MIRRORED, "ps": 4, "devices_per_worker": 2}, 1, 2),
        ({"strategy": Strategy.MULTI_WORKER_MIRRORED, "workers": 2, "validation": "evaluator"}, 3, 2),
    ],
)
def test_how_many_processes_and_devices_a_gang_has(asked: dict[str, object], processes: int, devices: int) -> None:
    gang = spec(**asked)
    assert (process_count(gang), device_count(gang)) == (processes, devices)
