"""Placement: examples by name, and invariants over random clusters."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.placement.planning import ONE_CPU_DEVICE, Never, NotNow, Placed, place
from tests.domain.gang.gangs import cluster, node, spec
from worker_agent.protocol.states import DeviceKind, NodeState, Role, Strategy


def placed(outcome):
    assert isinstance(outcome, Placed), outcome
    return outcome.replicas


def test_one_device_has_one_process_and_no_tf_config():
    (only,) = placed(place(spec(Strategy.ONE_DEVICE), cluster(node("n1"))))
    assert (only.label, only.devices, only.tf_config) == ("worker:0", (0,), None)


def test_mirrored_takes_all_its_devices_on_one_node():
    nodes = (node("n1", 2, held=[0]), node("n2", 4))
    (only,) = placed(place(spec(Strategy.MIRRORED, devices_per_worker=2), cluster(*nodes)))
    assert (only.node_name, only.devices, only.tf_config) == ("n2", (0, 1), None)


def test_a_single_process_fills_the_fullest_node():
    (only,) = placed(place(spec(Strategy.ONE_DEVICE), cluster(node("n1", 4), node("n2", 4, held=[0, 1]))))
    assert (only.node_name, only.devices) == ("n2", (2,))


def test_workers_spread_over_nodes():
    first, second = placed(place(spec(workers=2), cluster(node("n1", 4), node("n2", 4))))
    assert [first.node_name, second.node_name] == ["n1", "n2"]
    addresses = ["10.0.0.1:20000", "10.0.0.2:20000"]
    assert first.tf_config == {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}}
    assert second.tf_config == {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 1}}


def test_a_node_to_be_avoided_is_taken_last():
    failing, well, third = replace(node("a1"), avoided=True), node("b2"), node("c3", 4)
    (alone,) = placed(place(spec(Strategy.ONE_DEVICE), cluster(failing, well)))
    assert alone.node_name == "b2"
    assert {r.node_name for r in placed(place(spec(workers=6), cluster(failing, well, third)))} == {"b2", "c3"}
    crowded = Counter(r.node_name for r in placed(place(spec(workers=7), cluster(failing, well, third))))
    assert crowded == {"c3": 4, "b2": 2, "a1": 1}
    served = placed(place(spec(Strategy.PARAMETER_SERVER, workers=2, ps=3), cluster(failing, well)))
    assert {r.node_name for r in served} == {"b2"}


def test_nodes_on_one_address_share_its_ports():
    nodes = (node("n1", address="127.0.0.1"), node("n2", address="127.0.0.1"))
    replicas = placed(place(spec(workers=4), cluster(*nodes, taken=[("127.0.0.1", 20001)])))
    assert [replica.port for replica in replicas] == [20000, 20002, 20003, 20004]


def test_two_addresses_of_one_machine_share_its_ports():
    nodes = (node("n1", address="10.0.0.1"), node("n2", address="10.1.0.1"), node("n3", address="10.0.0.2"))
    machines = {"10.0.0.1": "a", "10.1.0.1": "a"}
    view = replace(cluster(*nodes, taken=[("a", 20001)]), machines=machines)
    found = {(each.host, each.port) for each in placed(place(spec(workers=3), view))}
    assert found == {("10.0.0.1", 20000), ("10.1.0.1", 20002), ("10.0.0.2", 20000)}
    too_narrow = place(spec(workers=2), replace(cluster(*nodes[:2], ports=(20000, 20000)), machines=machines))
    assert isinstance(too_narrow, Never)
    assert "2 processes of this job would share one machine" in too_narrow.message


def test_port_offset_turns_the_range():
    (only,) = placed(place(spec(workers=1), cluster(node("n1"), ports=(20000, 20009)), port_offset=37))
    assert only.port == 20007


def test_parameter_servers_and_chief_hold_no_device():
    replicas = placed(
        place(spec(Strategy.PARAMETER_SERVER, workers=2, ps=2), cluster(node("n1", 1), node("n2", 1), node("n3", 1)))
    )
    by_label = {replica.label: replica for replica in replicas}
    assert set(by_label) == {"chief:0", "worker:0", "worker:1", "ps:0", "ps:1"}
    assert by_label["chief:0"].devices == by_label["ps:0"].devices == by_label["ps:1"].devices == ()
    assert by_label["worker:0"].node_name != by_label["worker:1"].node_name
    cluster_part = by_label["ps:1"].tf_config["cluster"]
    assert {name: len(addresses) for name, addresses in cluster_part.items()} == {"chief": 1, "ps": 2, "worker": 2}
    assert by_label["ps:1"].tf_config["task"] == {"type": "ps", "index": 1}
    assert len({(replica.host, replica.port) for replica in replicas}) == 5


def test_gpus_come_first_and_kinds_are_not_mixed():
    nodes = (node("n1", 2), node("n2", 1, kind=DeviceKind.GPU))
    (only,) = placed(place(spec(Strategy.ONE_DEVICE), cluster(*nodes)))
    assert (only.node_name, only.device_kind) == ("n2", DeviceKind.GPU)
    replicas = placed(place(spec(workers=2), cluster(*nodes)))
    assert {replica.device_kind for replica in replicas} == {DeviceKind.CPU}


def test_what_is_missing_now_is_said_in_numbers():
    nodes = (node("node-1", 2), node("node-2", 2, state=NodeState.CORDONED))
    outcome = place(spec(workers=3), cluster(*nodes))
    assert outcome == NotNow("needs 3 workers with 1 device each; 2 free on node-1, 0 on node-2 (cordoned)")


def test_more_workers_than_the_nodes_can_ever_hold():
    outcome = place(spec(workers=5, devices_per_worker=1), cluster(node("node-1", 2), node("node-2", 2, held=[0, 1])))
    assert isinstance(outcome, Never)
    assert outcome.field == "workers"
    assert outcome.message.startswith("more workers than the nodes can hold: 5 with 1 device each asked for, 4 fit")
    assert outcome.message.endswith("(node-1 2, node-2 2). Use at most 4")


def test_a_worker_larger_than_any_node():
    outcome = place(spec(Strategy.MIRRORED, devices_per_worker=8), cluster(node("n1", 2), node("n2", 4)))
    assert outcome == Never(
        "devices_per_worker", "a worker with 8 devices fits no node: the largest has 4. Use at most 4"
    )


def test_a_cluster_without_nodes():
    assert place(spec(), cluster()) == Never("cluster", "cluster lab has no nodes yet: add a node first")


def test_no_port_left():
    nodes = node("n1", 2, address="h")
    outcome = place(spec(workers=2), cluster(nodes, ports=(20000, 20001), taken={("h", 20000)}))
    assert isinstance(outcome, NotNow)
    assert "all of 20000-20001" in outcome.message
    outcome = place(spec(workers=2), cluster(nodes, ports=(20000, 20000)))
    assert isinstance(outcome, Never)
    assert "has 1 ports (20000-20000)" in outcome.message


def test_several_cpu_devices_per_worker_are_refused_where_tensorflow_uses_one():
    outcome = place(spec(workers=2, devices_per_worker=2), cluster(node("n1", 2), node("n2", 2)))
    assert isinstance(outcome, Never)
    assert (outcome.field, outcome.message) == ("devices_per_worker", ONE_CPU_DEVICE)
    gpus = cluster(node("n1", 2, kind=DeviceKind.GPU), node("n2", 2, kind=DeviceKind.GPU))
    assert len(placed(place(spec(workers=2, devices_per_worker=2), gpus))) == 2


@pytest.mark.parametrize("strategy", [Strategy.TENSOR_PARALLEL, Strategy.PIPELINE])
def test_a_split_model_has_workers_with_all_their_devices_and_a_tf_config(strategy):
    first, second = placed(place(spec(strategy, workers=2, devices_per_worker=2), cluster(node("n1"), node("n2"))))
    assert (first.node_name, first.devices, second.node_name, second.devices) == ("n1", (0, 1), "n2", (0, 1))
    assert first.tf_config["cluster"] == {"worker": ["10.0.0.1:20000", "10.0.0.2:20000"]}


@pytest.mark.parametrize("strategy", [Strategy.CENTRAL_STORAGE, Strategy.TPU])
def test_other_strategies_of_one_process_have_no_tf_config(strategy):
    (only,) = placed(place(spec(strategy), cluster(node("n1"))))
    assert (only.label, only.tf_config) == ("worker:0", None)


def test_a_tpus_host_leaves_gpus_alone():
    nodes = cluster(node("n1", kind=DeviceKind.GPU), node("n2"))
    assert placed(place(spec(Strategy.TPU), nodes))[0].node_name == "n2"


def test_a_chief_is_one_of_the_workers():
    replicas = placed(place(spec(workers=3, chief=True), cluster(node("n1"), node("n2"))))
    assert [replica.label for replica in replicas] == ["chief:0", "worker:0", "worker:1"]
    assert all(replica.devices for replica in replicas)
    whole = replicas[2].tf_config["cluster"]
    assert {role: len(addresses) for role, addresses in whole.items()} == {"chief": 1, "worker": 2}
    assert replicas[0].tf_config["task"] == {"type": "chief", "index": 0}


@pytest.mark.parametrize(
    ("fields", "leader"),
    [({}, "worker:0"), ({"chief": True}, "chief:0"), ({"strategy": Strategy.PARAMETER_SERVER, "ps": 1}, "chief:0")],
)
def test_an_evaluator_sits_beside_the_leader_and_outside_the_cluster(fields, leader):
    replicas = placed(
        place(spec(**{"workers": 2, "validation": "evaluator"} | fields), cluster(node("n1"), node("n2")))
    )
    by_label = {replica.label: replica for replica in replicas}
    evaluator = by_label["evaluator:0"]
    assert (evaluator.node_name, evaluator.devices) == (by_label[leader].node_name, ())
    assert "evaluator" not in evaluator.tf_config["cluster"]
    assert evaluator.tf_config["cluster"] == by_label["worker:0"].tf_config["cluster"]
    assert evaluator.tf_config["task"] == {"type": "evaluator", "index": 0}
    assert len({(replica.host, replica.port) for replica in replicas}) == len(replicas)


def written(**cluster_part):
    return json.dumps({"cluster": cluster_part, "rpc_layer": "grpc"})


def test_a_hand_written_tf_config_says_where_each_process_runs():
    text = written(worker=["10.0.0.2:20007", "10.0.0.1:20003"])
    first, second = placed(place(spec(workers=2, tf_config=text), cluster(node("n1"), node("n2"))))
    assert [(first.node_name, first.port), (second.node_name, second.port)] == [("n2", 20007), ("n1", 20003)]
    assert second.tf_config == {
        "rpc_layer": "grpc",
        "cluster": {"worker": ["10.0.0.2:20007", "10.0.0.1:20003"]},
        "task": {"type": "worker", "index": 1},
    }


def test_a_hand_written_gang_of_parameter_servers():
    text = written(chief=["10.0.0.1:1"], worker=["10.0.0.2:2"], ps=["10.0.0.1:3"])
    asked = spec(Strategy.PARAMETER_SERVER, workers=1, ps=1, tf_config=text, validation="evaluator")
    replicas = placed(place(asked, cluster(node("n1"), node("n2"))))
    assert [(replica.label, replica.node_name, bool(replica.devices)) for replica in replicas] == [
        ("chief:0", "n1", False),
        ("worker:0", "n2", True),
        ("ps:0", "n1", False),
        ("evaluator:0", "n1", False),
    ]


def test_what_a_hand_written_tf_config_waits_for():
    text = written(worker=["10.0.0.1:20001"])
    asked = spec(workers=1, tf_config=text)
    outcome = place(asked, cluster(node("n1"), taken=[("10.0.0.1", 20001)]))
    assert outcome == NotNow("port 20001 of 10.0.0.1, which the TF_CONFIG names, is held by another job")
    assert isinstance(place(asked, cluster(node("n1", held=[0, 1]), node("n2"))), NotNow)
    assert place(asked, cluster(node("n2"))).field == "tf_config"
    assert place(asked, cluster(node("n1", slots=0), node("n2"))).field == "tf_config"


def test_parameter_servers_workers_compute_on_several_cpu_devices():
    asked = spec(Strategy.PARAMETER_SERVER, workers=2, ps=1, devices_per_worker=2)
    replicas = placed(place(asked, cluster(node("n1", 2), node("n2", 2))))
    assert [replica.devices for replica in replicas if replica.role is Role.WORKER] == [(0, 1), (0, 1)]


states = st.sampled_from([NodeState.READY, NodeState.READY, NodeState.CORDONED, NodeState.DRAINING, NodeState.LOST])
node_shapes = st.tuples(st.integers(0, 5), st.sets(st.integers(0, 4)), states, st.sampled_from("abc"))


@given(
    st.lists(node_shapes, max_size=6),
    st.sampled_from([Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER]),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sets(st.tuples(st.sampled_from("abc"), st.integers(20000, 20012))),
    st.integers(0, 10**6),
)
def test_invariants(shapes, strategy, workers, devices, ps, taken, offset):
    nodes = tuple(
        node(f"n{number}", slots, held=held & set(range(slots)), state=state, address=address)
        for number, (slots, held, state, address) in enumerate(shapes)
    )
    wanted = spec(strategy, workers=workers, devices_per_worker=devices, ps=ps)
    view = cluster(*nodes, ports=(20000, 20012), taken=taken)
    outcome = place(wanted, view, port_offset=offset)
    by_id = {known.node_id: known for known in nodes}
    room = {known.node_id: len(known.free()) // devices for known in nodes}
    if not isinstance(outcome, Placed):
        ports_short = isinstance(outcome, NotNow) and "no port is free" in outcome.message
        too_many = isinstance(outcome, Never) and ("ports (" in outcome.message or outcome.message == ONE_CPU_DEVICE)
        assert sum(room.values()) < workers or ports_short or too_many
        return
    replicas = outcome.replicas
    labels = [replica.label for replica in replicas]
    assert labels.count("worker:0") == 1
    assert len(set(labels)) == len(replicas) == workers + (1 + ps if strategy is Strategy.PARAMETER_SERVER else 0)
    sockets = [(replica.host, replica.port) for replica in replicas]
    assert len(set(sockets)) == len(sockets)
    assert not set(sockets) & taken
    used = Counter((replica.node_id, device) for replica in replicas for device in replica.devices)
    assert all(count == 1 for count in used.values())
    for replica in replicas:
        own = by_id[replica.node_id]
        assert own.state is NodeState.READY
        assert set(replica.devices) <= set(own.free())
        assert len(replica.devices) == (devices if replica.role is Role.WORKER else 0)
        assert replica.host == own.address
        task = replica.tf_config["task"]
        whole = replica.tf_config["cluster"]
        assert whole == replicas[0].tf_config["cluster"]
        assert whole[task["type"]][task["index"]] == f"{replica.host}:{replica.port}"
    load = Counter(replica.node_id for replica in replicas if replica.role is Role.WORKER)
    for node_id, capacity in room.items():
        # Evenly: no node with room to spare is two workers behind another.
        assert load[node_id] == capacity or max(load.values()) - load[node_id] <= 1
