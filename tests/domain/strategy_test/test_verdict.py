"""Which strategy won, how surely, and why."""

from orchestrator.domain.strategy_test.measured import Measured
from orchestrator.domain.strategy_test.verdict import Result, one_device_rate, verdict
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import Strategy


def result(
    place: int, label: str, strategy: Strategy, rates: list[float], *, devices: int = 1, **more: object
) -> Result:
    runs = [
        Measured(examples_per_s=rate, step_time_ms=1.0, devices=devices, seconds=10.0, **more)  # type: ignore[arg-type]
        for rate in rates
    ]
    return Result(place, label, strategy, runs)


ONE = result(0, "One device", Strategy.ONE_DEVICE, [800, 812, 820])


def gang(*rates: float, **more: object) -> Result:
    return result(1, "MultiWorkerMirrored × 2", Strategy.MULTI_WORKER_MIRRORED, list(rates), devices=2, **more)


def test_a_sure_verdict_has_its_measured_reason() -> None:
    parts = {StepPart.COMPUTE: 0.6, StepPart.COMMUNICATION: 0.38, StepPart.HOST: 0.02}
    said = verdict([gang(500, 510, parts=parts), ONE])
    assert (said.place, said.is_sure) == (0, True)
    assert said.sentence == (
        "One device is 1.61 × as fast as MultiWorkerMirrored × 2: 812 ± 12 examples/s against 505 ± 5 examples/s. "
        "MultiWorkerMirrored × 2 is 31 % as efficient as single devices; 38 % of its time sums gradients."
    )


def test_what_the_spread_leaves_open_is_too_close_to_call() -> None:
    said = verdict([ONE, gang(799, 840)])
    assert (said.place, said.is_sure) == (1, False)
    assert said.sentence == (
        "Too close to call: MultiWorkerMirrored × 2 820 ± 20 examples/s, One device 812 ± 12 examples/s."
    )


def test_a_tenth_is_too_close_however_small_the_spread() -> None:
    assert not verdict([ONE, gang(860, 861)]).is_sure
    assert verdict([ONE, gang(960, 961)]).is_sure


def test_the_time_to_the_target_decides_where_there_is_one() -> None:
    slow = result(1, "Mirrored × 2", Strategy.MIRRORED, [2000], target_s=40.0)
    fast = result(0, "One device", Strategy.ONE_DEVICE, [1000], target_s=20.0)
    never = result(2, "ParameterServer", Strategy.PARAMETER_SERVER, [9000])
    said = verdict([slow, never, fast], until_target="val_loss 0.1")
    assert (said.place, said.is_sure) == (0, True)
    assert said.sentence.startswith("One device reaches val_loss 0.1 2.00 × as fast as Mirrored × 2: 20.0 ± 1.8 s")
    assert verdict([never], until_target="val_loss 0.1").sentence == "No candidate reached val_loss 0.1."


def test_who_is_alone_or_not_measured_wins_nothing() -> None:
    assert not verdict([ONE]).is_sure
    assert verdict([]).place is None
    assert verdict([Result(0, "One device", Strategy.ONE_DEVICE, [])]).sentence == "No candidate was measured."


def test_efficiency_is_against_single_devices() -> None:
    base = one_device_rate([gang(500), ONE])
    assert base is not None
    assert gang(812).efficiency(base) == 0.5
    assert gang(812).efficiency(None) is None


def test_what_is_spent_between_steps_is_told_as_that() -> None:
    parts = {StepPart.COMPUTE: 0.1, StepPart.COMMUNICATION: 0.2}
    said = verdict([gang(500, 510, parts=parts), ONE])
    assert said.sentence.endswith("70 % of its time is spent between steps: validation, checkpoints, callbacks.")
