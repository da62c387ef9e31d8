"""What the control plane finds of the nodes of a gang."""

import pytest

from orchestrator.domain.placement.node_findings import findings
from orchestrator.domain.placement.planning import NodeView, Software
from tests.agent.plans import make_spec
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Keras, NodeState, Strategy

GANG_RUNS = "TensorFlow differs between the nodes of the gang "
SOUND = {"tensorflow": "2.21.0", "keras": "3.15.1", "tf_keras": "2.21.0", "agent": "0.1.0"}
SOUND["job_fields"] = " ".join(JobSpec.__struct_fields__)


def make_nodes(*software: dict[str, str]) -> list[NodeView]:
    return [
        NodeView(
            f"{number:012x}", f"n{number}", "10.0.0.1", NodeState.READY, (), software=Software(**(SOUND | changes))
        )
        for number, changes in enumerate(software, start=1)
    ]


def found(*software: dict[str, str], **spec: object) -> list[tuple[str, bool]]:
    return [(finding.what, finding.blocks) for finding in findings(make_spec(**spec), make_nodes(*software))]


def test_equal_nodes_are_sound() -> None:
    assert found({}, {}, {}) == []


def test_an_older_agent_takes_what_it_knows_and_is_named_for_the_rest() -> None:
    assert found({"job_fields": ""}, epochs=7) == []
    older = ("an older Trainyard runs on n1", True)
    assert found({"job_fields": ""}, printed="loss") == [older]
    assert found({"job_fields": "name epochs printed code kind strategy cluster"}, printed="loss") == []
    (finding,) = findings(make_spec(printed="loss", files="*.npy"), make_nodes({"job_fields": ""}))
    assert finding.why == "its agent does not know what the job sets: Files kept, Numbers in printed lines"


@pytest.mark.parametrize(
    ("odd", "what", "blocks"),
    [
        (
            {"tensorflow": "2.20.0"},
            GANG_RUNS + "(2.20.0 on n2; 2.21.0 on n1)",
            True,
        ),
        (
            {"tensorflow": "2.21.1"},
            GANG_RUNS + "(2.21.0 on n1; 2.21.1 on n2)",
            False,
        ),
        ({"tensorflow": ""}, "no TensorFlow on n2", True),
        ({"keras": ""}, "no keras>=3 on n2", True),
        ({"keras": "2.15.0"}, "no keras>=3 on n2", True),
        ({"keras": "3.14.0"}, "Keras differs between the nodes of the gang (3.14.0 on n2; 3.15.1 on n1)", False),
        ({"agent": "0.0.9"}, "agents differ between the nodes of the gang (0.0.9 on n2; 0.1.0 on n1)", False),
    ],
)
def test_one_node_that_is_odd(odd: dict[str, str], what: str, blocks: bool) -> None:
    assert found({}, odd) == [(what, blocks)]


def test_the_keras_that_the_strategy_needs() -> None:
    served = {"strategy": Strategy.PARAMETER_SERVER}
    assert found({"tf_keras": ""}) == []
    assert found({"tf_keras": ""}, **served) == [("no tf_keras on n1", True)]
    assert found({"tf_keras": ""}, keras=Keras.TF_KERAS) == [("no tf_keras on n1", True)]
    assert found({"keras": ""}, **served) == []


def test_a_node_that_has_not_told_what_it_runs_is_passed_over() -> None:
    assert found({}, dict.fromkeys(SOUND, "")) == []
