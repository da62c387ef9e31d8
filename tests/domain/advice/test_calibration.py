"""Constants fitted on runs, and what later runs correct."""

from functools import partial
from random import Random

import msgspec
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
    layout_of,
    parts_ms,
    step_ms,
)
from orchestrator.domain.advice.candidates import Staleness, candidates
from orchestrator.domain.advice.cluster import Cluster, Machine
from orchestrator.domain.advice.costs import situation, terms
from orchestrator.domain.advice.prediction import Trained, calibrated, predict
from orchestrator.domain.advice.reasons import reasons
from orchestrator.domain.advice.sentences import Code
from orchestrator.domain.advice.workload import Probe, Workload
from tests.domain.advice.cases import line, wishes
from tests.domain.gang.gangs import cluster as view_of
from tests.domain.gang.gangs import node
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import DeviceKind, Keras, Strategy

CPU = DeviceKind.CPU
MIRRORED_ON_CPU = layout_of(Strategy.MIRRORED, CPU)
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


def layout(strategy):
    layouts = candidates(PAIR, wishes(128, staleness=Staleness.ALLOWED))[0]
    sizes = [(each.spec.workers, each.spec.devices_per_worker, each.spec.ps) for each in layouts]
    return next(
        each
        for each, own in zip(layouts, sizes, strict=True)
        if (each.spec.strategy, own) == (strategy, SIZES[strategy])
    )


def formula(strategy, number):
    return partial(terms, situation(model(number), PAIR, layout(strategy)))


@pytest.mark.parametrize("strategy", SIZES)
def test_constants_found_on_ten_models_predict_others(strategy):
    """Truth with the noise of repeated runs, 9 %; judged on ten models that the fit has not seen."""
    random, name = Random(strategy), layout_of(strategy, CPU)
    truth = {key: TRUE[key] for key in USUAL[name]}

    def run(number):
        return formula(strategy, number), step_ms(formula(strategy, number)(truth), truth)

    runs = [(ask, ms * random.uniform(0.91, 1.09)) for ask, ms in map(run, range(10))]
    constants = fitted(name, runs)
    assert all(value >= 0 for value in constants.values())
    errors = sorted(abs(step_ms(ask(constants), constants) / ms - 1) for ask, ms in map(run, range(10, 20)))
    usual = sorted(abs(step_ms(ask(USUAL[name]), USUAL[name]) / ms - 1) for ask, ms in map(run, range(10, 20)))
    assert errors[5] < 0.05
    assert errors[-1] < 0.20
    assert errors[5] < usual[5] / 3


def test_without_noise_the_constants_themselves_are_found():
    strategy = Strategy.MULTI_WORKER_MIRRORED
    name = layout_of(strategy, CPU)
    truth = {key: TRUE[key] for key in USUAL[name]}
    runs = [(ask, step_ms(ask(truth), truth)) for ask in (formula(strategy, number) for number in range(12))]
    constants = fitted(name, runs)
    assert [constants[key] for key in ("compute", "fixed", "bytes")] == pytest.approx([1.15, 5.0, 2.2], rel=0.03)
    # No model had a table: what the runs leave open stays as usual.
    assert constants["rows"] == pytest.approx(USUAL[name]["rows"])


def test_no_runs_leave_the_usual_constants():
    name = layout_of(Strategy.MIRRORED, CPU)
    assert fitted(name, []) == USUAL[name]
    assert not Calibration().is_fitted(name)
    assert Calibration({name: {"bytes": 3.0}}).of(name) == {**USUAL[name], "bytes": 3.0}


def test_parts_are_the_step():
    some = [Term(StepPart.COMPUTE, "compute", 4.0), Term(StepPart.HOST, "", 1.0), Term(StepPart.APPLY, "compute", 2.0)]
    assert step_ms(some, {"compute": 2.0}) == 13
    parts = parts_ms(some, {"compute": 2.0})
    assert (parts[StepPart.COMPUTE], parts[StepPart.APPLY], parts[StepPart.HOST]) == (8, 4, 1)


def observed(*ratios: float) -> list[Observed]:
    return [Observed(MIRRORED_ON_CPU, 10.0, 10.0 * ratio) for ratio in ratios]


def corrected(*ratios: float) -> Correction:
    return corrections(observed(*ratios))[MIRRORED_ON_CPU]


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
    before, after = (predict(model(1), cluster, layout(Strategy.MIRRORED)) for cluster in (PAIR, learnt))
    assert after.step_ms == pytest.approx(before.step_ms * found[MIRRORED_ON_CPU].factor)
    assert after.formula_ms == before.formula_ms
    assert Code.CORRECTED in {remark.code for remark in reasons(after, None)}
    assert Code.CORRECTED not in {remark.code for remark in reasons(before, None)}


def test_a_calibration_from_trainings_of_several_layouts():
    runs = []
    for strategy in (Strategy.MIRRORED, Strategy.MULTI_WORKER_MIRRORED):
        truth = {key: TRUE[key] for key in USUAL[layout_of(strategy, CPU)]}
        for number in range(10):
            ask = formula(strategy, number)
            runs.append(Trained(model(number), layout(strategy), step_ms(ask(truth), truth)))
    found = calibrated(PAIR, runs)
    assert set(found.constants) == {MIRRORED_ON_CPU, layout_of(Strategy.MULTI_WORKER_MIRRORED, CPU)}
    assert found.constants[MIRRORED_ON_CPU]["variables"] == pytest.approx(0.4, rel=0.05)
    assert found.is_fitted(MIRRORED_ON_CPU)
    assert not found.is_fitted(layout_of(Strategy.ONE_DEVICE, CPU))


def test_what_is_kept_and_sent_is_read_again():
    """In a database and on the wire they are JSON."""
    kept = Calibration({MIRRORED_ON_CPU: {"bytes": 2.0}}, corrections(observed(1.2)))
    for value in (model(3), PAIR.machines["n1"], kept):
        assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
    bad = msgspec.json.encode(model(3)).replace(b'"variables":', b'"variables":-')
    with pytest.raises(msgspec.ValidationError, match="variables of a workload is"):
        msgspec.json.decode(bad, type=Workload)
