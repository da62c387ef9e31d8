"""The advice as a whole: its answer, the measured level, what would change it, batches, busy clusters, rules."""

from dataclasses import replace

import pytest

from orchestrator.domain.advice.advice import Level, advise
from orchestrator.domain.advice.batch import noise_scale
from orchestrator.domain.advice.calibration import Calibration
from orchestrator.domain.advice.candidates import Candidate, Goal, Staleness, layout_of_job
from orchestrator.domain.advice.cluster import LINKS
from orchestrator.domain.advice.ranking import value
from orchestrator.domain.advice.sentences import SENTENCES, Code, amount
from tests.domain.advice.cases import asked, gpu_model, gpus, winner, wishes
from tests.environment import ROOT
from worker_agent.protocol.job.choices import Precision
from worker_agent.protocol.job.recipe_text import RecipeInfo
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import Keras, NodeState, Strategy

GANG, MIRRORED = Strategy.MULTI_WORKER_MIRRORED, Strategy.MIRRORED
EVEN = (1.0,) * 4


def codes(row, kind):
    return {remark["code"] for remark in row[kind]}


def row_of(told, strategy):
    return next(row for row in told["candidates"] if row["strategy"] == strategy)


def test_every_code_has_a_sentence():
    assert set(SENTENCES) == set(Code)


def test_the_answer():
    told = asked(gpu_model(), gpus(*EVEN)).as_json()
    assert {row["strategy"] for row in told["candidates"]} == set(STRATEGIES)
    best = row_of(told, GANG)
    assert (best["workers"], best["devices_per_worker"], best["fits"]) == (4, 1, True)
    assert best["nodes"] == ["n01", "n02", "n03", "n04"]
    predicted = best["predicted"]
    assert predicted["low_ms"] < predicted["step_time_ms"] < predicted["high_ms"]
    assert sum(predicted["parts"].values()) == pytest.approx(predicted["step_time_ms"])
    assert predicted["examples_per_s"] == pytest.approx(256e3 / predicted["step_time_ms"])
    assert predicted["epoch_s"] == pytest.approx(100_000 / predicted["examples_per_s"])
    assert predicted["device_hours_per_epoch"] == pytest.approx(4 * predicted["epoch_s"] / 3600)
    # Variables, two slots of Adam, gradients, their packed copy, 64 examples, CUDA.
    assert predicted["memory_bytes"] == pytest.approx(100e6 * 5 + 64 * 20e6 + 0.8e9)
    assert best["efficiency"] == pytest.approx(132 / predicted["step_time_ms"] / 4)
    assert Code.USUAL_CONSTANTS in codes(best, "cautions")
    assert told["verdict"]["strategy"] == GANG
    assert told["level"] == "instant"
    tpu = row_of(told, Strategy.TPU)
    assert (tpu["fits"], tpu["predicted"], codes(tpu, "reasons")) == (False, None, {Code.NOT_PREDICTED})


def test_reasons_name_their_figures():
    told = asked(gpu_model(), gpus(1.0, 1.0, 0.5, network=LINKS["ethernet_1g"]), batch=96).as_json()
    three = next(row for row in told["candidates"] if (row["strategy"], row["workers"]) == (GANG, 3))
    reasons = {remark["code"]: remark for remark in three["reasons"]}
    assert reasons[Code.GRADIENTS_TRAVEL]["figures"]["moved_bytes"] == 100e6
    assert "100 MB" in reasons[Code.GRADIENTS_TRAVEL]["sentence"]
    assert "117 MB/s" in reasons[Code.GRADIENTS_TRAVEL]["sentence"]
    assert Code.SLOWDOWN in reasons


