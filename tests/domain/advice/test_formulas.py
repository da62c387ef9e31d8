"""The formulas, each by itself: compute by batch, ring, queue, pipeline; and figures of measured trainings."""

from dataclasses import replace

import pytest

from orchestrator.domain.advice.calibration import USUAL, layout_of, step_ms
from orchestrator.domain.advice.candidates import Staleness, candidates, layout_of_job
from orchestrator.domain.advice.cluster import LINKS, Cluster, Link, Machine
from orchestrator.domain.advice.costs import queued, ring, situation, terms, travels
from orchestrator.domain.advice.prediction import predict
from orchestrator.domain.advice.workload import Basis, Probe, Table, Workload, compute
from tests.domain.advice.cases import asked, gpu_model, gpus, line, wishes
from tests.domain.gang.gangs import cluster as view_of
from tests.domain.gang.gangs import node
from worker_agent.protocol.records import StepPart
from worker_agent.protocol.states import DeviceKind, Keras, Strategy

CPU, GPU = DeviceKind.CPU, DeviceKind.GPU


def small_model(**fields) -> Workload:
    return Workload(**({"parameters": 1, "parameter_bytes": 4, "variables": 1, "dense_bytes": 4} | fields))


def at(batch, *, steps=None, keras=Keras.KERAS3, cores=1, probed_cores=1, **more):
    probe = Probe(Keras.KERAS3, CPU, steps or {16: 4.0, 64: 8.0, 128: 20.0}, apply_ms=1.0, cores=probed_cores)
    return compute(small_model(probes=(probe,)), batch, keras=keras, device=CPU, cores=cores, **more)


@pytest.mark.parametrize(
    ("batch", "whole", "basis"),
    [
        (64, 8.0, Basis.PROBED),
        (40, 6.0, Basis.PROBED),  # between two probes, a line
        (96, 14.0, Basis.PROBED),
        (256, 44.0, Basis.OUTSIDE),  # the line goes on
        (8, 3.333, Basis.OUTSIDE),
        (1, 2.75, Basis.OUTSIDE),
    ],
)
def test_compute_is_interpolated_only_inside_what_was_probed(batch, whole, basis):
    found = at(batch)
    assert found.gradients_ms + found.apply_ms == pytest.approx(whole, rel=1e-3)
    assert (found.basis, found.probed) == (basis, (16, 128))


def test_beyond_the_probes_a_step_is_never_absurd():
    """Probes may be noise: a smaller batch is not slower, and not quicker for each example; a larger is not quicker."""
    noisy = {16: 8.0, 64: 4.0}
    assert at(4, steps=noisy).gradients_ms == 7.0
    assert at(256, steps=noisy).gradients_ms == 3.0
    steep = {16: 1.5, 64: 40.0}
    assert at(8, steps=steep).gradients_ms + at(8, steps=steep).apply_ms == 0.75


@pytest.mark.parametrize(
    ("fields", "factor", "basis"),
    [
        ({}, 1, Basis.PROBED),
        ({"speed": 2.0}, 0.5, Basis.PROBED),
        ({"cores": 1, "probed_cores": 2}, 2, Basis.OTHER_CORES),
        ({"cores": 4, "probed_cores": 2}, 1, Basis.OTHER_CORES),  # more cores are not known to help
        ({"cores": 0.5}, 2, Basis.OTHER_CORES),
        ({"keras": Keras.TF_KERAS}, 1.08, Basis.OTHER_KERAS),
    ],
)
def test_compute_of_another_process_than_was_probed(fields, factor, basis):
    found = at(64, **fields)
    assert (found.gradients_ms, found.apply_ms) == pytest.approx((7 * factor, factor))
    assert found.basis is basis


