"""Joining, proving who one is, and what administrators do with machines."""

from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache

from orchestrator.models import Cluster, Event, JoinToken, Node, Replica
from orchestrator.queries.errors import NotFound
from orchestrator.services.errors import Conflict, Forbidden, Invalid
from orchestrator.services.nodes import joining, nodes
from tests.factories import make_cluster, make_inventory, make_job, make_node, make_replica
from worker_agent.protocol.envelope import sign_request
from worker_agent.protocol.joining import JoinRequest, OwnAddress
from worker_agent.protocol.states import NodeState, ReplicaStatus

JUST_NOW = datetime.now(UTC)


def join(token, *, now=None, **fields):
    given = {"name": "node-1", "address": "10.0.0.5", "inventory": make_inventory()} | fields
    return joining.join(JoinRequest(token=token, **given), now=now)


@pytest.fixture
def cluster(db):
    return make_cluster("lab")


@pytest.fixture
def token(cluster, administrator):
    return joining.create_join_token(cluster=cluster, by=administrator)


def test_a_machine_joins(token, cluster, administrator, settings, enqueued, django_capture_on_commit_callbacks):
    settings.AGENT_REDIS_URL = "redis://control:6379/0"
    with django_capture_on_commit_callbacks(execute=True):
        grant = join(token)
    node = cluster.nodes.get()
    assert (grant.node_id, grant.node_name, grant.cluster) == (node.pk, "node-1", "lab")
    assert (grant.node_key, len(grant.node_key), grant.redis_url) == (
        bytes(node.key).hex(),
        64,
        "redis://control:6379/0",
    )
    assert (node.state, len(node.devices)) == (NodeState.READY, 2)
    assert JoinToken.objects.get().used_by == node
    assert "trainyard.dispatch" in enqueued
    assert Event.objects.get(node=node).actor == administrator


def test_the_command_names_address_and_token(token, settings):
    settings.PUBLIC_URL = "http://control:8000"
    assert joining.join_command(token) == f".venv/bin/python -m worker_agent join http://control:8000 --token {token}"
    assert token.startswith("ty_join_")
    assert not JoinToken.objects.filter(digest__contains=token).exists()


def test_a_token_works_once(token):
    join(token)
    with pytest.raises(Forbidden, match="used already"):
        join(token, name="node-2")


@pytest.mark.parametrize("word", ["", "ty_join_wrong", "\x00", "\ud800"])
def test_an_unknown_token(word, cluster):
    with pytest.raises(Forbidden, match="not known here"):
        join(word)


def test_what_a_database_cannot_hold_is_left_out(token, cluster):
    join(token, inventory=make_inventory(platform="Linux\0x\ud800"))
    assert cluster.nodes.get().inventory["platform"] == "Linuxx?"


def test_an_expired_token(cluster, administrator):
    token = joining.create_join_token(cluster=cluster, by=administrator, now=JUST_NOW - timedelta(hours=25))
    with pytest.raises(Forbidden, match="expired"):
        join(token)


def test_a_refused_join_leaves_the_token_unused(token, cluster):
    make_node(cluster, "node-1")
    with pytest.raises(Conflict, match="has a node node-1 already"):
        join(token)
    with pytest.raises(Invalid):
        join(token, name="not a name")
    assert join(token, name="node-2").node_name == "node-2"