def test_the_slow_node_is_named():
    told = asked(gpu_model(parameter_bytes=1e6, dense_bytes=1e6), gpus(1.0, 1.0, 1.0, 0.25), batch=512).as_json()
    four = next(row for row in told["candidates"] if (row["strategy"], row["workers"]) == (GANG, 4))
    waits = next(remark for remark in four["reasons"] if remark["code"] == Code.SLOWEST_WAITED_FOR)
    assert waits["figures"]["node"] == "n04"
    assert waits["figures"]["times"] == pytest.approx(4 / 1.75)


def test_the_measured_level_is_the_mean_of_formula_and_measurement():
    cluster, model = gpus(*EVEN), gpu_model()
    instant = asked(model, cluster)
    near = instant.to_measure()
    assert near[0].spec.strategy is GANG
    assert len(near) <= 3
    assert len({each.spec.strategy for each in near}) == len(near)
    formula = instant.verdict.best.step_ms
    took = {near[0].key: [4 * formula, 4.2 * formula, 3.9 * formula]}
    measured = advise(model, cluster, wishes(), timings=took, with_changes=False)
    each = next(each for each in measured.predictions if each.candidate.key == near[0].key)
    assert measured.level is Level.MEASURED
    assert each.step_ms == pytest.approx(2 * formula)
    assert (each.low_ms, each.high_ms) == (pytest.approx(2 * formula / 1.09), pytest.approx(4.2 * formula))
    assert each.formula_ms == pytest.approx(formula)


def test_a_verdict_is_sure_only_where_no_interval_reaches_it():
    model, cluster = gpu_model(), gpus(1.0, each=4)
    usual = asked(model, cluster)
    assert winner(usual) is MIRRORED
    fitted = Calibration({each.candidate.layout: {} for each in usual.predictions})
    calibrated = asked(model, replace(cluster, calibration=fitted))
    assert (calibrated.verdict.is_sure, calibrated.verdict.remark.code) == (True, Code.BEST)
    assert calibrated.verdict.best.high_ms < usual.verdict.best.high_ms
    two = asked(model, gpus(1.0, each=2))
    assert (two.verdict.is_sure, two.verdict.remark.code) == (False, Code.LIKELY)


def test_what_would_change_the_verdict_is_where_it_changes():
    """Just above the border the other strategy wins, just below it the same one."""
    model, cluster = gpu_model(), gpus(*EVEN, network=LINKS["ethernet_1g"])
    found = advise(model, cluster, wishes())
    change = next(each for each in found.would_change if each.figures["knob"] == "bandwidth")
    assert winner(found) is Strategy.ONE_DEVICE
    assert change.figures["strategy"] == GANG
    border = change.figures["value_exact"]
    for factor, strategy in ((1.01, GANG), (0.9, Strategy.ONE_DEVICE)):
        moved = replace(cluster, network=replace(cluster.network, bytes_per_s=border * factor))
        assert winner(asked(model, moved)) is strategy
    assert amount(border) in change.sentence
    knobs = {each.figures["knob"] for each in found.would_change}
    assert {"bandwidth", "global_batch_size"} <= knobs


def test_the_example_of_the_documentation():
    text = " ".join((ROOT / "docs" / "choosing.md").read_text().split())
    found = advise(gpu_model(), gpus(*EVEN, network=LINKS["ethernet_1g"]), wishes())
    change = next(each for each in found.would_change if each.figures["knob"] == "bandwidth")
    assert change.sentence in text
    steps = {each.candidate.spec.workers: each for each in found.predictions if each.candidate.spec.strategy is GANG}
    assert found.verdict.best.step_ms == pytest.approx(132)
    assert steps[4].parts[StepPart.COMPUTE] + steps[4].parts[StepPart.APPLY] == pytest.approx(36)
    assert steps[4].parts[StepPart.COMMUNICATION] == pytest.approx(1282, rel=0.001)


