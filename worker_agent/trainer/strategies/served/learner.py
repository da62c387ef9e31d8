"""The model of a parameter-server training behind the loop's face: its variables lie on the servers, and the
coordinator does with them as a whole what any process does with its own."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from worker_agent.trainer.model.compiled_model import check_model, once_each
from worker_agent.trainer.model.tf_keras import TfKeras
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.saving.state import name_of_variable
from worker_agent.trainer.setup import runtime

# Facts are short: a model of many layers does not name them all.
NAMED_MAX = 50


class ServedLearner(TfKeras):
    """The recipe's model with all its variables, made from `seed`; `element_spec` is that of its batches."""

    saves_together = False  # one process has it

    def __init__(
        self, recipe: Recipe, strategy: tf.distribute.ParameterServerStrategy, element_spec: Any, *, seed: int
    ) -> None:
        self._whole: TfKeras | None = None
        runtime.seed_everything(seed)
        with strategy.scope():
            super().__init__(check_model(recipe.model()), strategy)
        self.create_variables(element_spec)
        self.model.optimizer.jit_compile = False  # XLA cannot update variables of other processes
        if _partitioned(self.state):
            # An initializer asked for a part scales by the part's shape, so a partitioned model would begin with other,
            # larger values than the same model on one server: take those of the latter.
            runtime.seed_everything(seed)
            self._whole = TfKeras(recipe.model(), tf.distribute.get_strategy())
            self._whole.create_variables(element_spec)
            _copy(self._whole.state, self.state)

    @property
    def state(self) -> list[Any]:
        """A partitioned variable is listed as one."""
        return once_each(map(_in_one, super().state))

    def facts(self, *more: Any, servers: int) -> dict[str, Any]:
        """How the variables, and `more` of them, lie on the servers."""
        return {
            "parameters_total": sum(variable.shape.num_elements() for variable in self.model.trainable_variables),
            "ps_load": _load_of_servers([*self.state, *more], servers=servers),
            "partitioned": _partitioned(once_each(map(_in_one, self.model.weights)))[:NAMED_MAX],
        }

    def whole_model(self, *, keep: bool) -> Any:
        if self._whole is None:
            return self.model
        _copy(self.state, self._whole.state)
        return self._whole.model

    def _in_replicas(self, function: Callable[[], None]) -> None:
        """In the coordinator itself: nothing may run in replicas but what workers are given."""
        with self.strategy.scope():
            function()


def _load_of_servers(variables: Sequence[Any], *, servers: int) -> list[dict[str, int]]:
    """`[{ps, variables, bytes}]`; a part of a partitioned variable counts as one."""
    load = [{"ps": number, "variables": 0, "bytes": 0} for number in range(servers)]
    for part in (part for variable in variables for part in _parts(variable)):
        found = re.search(r"/job:ps/.*task:(\d+)", part.device)
        if found:
            load[int(found[1])]["variables"] += 1
            load[int(found[1])]["bytes"] += part.shape.num_elements() * tf.as_dtype(part.dtype).size
    return load


def _partitioned(variables: Iterable[Any]) -> list[dict[str, Any]]:
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


def _in_one(variable: Any) -> Any:
    container = getattr(variable, "_sharded_container", None)
    return variable if container is None else container()


def _copy(source: list[Any], target: list[Any]) -> None:
    """Give each variable of `target` the value of its counterpart, whichever of the two is partitioned."""
    for theirs, ours in zip(source, target, strict=True):
        ours.assign(tf.convert_to_tensor(theirs))
