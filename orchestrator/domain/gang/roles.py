"""Who of a gang leads it, who trains, and who only serves those that do. Pure."""

from collections.abc import Sequence

from orchestrator.domain.gang.reasons import ReplicaFacts
from worker_agent.protocol.job.gang_shape import is_leader
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Role, Strategy

Gang = Sequence[ReplicaFacts]

_SERVING = frozenset({Role.PS, Role.EVALUATOR})


def leads(replica: ReplicaFacts, gang: Gang) -> bool:
    """Whether it leads its gang."""
    return is_leader(replica.role, replica.index, has_chief=_has_chief(gang))


def is_driven(gang: Gang, strategy: Strategy) -> bool:
    """Whether the leader's end is the training's. Under parameter servers it is its chief's; where a script has none,
    each worker trains by itself."""
    row = STRATEGIES[strategy]
    return row.leader_drives and (_has_chief(gang) or not row.coordinated)


def training(gang: Gang, strategy: Strategy) -> list[ReplicaFacts]:
    """Those whose work the training is. The others serve them, or validate."""
    if is_driven(gang, strategy):
        return [replica for replica in gang if leads(replica, gang)]
    return [replica for replica in gang if replica.role not in _SERVING]


def _has_chief(gang: Gang) -> bool:
    return any(replica.role is Role.CHIEF for replica in gang)