def test_memory_and_nodes_may_change_the_verdict():
    large = gpu_model(parameters=400_000_000, parameter_bytes=1.6e9, dense_bytes=1.6e9, activation_bytes=1e6)
    found = advise(large, gpus(1.0, each=2, memory=6.5e9), wishes())
    assert winner(found) is Strategy.TENSOR_PARALLEL
    memory = next(each for each in found.would_change if each.figures["knob"] == "memory")
    # Two copies need their variables, two slots, gradients, the packed ones, and CUDA.
    assert memory.figures["value_exact"] == pytest.approx(5 * 1.6e9 + 0.8e9, rel=0.05)
    assert memory.figures["strategy"] == MIRRORED
    alone = advise(gpu_model(), gpus(1.0), wishes())
    assert {each.figures["knob"]: each.figures["strategy"] for each in alone.would_change} == {"nodes": GANG}


def test_stale_gradients_would_change_it():
    small = gpu_model(parameter_bytes=10e6, dense_bytes=10e6, variables=30)
    found = advise(small, gpus(1.0, 1.0, 1.0, 0.25), wishes(512))
    assert Code.STALE_CHANGE in {each.code for each in found.would_change}


def test_a_free_batch_grows_with_the_replicas_and_says_what_that_means():
    cluster = gpus(1.0, each=4)
    fixed, free = (asked(gpu_model(), cluster, batch=32, fixed_batch=is_fixed) for is_fixed in (True, False))
    assert fixed.verdict.best.candidate.spec.global_batch_size == 32
    assert free.verdict.best.candidate.spec.global_batch_size == 128
    cautions = codes(next(row for row in free.as_json()["candidates"] if row["global_batch_size"] == 128), "cautions")
    assert {Code.LARGER_BATCH, Code.NOISE_UNKNOWN} <= cautions


@pytest.mark.parametrize(("noise", "batch"), [(10.0, 32), (100_000.0, 128)])
def test_a_measured_noise_scale_decides_how_far_a_batch_pays(noise, batch):
    found = asked(gpu_model(noise_scale=noise), gpus(1.0, each=4), batch=32, fixed_batch=False)
    assert found.verdict.best.candidate.spec.global_batch_size == batch


def test_batches_of_servers_count_together_where_the_noise_scale_is_known():
    """Four workers compute four batches from the same weights: with much signal in each that is a waste."""
    small = gpu_model(parameter_bytes=10e6, dense_bytes=10e6, variables=30)
    uneven = gpus(1.0, 1.0, 1.0, 0.25)
    best = {
        noise: winner(asked(replace(small, noise_scale=noise), uneven, batch=512, staleness=Staleness.ALLOWED))
        for noise in (None, 1e6, 10.0)
    }
    assert best == {None: Strategy.PARAMETER_SERVER, 1e6: Strategy.PARAMETER_SERVER, 10.0: GANG}


def test_what_machine_losses_cost_counts_in_the_ranking():
    """Two gangs of the same speed: one could lose its machines and would train half a day anew."""
    steady, shaky = (asked(gpu_model(examples=10**8), gpus(*EVEN, preemptible=lost)) for lost in (False, True))
    first = {each.candidate.key: each for each in steady.predictions}
    wish = wishes()
    for each in shaky.predictions:
        assert each.step_ms == first[each.candidate.key].step_ms
        assert value(wish, each) == pytest.approx(value(wish, first[each.candidate.key]) * each.goodput)
        assert each.goodput < 0.9


def test_what_waits_for_other_jobs_says_so_and_is_judged_as_if_it_did_not():
    idle = gpus(*EVEN)
    nodes = tuple(replace(node, held=frozenset({0})) for node in idle.view.nodes)
    busy = replace(idle, view=replace(idle.view, nodes=nodes))
    one, other = asked(gpu_model(), idle), asked(gpu_model(), busy)
    assert winner(one) is winner(other) is GANG
    assert Code.BUSY not in codes(row_of(one.as_json(), GANG), "cautions")
    assert Code.BUSY in codes(row_of(other.as_json(), GANG), "cautions")


