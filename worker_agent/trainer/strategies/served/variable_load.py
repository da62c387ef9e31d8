"""How variables lie on parameter servers: who holds how much, and which of them are partitioned."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from worker_agent.trainer.saving.state import name_of_variable


def load_of_servers(variables: Sequence[Any], *, servers: int) -> list[dict[str, int]]:
    """`[{ps, variables, bytes}]`; a part of a partitioned variable counts as one."""
    load = [{"ps": number, "variables": 0, "bytes": 0} for number in range(servers)]
    for part in (part for variable in variables for part in _parts(variable)):
        found = re.search(r"/job:ps/.*task:(\d+)", part.device)
        if found:
            load[int(found[1])]["variables"] += 1
            load[int(found[1])]["bytes"] += part.shape.num_elements() * tf.as_dtype(part.dtype).size
    return load


def partitioned(variables: Iterable[Any]) -> list[dict[str, Any]]:
    """`[{variable, parts}]` of those that lie in several parts."""
    return [
        {"variable": name_of_variable(variable), "parts": len(_parts(variable))}
        for variable in variables
        if len(_parts(variable)) > 1
    ]


def _parts(variable: Any) -> list[Any]:
    if isinstance(variable, tf.__internal__.distribute.ShardedVariable):
        return list(variable.variables)
    return [variable]
