"""TF_CONFIG as a value: the cluster spec of a gang, and what each process is told about itself.

An evaluator stands outside the cluster spec (it trains with nobody; inside, it would hang the coordinator), but its
own TF_CONFIG names the cluster it evaluates for.
"""

import json
from collections.abc import Iterable, Iterator

from worker_agent.protocol.states import Role

ClusterSpec = dict[str, list[str]]


def cluster_spec(members: Iterable[tuple[Role, int, str]]) -> ClusterSpec:
    """`{"worker": ["host:port", …], …}` of (role, index, host:port), ordered by index, evaluators left out."""
    spec: ClusterSpec = {}
    for role, _index, address in sorted(members, key=lambda member: (member[0], member[1])):
        if role is not Role.EVALUATOR:
            spec.setdefault(role.value, []).append(address)
    return spec


def tf_config(cluster: ClusterSpec, role: Role, index: int) -> dict[str, object]:
    """What one process gets as TF_CONFIG."""
    return {
        "cluster": {name: list(addresses) for name, addresses in cluster.items()},
        "task": {"type": role.value, "index": index},
    }


def addresses_in(written: str) -> Iterator[tuple[Role, int, str, int]]:
    """(role, index, host, port) of every process in a hand-written TF_CONFIG that `tf_config_lint` found sound."""
    for name, addresses in json.loads(written)["cluster"].items():
        for index, address in enumerate(addresses):
            host, _, port = address.rpartition(":")
            yield Role(name), index, host.strip("[]"), int(port)


def extras_in(written: str) -> dict[str, object]:
    """What a hand-written TF_CONFIG says beside cluster and task (`rpc_layer` for instance); {} for ""."""
    whole = json.loads(written) if written else {}
    return {name: value for name, value in whole.items() if name not in ("cluster", "task")}