def test_the_host_name_serves_as_name(token):
    assert join(token, name="", inventory=make_inventory(hostname="gpu_box.example.org")).node_name == "gpu-box"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "-a"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"address": "10.0.0.5; rm"}, "address"),
        ({"address": "fe80::1"}, "address"),
        ({"inventory": make_inventory(slots=0)}, "inventory"),
        ({"inventory": make_inventory(kind="abacus")}, "inventory"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(fields, field, token):
    with pytest.raises(Invalid) as refused:
        join(token, **fields)
    assert [error.field for error in refused.value.errors] == [field]


def test_addresses_are_held_to_the_clusters_range(token, cluster):
    Cluster.objects.update(address_range="10.1.0.0/16")
    with pytest.raises(Invalid, match=r"10.0.0.5 is not in 10.1.0.0/16"):
        join(token)
    assert join(token, address="10.1.2.3")


OWN = [
    OwnAddress(interface="lo", address="127.0.0.1"),
    OwnAddress(interface="eth0", address="10.0.0.5"),
    OwnAddress(interface="eth1", address="10.1.0.5"),
    OwnAddress(interface="eth1", address="10.2.0.5"),
]


@pytest.mark.parametrize(
    ("asked", "given", "address"),
    [
        ({}, "", "10.0.0.9"),
        ({"interface": "eth1"}, "", "10.1.0.5"),
        ({"address_range": "10.2.0.0/16"}, "", "10.2.0.5"),
        ({"interface": "eth1", "address_range": "10.2.0.0/16"}, "", "10.2.0.5"),
        ({"interface": "eth1"}, "gpu-7.lan", "gpu-7.lan"),
        ({"address_range": "10.2.0.0/16"}, "10.2.9.9", "10.2.9.9"),
    ],
)
def test_a_machine_gets_the_address_that_its_cluster_asks_for(asked, given, address, token, cluster):
    Cluster.objects.update(**asked)
    grant = join(token, address=given, own_addresses=OWN, address_towards="10.0.0.9")
    assert (grant.address, cluster.nodes.get().address) == (address, address)
    assert {"interface": grant.interface, "address_range": grant.address_range} == (
        {"interface": "", "address_range": ""} | asked
    )
    network = joining.network_of(Node.objects.get().cluster)
    assert (network.interface, network.address_range) == (grant.interface, grant.address_range)


@pytest.mark.parametrize(
    ("asked", "own", "words"),
    [
        ({"interface": "ib0"}, OWN, "address on the interface ib0, and node-1 has only 127.0.0.1 on lo, 10.0.0.5 on"),
        ({"interface": "ib0"}, [], "and node-1 has none at all: join with --address, or change that in the cluster's"),
        ({"address_range": "10.9.0.0/16"}, OWN, "in the range 10.9.0.0/16, and node-1"),
        ({"interface": "eth0", "address_range": "10.1.0.0/16"}, OWN, "interface eth0 and in the range 10.1.0.0/16"),
        ({"address_range": "10.9.0.0/16"}, [OwnAddress(interface="x\0", address="nonsense")], "has only nonsense on x"),
        ({"interface": "eth0"}, [OwnAddress(interface="eth0", address="; rm")], "neither a host name nor an IP"),
    ],
)
def test_a_machine_without_such_an_address_does_not_join_and_both_sides_are_told(
    asked, own, words, token, cluster, administrator
):
    Cluster.objects.update(**asked)
    with pytest.raises(Invalid) as refused:
        join(token, address="", own_addresses=own, address_towards="10.0.0.9")
    assert [error.field for error in refused.value.errors] == ["address"]
    assert words in refused.value.errors[0].message
    told = Event.objects.get(kind="node_refused")
    assert told.text.startswith("A machine could not join cluster lab as 'node-1'. ")
    assert (words in told.text, told.actor) == (True, administrator)
    assert join(token, address="10.9.0.1" if "address_range" in asked and "eth" not in str(asked) else "10.1.0.5")


def test_refused_tokens_are_told_in_the_history_but_cannot_flood_it(token, cluster, administrator):
    cache.clear()
    join(token)
    other = joining.create_join_token(cluster=make_cluster("attic"), by=administrator)
    refusals = [(token, JUST_NOW, "used already"), (other, JUST_NOW + timedelta(days=2), "expired")]
    for shown, now, words in [*refusals, ("ty_join_guess", JUST_NOW, "not known here")] * 3:
        with pytest.raises(Forbidden, match=words):
            join(shown, name="late\0r", now=now)
    told = list(Event.objects.filter(kind="node_refused"))
    assert [event.actor for event in told] == [administrator, administrator, None]
    for event, beginning in zip(told, ("cluster lab", "cluster attic", "any cluster"), strict=True):
        assert event.text.startswith(f"A machine could not join {beginning} as 'late")
    assert [event.text.rpartition("'. ")[2][:20] for event in told] == ["This join token has "] * 2 + [
        "This join token is n"
    ]
    assert JoinToken.objects.filter(used_at=None).count() == 1


def test_only_administrators_let_machines_in(cluster, member):
    with pytest.raises(Forbidden):
        joining.create_join_token(cluster=cluster, by=member)


def test_signed_requests():
    node = make_node()
    at = int(JUST_NOW.timestamp())

    def authenticate(*, path="/agent/v1/code/x", node_id=node.pk, at=at, key=bytes(node.key)):
        mac = sign_request(method="GET", path="/agent/v1/code/x", at=at, key=key)
        return joining.authenticate_request(node_id=node_id, method="GET", path=path, at=at, mac=mac, now=JUST_NOW)

    assert authenticate() == node
    for wrong in ({"path": "/agent/v1/code/y"}, {"node_id": "0" * 12}, {"key": bytes(32)}, {"node_id": make_node().pk}):
        with pytest.raises(Forbidden, match="not that of a node"):
            authenticate(**wrong)
    with pytest.raises(Forbidden, match="set the clock"):
        authenticate(at=at - 301)


def test_cordon_uncordon_drain(administrator, enqueued, django_capture_on_commit_callbacks):
    node = make_node(name="node-1")
    nodes.cordon(node_id=node.pk, by=administrator, reason=" fan is\0 loud")
    node.refresh_from_db()
    assert (node.state, node.state_reason) == (NodeState.CORDONED, "fan is loud")
    nodes.cordon(node_id=node.pk, by=administrator)
    with django_capture_on_commit_callbacks(execute=True):
        nodes.uncordon(node_id=node.pk, by=administrator)
    assert enqueued == ["trainyard.dispatch"]
    nodes.drain(node_id=node.pk, by=administrator)
    assert Node.objects.get(pk=node.pk).state == NodeState.DRAINING
    texts = list(Event.objects.filter(node=node, actor=administrator).values_list("text", flat=True))
    assert texts == [
        "node-1 was cordoned by ada: fan is loud.",
        "node-1 was taken into use again by ada.",
        "node-1 was set to drain by ada.",
    ]


def test_a_lost_node_is_not_moved_by_hand(administrator):
    node = make_node(state=NodeState.LOST.value)
    with pytest.raises(Conflict, match="is lost"):
        nodes.uncordon(node_id=node.pk, by=administrator)


def test_renaming(administrator):
    node = make_node(name="node-1")
    make_node(node.cluster, "node-2")
    nodes.rename(node_id=node.pk, name=" gpu-1 ", by=administrator)
    assert Node.objects.get(pk=node.pk).name == "gpu-1"
    with pytest.raises(Conflict):
        nodes.rename(node_id=node.pk, name="node-2", by=administrator)
    with pytest.raises(Invalid):
        nodes.rename(node_id=node.pk, name="<b>", by=administrator)


def test_removing(administrator):
    node = make_node()
    replica = make_replica(make_job(), node=node)
    with pytest.raises(Conflict, match=f"still runs j-{replica.job_id}"):
        nodes.remove(node_id=node.pk, by=administrator)
    Replica.objects.filter(pk=replica.pk).update(status=ReplicaStatus.EXITED.value, held=False)
    nodes.remove(node_id=node.pk, by=administrator)
    replica.refresh_from_db()
    assert (Node.objects.filter(pk=node.pk).exists(), replica.node, replica.node_name) == (False, None, node.name)
    assert Event.objects.filter(kind="node_removed", actor=administrator).count() == 1


@pytest.mark.parametrize("act", ["cordon", "uncordon", "drain", "remove"])
def test_members_change_no_machines(act, member, administrator):
    node = make_node()
    with pytest.raises(Forbidden):
        getattr(nodes, act)(node_id=node.pk, by=member)
    with pytest.raises(NotFound):
        getattr(nodes, act)(node_id="0" * 12, by=administrator)


def test_registering_a_cluster(administrator, member):
    cluster = nodes.create_cluster(by=administrator, name="rack-1", port_first=30000, port_last=30100)
    assert Cluster.objects.get(name="rack-1") == cluster
    with pytest.raises(Forbidden):
        nodes.create_cluster(by=member, name="rack-2")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "no spaces"}, "name"),
        ({"name": "lab"}, "name"),
        ({"name": ""}, "name"),
        ({"port_first": 80}, "port_first"),
        ({"port_first": "x"}, "port_first"),
        ({"port_first": 30000, "port_last": 29000}, "port_last"),
        ({"address_range": "10.0.0.0/99"}, "address_range"),
        ({"address_range": "fd00::/8"}, "address_range"),
        ({"interface": "eth1; rm"}, "interface"),
        ({"checkpoint_place": "checkpoints"}, "checkpoint_place"),
        ({"checkpoint_place": "/mnt/../etc"}, "checkpoint_place"),
        ({"checkpoint_place": "/mnt/a\nb"}, "checkpoint_place"),
        ({"environment": {"1": "x"}}, "environment"),
        ({"environment": []}, "environment"),
    ],
)
def test_what_is_wrong_with_a_cluster(fields, field, administrator):
    make_cluster("lab")
    with pytest.raises(Invalid) as refused:
        nodes.create_cluster(by=administrator, **({"name": "rack-1"} | fields))
    assert field in {error.field for error in refused.value.errors}
    assert Cluster.objects.count() == 1


def test_changing_a_cluster(administrator):
    cluster = make_cluster("lab")
    nodes.update_cluster(cluster=cluster, by=administrator, description="The lab")
    make_job(cluster=cluster)
    with pytest.raises(Invalid, match="can no longer be renamed"):
        nodes.update_cluster(cluster=cluster, by=administrator, name="other")


@pytest.mark.parametrize("field", ["description", "checkpoint_place", "name"])
def test_a_nul_in_a_cluster_is_refused(administrator, field):
    with pytest.raises(Invalid) as refused:
        nodes.create_cluster(by=administrator, **({"name": "north"} | {field: "a\0b"}))
    assert field in {error.field for error in refused.value.errors}


def test_a_cluster_with_a_node_is_not_deleted(cluster, administrator, member):
    make_node(cluster)
    with pytest.raises(Conflict, match="has nodes or jobs"):
        nodes.delete_cluster(cluster=cluster, by=administrator)
    with pytest.raises(Forbidden):
        nodes.delete_cluster(cluster=cluster, by=member)