def test_rules_of_a_request_hold_for_an_advice():
    """Mixed precision rules out parameter servers, Keras 2 the divided models, and a pipeline needs its stages."""
    recipe = RecipeInfo("", "", ())
    told = asked(gpu_model(), gpus(*EVEN), precision=Precision.MIXED_BFLOAT16, recipe=recipe).as_json()
    rules = {
        Strategy.PARAMETER_SERVER: "updated in float32",
        Strategy.TENSOR_PARALLEL: "compute in float32",
        Strategy.PIPELINE: "build_stages",
    }
    for strategy, words in rules.items():
        row = row_of(told, strategy)
        assert (row["fits"], codes(row, "reasons")) == (False, {Code.RULE})
        assert words in row["reasons"][0]["sentence"]
    legacy = asked(gpu_model(), gpus(*EVEN), keras=Keras.TF_KERAS).as_json()
    assert row_of(legacy, Strategy.TENSOR_PARALLEL)["reasons"][0]["figures"]["field"] == "keras"


def test_the_sizes_of_a_request_do_not_bind_the_advice():
    plain = asked(gpu_model(), gpus(*EVEN))
    sized = asked(gpu_model(), gpus(*EVEN), strategy=GANG, workers=3, chief=True, accumulation=4)
    assert [each.candidate.key for each in plain.predictions] == [each.candidate.key for each in sized.predictions]


def test_workers_that_divide_the_batch_are_found_among_the_nodes_that_take_jobs():
    """Of eight nodes one is cordoned: seven do not divide 96, six do."""
    cluster = gpus(*(1.0,) * 8)
    nodes = [replace(cluster.view.nodes[0], state=NodeState.CORDONED), *cluster.view.nodes[1:]]
    found = asked(gpu_model(), replace(cluster, view=replace(cluster.view, nodes=tuple(nodes))), batch=96)
    workers = {each.candidate.spec.workers for each in found.predictions if each.candidate.spec.strategy is GANG}
    assert workers == {2, 3, 4, 6}


def test_nothing_says_how_fast_the_model_is():
    with pytest.raises(ValueError, match="probe it, or give its FLOPs"):
        asked(gpu_model(probes=()), gpus(1.0))


def test_an_empty_cluster():
    empty = gpus()
    found = asked(gpu_model(), empty)
    assert found.verdict.best is None
    assert "has no nodes yet" in found.verdict.remark.sentence


def test_cost_matters():
    found = asked(gpu_model(), gpus(*EVEN), goal=Goal.COST, staleness=Staleness.ALLOWED)
    assert winner(found) is Strategy.ONE_DEVICE
    assert found.verdict.remark.code in (Code.CHEAPEST, Code.TOO_CLOSE)


@pytest.mark.parametrize(("strategy", "fits"), [(GANG, True), (MIRRORED, False)])
def test_a_job_as_it_stands_is_predicted_or_refused(strategy, fits):
    """For the page of a job: would another layout be faster?"""
    cluster = gpus(*EVEN)
    job = wishes(strategy=strategy, workers=2 if fits else 1, devices_per_worker=1 if fits else 2).job
    found = layout_of_job(job, cluster)
    assert isinstance(found, Candidate) is fits
    if isinstance(found, Candidate):
        assert (found.spec, len(found.computing)) == (job, 2)
        assert found.key in {each.candidate.key for each in asked(gpu_model(), cluster).predictions}
    else:
        assert "fits no node" in found.remark.sentence


def test_the_noise_scale_is_found_from_norms_before_and_after_the_sum():
    """Gradients whose noise has a known size: the mean square norm at a batch is signal + noise / batch."""
    signal, noise = 4.0, 4000.0
    squares = {size: signal + noise / size for size in (32, 256)}
    found = noise_scale(small=32, small_square=squares[32], large=256, large_square=squares[256])
    assert found == pytest.approx(noise / signal)
    assert noise_scale(small=32, small_square=1.0, large=256, large_square=2.0) is None