def test_compute_from_flops_alone():
    model = small_model(flops=3e9)
    found = compute(model, 10, keras=Keras.KERAS3, device=GPU, cores=1, flops_per_s=1e12)
    assert (found.gradients_ms, found.basis) == (pytest.approx(100), Basis.FLOPS)
    with pytest.raises(ValueError, match="probe it, or give its FLOPs"):
        compute(model, 10, keras=Keras.KERAS3, device=GPU, cores=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Link(0.1, 0),
        lambda: Link(float("nan"), 1e9),
        lambda: Machine(cores=0),
        lambda: Machine(speed=-1),
        lambda: Probe(Keras.KERAS3, CPU, {64: float("inf")}),
        lambda: Probe(Keras.KERAS3, CPU, {0: 1.0}),
        lambda: small_model(parameter_bytes=-4),
        lambda: small_model(noise_scale=float("nan")),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_name(make):
    with pytest.raises(ValueError, match=r"of a \w+ is .*: give a finite number"):
        make()


def test_a_ring_passes_each_byte_twice_less_one_nth():
    assert [ring(n) for n in (1, 2, 4)] == [0, 1, 1.5]


def test_the_queue_at_the_servers():
    """Nobody waits alone; all others wait where there is nothing but service; many customers fill the server."""
    assert queued(1, 10, 5) == 0
    assert queued(4, 0, 5) == pytest.approx(3)
    waiting = queued(50, 100, 10)
    assert (100 + 10 * (1 + waiting)) / 50 == pytest.approx(10, rel=0.01)


def of(strategy, model, cluster, batch=256, **sizes):
    layouts = candidates(cluster, wishes(batch, staleness=Staleness.ALLOWED))[0]
    return next(
        each
        for each in layouts
        if each.spec.strategy is strategy and all(getattr(each.spec, name) == value for name, value in sizes.items())
    )


def test_a_pipeline_is_idle_as_gpipe_says():
    model, cluster = gpu_model(), gpus(1.0, each=4)
    found = predict(model, cluster, of(Strategy.PIPELINE, model, cluster, devices_per_worker=4, micro_batches=8))
    busy, idle = found.parts[StepPart.COMPUTE], found.parts[StepPart.WAIT]
    assert idle / (idle + busy) == pytest.approx(3 / 11)


def test_the_slowest_worker_sets_the_pace_and_its_surplus_is_waiting():
    model, cluster = gpu_model(), gpus(1.0, 0.5)
    found = predict(model, cluster, of(Strategy.MULTI_WORKER_MIRRORED, model, cluster, workers=2))
    assert found.parts[StepPart.COMPUTE] + found.parts[StepPart.WAIT] == pytest.approx(2 * (4 + 64 - 1))
    assert found.parts[StepPart.WAIT] == pytest.approx(0.5 * (4 + 64 - 1))


def test_input_waits_only_for_what_a_step_does_not_hide():
    cluster = gpus(1.0)
    plain, slow = (asked(gpu_model(input_ms=ms), cluster).predictions[0] for ms in (0.4, 1.0))
    assert (plain.parts[StepPart.INPUT], plain.step_ms) == (0, pytest.approx(132))
    assert (slow.parts[StepPart.INPUT], slow.step_ms) == (pytest.approx(256 - 132), pytest.approx(256))


@pytest.mark.parametrize(("reads_apart", "examples"), [(False, 256), (True, 64)])
def test_a_worker_prepares_all_examples_unless_they_are_divided_before(reads_apart, examples):
    model, cluster = gpu_model(input_ms=10, reads_apart=reads_apart), gpus(1.0, 1.0, 1.0, 1.0)
    found = predict(model, cluster, of(Strategy.MULTI_WORKER_MIRRORED, model, cluster, workers=4))
    assert found.step_ms == pytest.approx(10 * examples)


def test_without_checkpoints_a_loss_costs_half_of_the_training():
    model, cluster = gpu_model(), gpus(1.0, preemptible=True)
    jobs = (wishes(epochs=10, checkpoints_kept=kept).job for kept in (3, 0))
    kept, none = (predict(model, cluster, layout_of_job(job, cluster)) for job in jobs)
    assert 1 / none.goodput - 1 == pytest.approx((60 + none.epoch_s(100_000) * none.goodput * 10 / 2) / 86_400)
    assert none.goodput < kept.goodput


def test_losses_of_preemptible_machines_cost_a_gang_more_than_servers():
    model, cluster = gpu_model(), gpus(*(1.0,) * 4, preemptible=True)
    gang, served = (
        predict(model, cluster, of(strategy, model, cluster, workers=4)).goodput
        for strategy in (Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER)
    )
    assert gang < served < 1


@pytest.fixture(scope="module")
def pair() -> Cluster:
    """Two nodes of one slot each on one machine of two cores, as all that was measured below."""
    nodes = view_of(node("n1", 2, address="10.0.0.1"), node("n2", 2, address="10.0.0.1"))
    return Cluster(view=nodes, machines={name: Machine(cores=2) for name in ("n1", "n2")})


def communication(strategy, megabytes, variables, cluster, **sizes):
    """What a step takes beside computing, with the usual constants."""
    probes = tuple(Probe(keras, CPU, line(0, 1e-6, (32, 64, 128))) for keras in Keras)
    model = small_model(variables=variables, dense_bytes=megabytes * 1e6, probes=probes)
    found = predict(model, cluster, of(strategy, model, cluster, 128, **sizes))
    return found.parts[StepPart.COMMUNICATION]


@pytest.mark.parametrize(
    ("megabytes", "measured_ms"),
    [(0.05, 3.5), (2.7, 10.1), (32, 100)],  # the first: 2 to 5 ms for small models
)
def test_usual_constants_of_multi_worker_mirrored_are_those_of_measured_steps(pair, megabytes, measured_ms):
    """Step less compute of two processes over loopback."""
    told = communication(Strategy.MULTI_WORKER_MIRRORED, megabytes, 10, pair, workers=2)
    assert told == pytest.approx(measured_ms, rel=0.25)


@pytest.mark.parametrize(
    ("strategy", "sizes", "fixed", "variable", "megabyte"),
    [
        (Strategy.MIRRORED, {"devices_per_worker": 2}, 0, 0.16, 0.18),
        (Strategy.CENTRAL_STORAGE, {"devices_per_worker": 2}, 0, 0.18, 0.03),
        (Strategy.PARAMETER_SERVER, {"workers": 2, "ps": 1}, 6.8, 0.23, 2.0),
    ],
)
def test_usual_constants_of_the_others_are_those_of_measured_steps(pair, strategy, sizes, fixed, variable, megabyte):
    """ms a step, a variable and a MB, fitted on trainings; ParameterServer's are one worker's, of two."""
    workers = sizes.get("workers", 1)
    told = communication(strategy, 8, 20, pair, **sizes)
    assert told == pytest.approx((fixed + 20 * variable + 8 * megabyte) / workers, rel=0.1)


@pytest.mark.parametrize(
    ("device", "rows", "touched", "dense", "as_rows"),
    [
        (CPU, 50_000, 4, 4e6, 4 * 128 * 64),  # 3.2 MB: the touched rows travel
        (CPU, 50_000, 60, 4e6 + 3.2e6, 0),  # more than a quarter of the rows would travel
        (CPU, 30_000, 4, 4e6 + 1.92e6, 0),  # 1.9 MB travel whole
        (GPU, 500_000, 4, 4e6, 4 * 128 * 64),  # 32 MB
        (GPU, 50_000, 4, 4e6 + 3.2e6, 0),  # which GPUs move whole
    ],
)
def test_tables_travel_as_the_trainer_sends_them(pair, device, rows, touched, dense, as_rows):
    """Rows of 64 bytes; two workers with 128 examples each."""
    model = gpu_model(dense_bytes=4e6, tables=(Table(rows, 64, touched),))
    layout = of(Strategy.MULTI_WORKER_MIRRORED, model, pair if device is CPU else gpus(1.0, 1.0), workers=2)
    assert travels(model, layout) == (dense, as_rows)


def test_gangs_of_one_machine_share_its_network():
    """Eight workers on two machines: by gRPC each ring hop between machines has a share of the wire."""
    slots = [node(name, 4, address=f"10.0.0.{name}") for name in ("n1", "n2")]
    network = Link(0.3, 0.1e9)
    cluster = Cluster(view=view_of(*slots), machines={}, network=network)
    layout = of(Strategy.MULTI_WORKER_MIRRORED, None, cluster, workers=8)
    assert cluster.grpc_ring(layout.computing).bytes_per_s == pytest.approx(network.bytes_per_s / 4)
    assert cluster.ring(layout.computing).bytes_per_s == network.bytes_per_s


def test_grpc_is_no_faster_between_machines_than_within_one():
    cluster = replace(gpus(1.0, 1.0), network=LINKS["nvlink4"])
    layout = of(Strategy.PARAMETER_SERVER, None, cluster, workers=2)
    assert cluster.by_grpc([cluster.link_between(*layout.computing)]) is cluster.loopback


def test_every_layout_has_usual_constants():
    model, constants = gpu_model(), USUAL
    predicted = set(Strategy) - {Strategy.TPU}
    assert {layout_of(strategy, kind) for strategy in predicted for kind in DeviceKind} == set(constants)
    for layout in candidates(gpus(1.0, 1.0, each=2), wishes())[0]:
        needed = terms(situation(model, gpus(1.0, 1.0, each=2), layout), constants[layout.layout])
        assert step_ms(needed, constants[layout.layout]) > 0
