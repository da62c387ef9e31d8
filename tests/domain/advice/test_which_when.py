"""Which strategy when: each row of what the advice promises, and its borders."""

from dataclasses import replace

import pytest

from orchestrator.domain.advice.candidates import Goal, Staleness
from orchestrator.domain.advice.cluster import LINKS
from orchestrator.domain.advice.sentences import Code
from orchestrator.domain.advice.workload import Probe, Table
from tests.domain.advice.cases import asked, gpu_model, gpus, line, winner
from worker_agent.protocol.states import DeviceKind, Keras, Strategy

ONE, MIRRORED, GANG = Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.MULTI_WORKER_MIRRORED
SERVED, TENSOR, PIPE = Strategy.PARAMETER_SERVER, Strategy.TENSOR_PARALLEL, Strategy.PIPELINE
SLOW, FAST = LINKS["ethernet_1g"], LINKS["ethernet_100g"]
EVEN, UNEVEN, MANY = (1.0,) * 4, (1.0, 1.0, 1.0, 0.25), (1.0,) * 32
SMALL = {"parameter_bytes": 10e6, "dense_bytes": 10e6, "variables": 30}
TINY = {"probes": tuple(Probe(keras, DeviceKind.GPU, line(0.4, 0.002)) for keras in Keras)}
ALLOWED, REFUSED, WELCOME = Staleness.ALLOWED, Staleness.REFUSED, Staleness.WELCOME


@pytest.mark.parametrize(
    ("model", "cluster", "fields", "best"),
    [
        # What the strategy is for, and the cases beside it where it is not.
        pytest.param({}, gpus(1.0), {}, ONE, id="one GPU"),
        pytest.param({}, gpus(1.0, each=4), {}, MIRRORED, id="several GPUs of one machine"),
        pytest.param({}, gpus(1.0, each=2), {}, MIRRORED, id="two GPUs of one machine"),
        pytest.param({}, gpus(1.0, each=8), {"batch": 1}, ONE, id="several GPUs, but nothing to divide"),
        pytest.param(TINY, gpus(1.0, each=8), {}, ONE, id="several GPUs, but next to nothing to compute"),
        pytest.param({}, gpus(1.0, each=4), {"goal": Goal.COST}, ONE, id="several GPUs, but cost matters"),
        pytest.param({}, gpus(*EVEN, network=FAST), {}, GANG, id="even machines, fast network"),
        pytest.param({}, gpus(*EVEN, each=4, network=FAST), {"batch": 1024}, GANG, id="even, with several GPUs each"),
        pytest.param({}, gpus(*EVEN, network=SLOW), {}, ONE, id="even machines, slow network"),
        pytest.param({}, gpus(*EVEN, each=4, network=SLOW), {}, MIRRORED, id="slow network, but several GPUs each"),
        pytest.param(
            {}, gpus(*EVEN, network=FAST), {"staleness": ALLOWED}, GANG, id="even and fast: no need for servers"
        ),
        pytest.param(SMALL, gpus(*UNEVEN), {"staleness": ALLOWED, "batch": 512}, SERVED, id="uneven machines"),
        pytest.param(SMALL, gpus(*UNEVEN), {"staleness": REFUSED, "batch": 512}, GANG, id="uneven, but nothing stale"),
        pytest.param(SMALL, gpus(*EVEN), {"staleness": ALLOWED, "batch": 512}, GANG, id="the same machines, but even"),
        pytest.param({}, gpus(*MANY), {"staleness": ALLOWED, "batch": 64}, SERVED, id="many machines, small batch"),
        pytest.param({}, gpus(*MANY), {"staleness": ALLOWED, "batch": 4096}, GANG, id="many machines, large batch"),
    ],
)
def test_which_strategy_when(model, cluster, fields, best):
    assert winner(asked(gpu_model(**model), cluster, **fields)) is best


@pytest.mark.parametrize(
    ("preemptible", "staleness", "best"),
    [
        (False, ALLOWED, GANG),
        (True, ALLOWED, SERVED),
        (True, REFUSED, GANG),
        (False, WELCOME, SERVED),
    ],
)
def test_machines_that_may_be_lost_and_asynchronous_updates_decide_where_times_are_close(preemptible, staleness, best):
    """A model whose gradients are small: both ways take nearly the same time."""
    light = gpu_model(parameter_bytes=4e6, dense_bytes=4e6, variables=20)
    found = asked(light, gpus(*EVEN, preemptible=preemptible), staleness=staleness, batch=64 * 4)
    served = min(each.step_ms for each in found.predictions if each.candidate.spec.strategy is SERVED)
    gang = min(each.step_ms for each in found.predictions if each.candidate.spec.strategy is GANG)
    assert served == pytest.approx(gang, rel=0.3)
    assert winner(found) is best


