"""Constants fitted on runs, and what later runs correct."""

from random import Random

import pytest

from orchestrator.domain.advice.calibration import (
    FACTOR_MAX,
    USUAL,
    Calibration,
    Correction,
    Observed,
    Term,
    corrections,
    fitted,
    parts_ms,
    step_ms,
)
from orchestrator.domain.advice.candidates import Staleness, candidates
from orchestrator.domain.advice.cluster import Cluster, Machine
from orchestrator.domain.advice.costs import situation, terms
from orchestrator.domain.advice.prediction import predict
from orchestrator.domain.advice.workload import Probe, Workload
from tests.domain.advice.cases import line, wishes
from tests.domain.gang.gangs import cluster as view_of
from tests.domain.gang.gangs import node
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import DeviceKind, Keras, Strategy

CPU = DeviceKind.CPU
VIEW = view_of(node("n1", 2, address="10.0.0.1"), node("n2", 2, address="10.0.0.1"))
PAIR = Cluster(view=VIEW, machines={name: Machine(cores=2) for name in ("n1", "n2")})
SIZES = {
    Strategy.MIRRORED: (1, 2, 0),
    Strategy.CENTRAL_STORAGE: (1, 2, 0),
    Strategy.MULTI_WORKER_MIRRORED: (2, 1, 0),
    Strategy.PARAMETER_SERVER: (2, 1, 1),
}
# What a cluster may have, far from the usual.
TRUE = {"compute": 1.15, "apply": 0.9, "fixed": 5.0, "variables": 0.4, "bytes": 2.2, "rows": 3.0, "rows_fixed": 1.0}


def model(number: int) -> Workload:
    """Models as a calibration takes them: of all sizes, with Adam and with SGD."""
    random = Random(number)
    megabytes, adam = 10 ** random.uniform(-1.5, 1.5), number % 2
    example = random.uniform(0.02, 0.2)
    apply = (0.3 + 0.6 * megabytes) * (1 if adam else 0.2)
    probes = tuple(Probe(keras, CPU, line(1 + apply, example, (32, 64, 128)), apply) for keras in Keras)
    return Workload(
        parameters=int(megabytes * 250_000),
        parameter_bytes=megabytes * 1e6,
        variables=random.randint(4, 60),
        dense_bytes=megabytes * 1e6,
        probes=probes,
    )


def formula(strategy, number):
    workers, devices, ps = SIZES[strategy]
    layouts = candidates(PAIR, wishes(128, staleness=Staleness.ALLOWED))[0]
    layout = next(
        each
        for each in layouts
        if each.spec.strategy is strategy
        and (each.spec.workers, each.spec.devices_per_worker, each.spec.ps) == (workers, devices, ps)
    )
    found = situation(model(number), PAIR, layout)
    return lambda constants: terms(found, constants)


@pytest.mark.parametrize("strategy", SIZES)
def test_constants_found_on_ten_models_predict_others(strategy):
    """Truth with the noise of repeated runs, 9 %; judged on ten models that the fit has not seen."""
    random, layout = Random(strategy), (strategy, CPU)
    truth = {name: TRUE[name] for name in USUAL[layout]}

    def run(number):
        return formula(strategy, number), step_ms(formula(strategy, number)(truth), truth)

    runs = [(ask, ms * random.uniform(0.91, 1.09)) for ask, ms in map(run, range(10))]
    constants = fitted(layout, runs)
    assert all(value >= 0 for value in constants.values())
    errors = sorted(abs(step_ms(ask(constants), constants) / ms - 1) for ask, ms in map(run, range(10, 20)))
    usual = sorted(abs(step_ms(ask(USUAL[layout]), USUAL[layout]) / ms - 1) for ask, ms in map(run, range(10, 20)))
    assert errors[5] < 0.05
    assert errors[-1] < 0.20
    assert errors[5] < usual[5] / 3


def test_without_noise_the_constants_themselves_are_found():
    layout = (Strategy.MULTI_WORKER_MIRRORED, CPU)
    truth = {name: TRUE[name] for name in USUAL[layout]}
    runs = [(ask, step_ms(ask(truth), truth)) for ask in (formula(layout[0], number) for number in range(12))]
    constants = fitted(layout, runs)
    assert [constants[name] for name in ("compute", "fixed", "bytes")] == pytest.approx([1.15, 5.0, 2.2], rel=0.03)
    # No model had a table: what the runs leave open stays as usual.
    assert constants["rows"] == pytest.approx(USUAL[layout]["rows"])


def test_no_runs_leave_the_usual_constants():
    layout = (Strategy.MIRRORED, CPU)
    assert fitted(layout, []) == USUAL[layout]
    assert not Calibration().is_fitted(layout)
    assert Calibration({layout: {"bytes": 3.0}}).of(layout) == {**USUAL[layout], "bytes": 3.0}


def test_parts_are_the_step():
    some = [Term(StepPart.COMPUTE, "compute", 4.0), Term(StepPart.HOST, "", 1.0), Term(StepPart.APPLY, "compute", 2.0)]
    assert step_ms(some, {"compute": 2.0}) == 13
    parts = parts_ms(some, {"compute": 2.0})
    assert (parts[StepPart.COMPUTE], parts[StepPart.APPLY], parts[StepPart.HOST]) == (8, 4, 1)


def observed(*ratios: float) -> list[Observed]:
    return [Observed(Strategy.MIRRORED, CPU, 10.0, 10.0 * ratio) for ratio in ratios]


def corrected(*ratios: float) -> Correction:
    return corrections(observed(*ratios))[Strategy.MIRRORED, CPU]


def test_a_correction_grows_with_the_runs_that_agree():
    one, many = corrected(1.3), corrected(*[1.3] * 20)
    assert 1 < one.factor < many.factor < 1.3
    assert (one.runs, many.runs) == (1, 20)
    assert many.ratio == pytest.approx(1.3)
    assert not many.held


def test_a_correction_is_bounded_and_says_so():
    far = corrected(*[4.0] * 20)
    assert (far.factor, far.held) == (pytest.approx(FACTOR_MAX), True)
    near = corrected(*[0.1] * 20)
    assert (near.factor, near.held) == (pytest.approx(1 / FACTOR_MAX), True)


def test_one_odd_run_moves_nothing_and_old_runs_are_forgotten():
    assert corrected(1.0, 1.0, 9.0, 1.0, 1.0).factor == pytest.approx(1.0)
    assert corrected(*[1.4] * 50, *[1.0] * 20).factor == pytest.approx(1.0)


def test_a_correction_moves_the_prediction_and_not_what_the_next_is_judged_by():
    """Otherwise each correction would be undone by the one after it."""
    found = corrections(observed(*[1.3] * 20))
    learnt = Cluster(view=VIEW, machines=PAIR.machines, calibration=Calibration(corrections=found))
    layout = next(each for each in candidates(PAIR, wishes(128))[0] if each.spec.strategy is Strategy.MIRRORED)
    before, after = (predict(model(1), cluster, layout) for cluster in (PAIR, learnt))
    assert after.step_ms == pytest.approx(before.step_ms * found[Strategy.MIRRORED, CPU].factor)
    assert after.formula_ms == before.formula_ms
