"""The cluster spec and what each process is told."""

from orchestrator.domain.placement.tf_config import cluster_spec, tf_config
from worker_agent.protocol.states import Role


def test_members_are_ordered_by_index():
    members = [(Role.WORKER, 1, "b:2"), (Role.PS, 0, "c:3"), (Role.WORKER, 0, "a:1")]
    assert cluster_spec(members) == {"ps": ["c:3"], "worker": ["a:1", "b:2"]}


def test_the_evaluator_stands_outside_but_knows_the_cluster():
    whole = cluster_spec([(Role.CHIEF, 0, "a:1"), (Role.EVALUATOR, 0, "e:9")])
    assert whole == {"chief": ["a:1"]}
    assert tf_config(whole, Role.EVALUATOR, 0) == {
        "cluster": {"chief": ["a:1"]},
        "task": {"type": "evaluator", "index": 0},
    }


def test_each_process_gets_a_value_of_its_own():
    whole = cluster_spec([(Role.WORKER, 0, "a:1")])
    tf_config(whole, Role.WORKER, 0)["cluster"]["worker"].append("intruder:1")
    assert whole == {"worker": ["a:1"]}
