"""What is true of every advice, whatever the model and the machines."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.domain.advice.advice import advise
from orchestrator.domain.advice.candidates import Goal, Staleness, candidates
from orchestrator.domain.advice.cluster import Cluster, Link, Machine
from orchestrator.domain.advice.memory import fitting, needed
from orchestrator.domain.advice.prediction import predict
from orchestrator.domain.advice.workload import Probe, Table, Workload
from tests.domain.advice.cases import wishes
from tests.domain.gang.gangs import cluster as view_of
from tests.domain.gang.gangs import node
from worker_agent.protocol.states import DeviceKind, Keras, NodeState

sizes = st.floats(1e3, 1e11)
times = st.floats(0.01, 1e3)
quick = settings(max_examples=50, deadline=None)


@st.composite
def models(draw: st.DrawFn) -> Workload:
    kind = draw(st.sampled_from(DeviceKind))
    parameter_bytes = draw(sizes)
    tables = draw(st.lists(st.builds(Table, st.integers(1, 10**8), st.integers(4, 512), st.floats(0, 100)), max_size=2))
    fixed, example = draw(times), draw(st.floats(1e-4, 10))
    probed = draw(st.sets(st.sampled_from([1, 4, 16, 64, 256]), min_size=1))
    probe = Probe(
        draw(st.sampled_from(Keras)),
        kind,
        {size: fixed + example * size for size in probed},
        apply_ms=draw(st.floats(0, fixed)),
        cores=draw(st.integers(1, 8)),
    )
    return Workload(
        parameters=int(parameter_bytes / 4),
        parameter_bytes=parameter_bytes,
        variables=draw(st.integers(1, 500)),
        dense_bytes=parameter_bytes,
        tables=tuple(tables),
        slots=draw(st.sampled_from([0, 1, 2])),
        activation_bytes=draw(st.floats(0, 1e9)),
        boundary_bytes=draw(st.floats(0, 1e7)),
        largest_bytes=parameter_bytes / 2,
        flops=1e9,
        probes=(probe,) if draw(st.booleans()) else (),
        input_ms=draw(st.floats(0, 1)),
        host_ms=draw(st.floats(0, 1)),
        examples=draw(st.sampled_from([0, 10_000])),
        noise_scale=draw(st.sampled_from([None, 100.0, 1e5])),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    count = draw(st.integers(1, 3))
    nodes, machines = [], {}
    for number in range(count):
        kind, name = draw(st.sampled_from(DeviceKind)), f"n{number}"
        address = f"10.0.0.{draw(st.integers(0, number))}"
        state = draw(st.sampled_from([NodeState.READY, NodeState.READY, NodeState.CORDONED]))
        nodes.append(node(name, draw(st.integers(1, 3)), kind=kind, address=address, state=state))
        machines[name] = Machine(
            cores=draw(st.integers(1, 64)),
            memory_bytes=draw(st.sampled_from([0, 1e9, 64e9])),
            device_memory_bytes=draw(st.sampled_from([0, 1e9, 80e9])),
            speed=draw(st.floats(0.1, 10)),
            flops_per_s=1e12,
            devices=Link(0.01, draw(st.floats(1e8, 1e12))),
            preemptible=draw(st.booleans()),
        )
    network = Link(draw(st.floats(0, 5)), draw(st.floats(1e6, 1e11)))
    return Cluster(view=view_of(*nodes), machines=machines, network=network)


asked = st.builds(
    wishes,
    batch=st.sampled_from([1, 64, 96, 256]),
    fixed_batch=st.booleans(),
    staleness=st.sampled_from(Staleness),
    goal=st.sampled_from(Goal),
)


@quick
@given(models(), clusters(), asked, st.floats(1, 1000))
def test_more_bandwidth_makes_no_layout_slower(model, cluster, wish, factor):
    network = replace(cluster.network, bytes_per_s=cluster.network.bytes_per_s * factor)
    better = replace(cluster, network=network)
    for layout in candidates(cluster, wish)[0]:
        before, after = predict(model, cluster, layout), predict(model, better, layout)
        assert after.step_ms <= before.step_ms * (1 + 1e-9)


@quick
@given(models(), clusters(), asked, st.floats(1, 1000))
def test_more_memory_makes_no_layout_unfit_and_asks_for_no_more_parts(model, cluster, wish, factor):
    machines = {
        name: replace(
            machine,
            memory_bytes=machine.memory_bytes * factor,
            device_memory_bytes=machine.device_memory_bytes * factor,
        )
        for name, machine in cluster.machines.items()
    }
    better = replace(cluster, machines=machines)
    for layout in candidates(cluster, wish)[0]:
        if not needed(model, cluster, layout).refusal:
            assert not needed(model, better, layout).refusal
        (first, memory), (second, roomy) = (fitting(model, each, layout) for each in (cluster, better))
        if not memory.refusal:
            assert not roomy.refusal
            assert second.spec.accumulation <= first.spec.accumulation


@quick
@given(models(), clusters(), asked, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_changes_nothing(model, cluster, wish, random):
    nodes = list(cluster.view.nodes)
    random.shuffle(nodes)
    turned = replace(cluster, view=replace(cluster.view, nodes=tuple(nodes)))
    one, other = (advise(model, each, wish, with_changes=False) for each in (cluster, turned))
    assert one.as_json() == other.as_json()


@quick
@given(models(), clusters(), asked)
def test_an_advice_is_whole(model, cluster, wish):
    """The parts are the step, the interval holds it, a verdict fits, and all of it can be sent."""
    found = advise(model, cluster, wish, with_changes=False)
    for each in found.predictions:
        assert abs(sum(each.parts.values()) - each.step_ms) <= 1e-6 * each.step_ms
        assert all(ms >= -1e-9 for ms in each.parts.values())
        assert each.low_ms < each.step_ms < each.high_ms
        assert 0 < each.goodput <= 1
    best = found.verdict.best
    if best:
        assert best.fits
        assert not (wish.staleness is Staleness.REFUSED and best.candidate.is_stale)
        assert best in found.verdict.close
    told = json.dumps(found.as_json(), allow_nan=False)
    assert "{" not in "".join(sentences(json.loads(told)))


def sentences(told: object) -> list[str]:
    """Every sentence of an answer."""
    if isinstance(told, dict):
        own = [told["sentence"]] if isinstance(told.get("sentence"), str) else []
        return own + [sentence for value in told.values() for sentence in sentences(value)]
    return [sentence for value in told for sentence in sentences(value)] if isinstance(told, list) else []


@settings(max_examples=5, deadline=None)
@given(models(), clusters(), asked)
def test_what_would_change_the_verdict_does(model, cluster, wish):
    found = advise(model, cluster, wish)
    near = {each.candidate.spec.strategy for each in found.verdict.close}
    for remark in found.would_change:
        assert remark.sentence
        assert remark.figures["strategy"] not in near