@pytest.mark.parametrize(
    ("memory", "divided"),
    [(120e9, False), (50e9, False), (46e9, True), (20e9, True)],
)
def test_a_model_larger_than_a_device_is_divided(memory, divided):
    """3 B parameters with Adam: 48 GB of variables, slots and gradients."""
    large = gpu_model(parameters=3_000_000_000, parameter_bytes=12e9, dense_bytes=12e9, activation_bytes=1e6)
    found = asked(large, gpus(1.0, each=8, memory=memory))
    held_whole = [each for each in found.predictions if each.fits and each.candidate.holds_whole_model]
    assert any(each.candidate.spec.strategy is ONE for each in held_whole) is not divided
    if divided:
        assert winner(found) in (TENSOR, PIPE)
        told = next(row for row in found.as_json()["candidates"] if row["strategy"] == winner(found))
        assert Code.DIVIDED in {remark["code"] for remark in told["reasons"]}
        single = next(each for each in found.predictions if each.candidate.spec.strategy is ONE)
        assert single.memory.refusal is not None
        assert single.memory.refusal.figures["needs_bytes"] == pytest.approx(48.8e9 + 1e6 * 1, rel=0.02)
        assert single.memory.refusal.figures["has_bytes"] == memory


def test_a_large_embedding_goes_to_servers_where_no_device_holds_it():
    tables = (Table(rows=400_000_000, row_bytes=64, touched=20),)
    model = gpu_model(
        parameters=6_400_000_000, parameter_bytes=25.7e9, dense_bytes=1e6, tables=tables, variables=6, largest_bytes=1e9
    )
    found = asked(model, gpus(*EVEN, memory=40e9), staleness=ALLOWED, min_shard_bytes=1 << 20)
    assert winner(found) is SERVED
    whole = [each for each in found.predictions if each.candidate.spec.strategy in (ONE, GANG)]
    assert whole
    assert not any(each.fits for each in whole)


def test_nothing_fits():
    found = asked(gpu_model(parameter_bytes=1e15, dense_bytes=1e15, largest_bytes=1e15), gpus(*EVEN, each=4))
    assert found.verdict.best is None
    assert found.verdict.remark.code is Code.NONE_FITS
    assert found.as_json()["verdict"]["strategy"] is None


def test_accumulation_makes_a_batch_fit():
    model = gpu_model(activation_bytes=400e6)
    found = asked(model, gpus(1.0, each=2), batch=256)
    best = found.verdict.best
    assert winner(found) is MIRRORED
    assert best.candidate.spec.accumulation == 2
    assert Code.ACCUMULATED in {remark["code"] for remark in found.as_json()["candidates"][0]["reasons"]}
    roomy = asked(model, gpus(1.0, each=2, memory=80e9), batch=256)
    assert roomy.verdict.best.candidate.spec.accumulation == 1


def test_stale_gradients_are_predicted_but_never_chosen_where_refused():
    found = asked(gpu_model(**SMALL), gpus(*UNEVEN), batch=512)
    first = found.predictions[0]
    assert first.candidate.spec.strategy is SERVED
    assert winner(found) is GANG
    told = next(row for row in found.as_json()["candidates"] if row["strategy"] == SERVED)
    assert Code.STALE_REFUSED in {remark["code"] for remark in told["cautions"]}


def test_one_cpu_machine_with_two_slots_has_nothing_to_gain():
    """Two nodes on one machine of two cores: computing together takes what computing alone takes."""
    cluster = gpus(1.0, 1.0)
    nodes = tuple(
        replace(node, address="10.0.0.1", devices=((0, DeviceKind.CPU), (1, DeviceKind.CPU)))
        for node in cluster.view.nodes
    )
    machines = {node.node_id: replace(cluster.machine(node.node_id), cores=2) for node in nodes}
    cluster = replace(cluster, view=replace(cluster.view, nodes=nodes), machines=machines)
    probes = [Probe(Keras.KERAS3, DeviceKind.CPU, line(1, 0.05 / cores), 0.5, cores) for cores in (1, 2)]
    probes.append(Probe(Keras.TF_KERAS, DeviceKind.CPU, line(1.2, 0.055), 0.6, 1))
    assert winner(asked(gpu_model(probes=tuple(probes)), cluster, staleness=ALLOWED)) is ONE
