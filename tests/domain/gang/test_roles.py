"""Who of a gang trains, and who serves."""

import pytest

from orchestrator.domain.gang.roles import training
from tests.domain.gang.gangs import replica
from worker_agent.protocol.states import Role, Strategy

CHIEF, WORKERS, PS = [(Role.CHIEF, 0)], [(Role.WORKER, 0), (Role.WORKER, 1)], [(Role.PS, 0)]


@pytest.mark.parametrize(
    ("strategy", "members", "trains"),
    [
        (Strategy.MULTI_WORKER_MIRRORED, CHIEF + WORKERS, ["chief 0", "worker 0", "worker 1"]),
        (Strategy.PARAMETER_SERVER, CHIEF + WORKERS + PS, ["chief 0"]),
        (Strategy.PARAMETER_SERVER, WORKERS + PS, ["worker 0", "worker 1"]),
        (Strategy.PIPELINE, WORKERS, ["worker 0"]),
    ],
)
def test_who_trains(strategy, members, trains):
    gang = [replica(index, role=role) for role, index in [*members, (Role.EVALUATOR, 0)]]
    assert [each.words for each in training(gang, strategy)] == trains
