"""Which processes of a gang can be launched anew while the others go on. Pure; `decisions.decide` asks.

Under parameter servers the variables lie on the ps and are known to the chief alone, so those begin together from a
checkpoint; a worker holds nothing that the others could not do without, and serves any chief that comes. An evaluator
stands beside its gang, whatever the strategy. What the leader of a script would do on its return is its own affair.
The gang's addresses are the same in every process, so who comes back comes back where it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.domain.gang.reasons import ReplicaFacts
from orchestrator.domain.gang.restarts import Again
from orchestrator.domain.gang.roles import leads
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Cause, Kind, Role, Strategy

HOLD_VARIABLES = frozenset({Role.CHIEF, Role.PS})


@dataclass(frozen=True)
class Part:
    """`members` of a gang are launched anew because `failed`, one of them, did; `why` is whose end explains that one's.

    Where they hold the variables they begin `from_checkpoint`, and are ended first as far as they still run.
    """

    failed: ReplicaFacts
    why: ReplicaFacts
    members: tuple[ReplicaFacts, ...]
    again: Again

    @property
    def from_checkpoint(self) -> bool:
        """Whether steps are done twice."""
        return any(member.role in HOLD_VARIABLES for member in self.members)


def separable(strategy: Strategy, kind: Kind, replicas: Sequence[ReplicaFacts]) -> list[tuple[ReplicaFacts, ...]]:
    """The groups of processes that can be launched anew by themselves. Who is in none takes the whole gang along."""
    alone = [replica for replica in replicas if replica.role is Role.EVALUATOR]
    if not STRATEGIES[strategy].coordinated:
        return [(replica,) for replica in alone]
    alone += [replica for replica in replicas if replica.role is Role.WORKER and not leads(replica, replicas)]
    together = tuple(replica for replica in replicas if replica.role in HOLD_VARIABLES)
    return [*([together] if kind is Kind.RECIPE else []), *((replica,) for replica in alone)]


def may_return(replica: ReplicaFacts) -> bool:
    """Whether a process can be launched again where it was. One that was stopped was stopped for its part's sake."""
    is_fit = not replica.has_failed or replica.cause is Cause.STOPPED or replica.end.row.replaceable
    return replica.node_takes and is_fit
