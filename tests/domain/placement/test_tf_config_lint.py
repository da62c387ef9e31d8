"""The traps of a hand-written TF_CONFIG: each is found, named, and has a remedy; a sound one has none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.placement.tf_config_lint import lint
from tests.domain.gang.gangs import cluster, node, spec
from worker_agent.protocol.states import Kind, Strategy

A, B, C = "10.0.0.1:20000", "10.0.0.2:20000", "10.0.0.1:20001"
NODES = cluster(node("n1"), node("n2"))
TWO = spec(workers=2)
SERVED = spec(Strategy.PARAMETER_SERVER, workers=1, ps=1)
WITHOUT_CHIEF = spec(Strategy.PARAMETER_SERVER, workers=1, ps=1, chief=False, kind=Kind.SCRIPT)


def found(whole, asked=TWO, nodes=NODES):
    text = whole if isinstance(whole, str) else json.dumps(whole)
    return [finding.sentence for finding in lint(text, asked, nodes)]


@pytest.mark.parametrize(
    ("members", "asked"),
    [
        ({"worker": [A, B]}, TWO),
        ({"chief": [A], "worker": [B]}, spec(workers=2, chief=True)),
        ({"chief": [A], "worker": [B], "ps": [C]}, SERVED),
        ({"worker": [B], "ps": [C]}, WITHOUT_CHIEF),
        ({"worker": [A, B]}, spec(Strategy.TENSOR_PARALLEL, workers=2)),
    ],
)
def test_sound_ones(members, asked):
    assert found({"cluster": members}, asked) == []


@pytest.mark.parametrize(
    ("whole", "asked", "words"),
    [
        ("{", TWO, "not JSON"),
        ("[" * 100_000, TWO, "nested too deeply"),
        ("x" * 100_001, TWO, "too long"),
        ("[]", TWO, "has no cluster"),
        ({"cluster": {}}, TWO, "has no cluster"),
        ({"cluster": {"worker": A}}, TWO, "worker has no list of addresses"),
        ({"cluster": {"worker": [1, 2]}}, TWO, "worker has no list of addresses"),
        ({"cluster": {"worker": [A, B]}, "task": {"type": "worker", "index": 0}}, TWO, "TF_CONFIG contains a task"),
        ({"cluster": {"worker": [A, B], "evaluator": [C]}}, TWO, "the evaluator is in the cluster"),
        ({"cluster": {"worker": [A, B], "master": [C]}}, TWO, "Make its address one of worker"),
        ({"cluster": {"worker": [A], "master": [C]}}, spec(workers=2, chief=True), "no longer knows it. Call it chief"),
        ({"cluster": {"worker": [A, B], "boss": [C]}}, TWO, "there is no role 'boss'"),
        ({"cluster": {"worker": [A], "ps": [B]}}, SERVED, "parameter servers but no chief"),
        ({"cluster": {"worker": [A], "ps": [B]}}, SERVED, "worker 0 leads, as in TensorFlow 1, set `chief` to false"),
        ({"cluster": {"chief": [A], "worker": [B], "ps": [C]}}, WITHOUT_CHIEF, "declared, but none is started"),
        ({"cluster": {"worker": [A, B], "ps": [C], "chief": ["h:1"]}}, TWO, "multi_worker_mirrored starts none"),
        ({"cluster": {"chief": [A], "worker": [B, C]}}, TWO, "a chief is declared, but none is started"),
        ({"cluster": {"worker": [A, B]}}, spec(workers=2, chief=True), "a chief is requested but not declared"),
        ({"cluster": {"chief": [A, C], "worker": [B], "ps": ["h:1"]}}, SERVED, "there are 2 chiefs"),
        ({"cluster": {"worker": [A, B, C]}}, TWO, "3 worker addresses for 2 workers"),
        ({"cluster": {"chief": [A], "worker": [B]}}, SERVED, "it declares no ps"),
        ({"cluster": {"chief": [A], "worker": [B], "ps": [C, "10.0.0.1:20005"]}}, SERVED, "2 ps addresses for 1"),
        ({"cluster": {"worker": [A, "10.0.0.2"]}}, TWO, "a port is missing"),
        ({"cluster": {"worker": [A, ":20000"]}}, TWO, "a port is missing"),
        ({"cluster": {"worker": [A, "10.0.0.2:99999"]}}, TWO, "not one from 1024 to 65535"),
        ({"cluster": {"worker": [A, "10.0.0.2:80"]}}, TWO, "not one from 1024 to 65535"),
        ({"cluster": {"worker": [A, "10.0.0.2:http"]}}, TWO, "not one from 1024 to 65535"),
        ({"cluster": {"worker": [A, A]}}, TWO, "is listed 2 times (worker 0, worker 1)"),
        ({"cluster": {"worker": [A, "10.9.9.9:20000"]}}, TWO, "not a node of the cluster"),
    ],
)
def test_each_trap_has_its_sentence(whole, asked, words):
    assert any(words in sentence for sentence in found(whole, asked)), found(whole, asked)


def test_a_port_outside_the_range_is_a_warning():
    (finding,) = lint(json.dumps({"cluster": {"worker": [A, "10.0.0.2:3000"]}}), TWO, NODES)
    assert not finding.blocks
    assert "Use one of 20000 to 20999" in finding.remedy


def test_nodes_of_one_address_are_all_named():
    nodes = cluster(node("n1", address="127.0.0.1"), node("n2", address="127.0.0.1"))
    (sentence,) = found({"cluster": {"worker": ["127.0.0.1:20000", "10.9.9.9:20000"]}}, nodes=nodes)
    assert sentence.endswith("Use an address of 127.0.0.1 (n1, n2)")


def test_without_a_cluster_the_nodes_are_left_out():
    assert found({"cluster": {"worker": [A, "10.9.9.9:20000"]}}, nodes=None) == []


def test_the_worker_count_to_set_counts_the_chief():
    (sentence,) = found({"cluster": {"chief": [A], "worker": [B, C]}}, spec(workers=2, chief=True))
    assert sentence.endswith("List 1, or set workers to 3")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from([A, "h:1", "worker", "chief"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cluster", "worker", "ps", "task", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(junk, st.sampled_from([TWO, SERVED]))
def test_junk_never_raises(whole, asked):
    assert all(isinstance(sentence, str) for sentence in found(json.dumps({"cluster": whole}), asked))
    assert all(isinstance(sentence, str) for sentence in found(json.dumps(whole), asked))
