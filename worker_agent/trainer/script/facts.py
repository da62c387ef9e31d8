"""What is particular to a script's process, told from outside: what the launcher knows at its start, how much memory it
needs, and the strategies and meshes that the program makes, each when it is made. Nothing is changed about them.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.records import FactValue
from worker_agent.protocol.states import Keras
from worker_agent.trainer.script.imports import when_imported
from worker_agent.trainer.script.periodic import Periodic
from worker_agent.trainer.script.script_report import ScriptReport
from worker_agent.trainer.setup.memory import Memory
from worker_agent.trainer.training_run import TrainingRun

MEMORY_EVERY_S = 2.0


class ScriptFacts(Periodic):
    """One per process: tells at once what is known, and goes on until `close`."""

    def __init__(self, run: TrainingRun, report: ScriptReport) -> None:
        self._report = report
        self._memory = Memory(report.facts)
        super().__init__("script-facts", MEMORY_EVERY_S, self._memory.tell)
        report.facts(**_known(run))
        self.start()
        # TensorFlow's `Server.join` holds the interpreter: what a server needs is told before it comes to that.
        when_imported("tensorflow", self._needs_memory)
        when_imported("tensorflow.python.distribute.distribute_lib", self._watch_strategies)
        when_imported("tensorflow.dtensor.python.layout", self._watch_meshes)

    def _needs_memory(self, _module: ModuleType) -> None:
        """Its memory is told."""
        self._memory.tell()

    def _watch_strategies(self, module: ModuleType) -> None:
        """What a strategy consists of is told."""
        _after_making(module.StrategyBase, lambda strategy: self._report.facts(**facts_of(strategy)))

    def _watch_meshes(self, module: ModuleType) -> None:
        """How a mesh is laid out is told."""
        _after_making(
            module.Mesh,
            lambda mesh: self._report.facts(mesh={str(name): int(mesh.dim_size(name)) for name in mesh.dim_names}),
        )


def facts_of(strategy: Any) -> dict[str, FactValue]:
    """Its name, replicas, their devices, and what sums their gradients; {} of what stands where no strategy was made.

    The coordinator of parameter servers computes on none of the devices it names, and sums nothing.
    """
    try:
        devices = [str(name) for name in strategy.extended.worker_devices]
        replicas = int(strategy.num_replicas_in_sync)
        if getattr(strategy, "_is_parameter_server_strategy_v2", False):
            return {"strategy": _name_of(strategy), "replicas_in_sync": replicas}
        summing = _communication(strategy.extended, devices) if replicas > 1 else "none"
        told = {"replicas_in_sync": replicas, "devices": devices, "communication": summing}
        return told | {"strategy": _name_of(strategy)}
    except Exception:  # TensorFlow's default one, or one of the program's own
        return {}


def _name_of(strategy: Any) -> str:
    """As programs call it: `MirroredStrategy`."""
    names = vars(type(strategy)).get("_tf_api_names") or (type(strategy).__name__,)
    return str(names[-1]).rpartition(".")[2]


def _communication(extended: Any, devices: list[str]) -> str:
    """In the words of the recipes' strategies."""
    if extended._in_multi_worker_mode():
        may_use_nccl = extended._communication_options.implementation.value != "RING"
        return "NCCL" if may_use_nccl and all("GPU" in name for name in devices) else "RING over gRPC"
    held_by = {name.rpartition("device:")[2] for name in extended.parameter_devices}
    if len(held_by) == 1:
        return f"through {held_by.pop()}"
    return type(getattr(extended, "_cross_device_ops", extended)).__name__.removesuffix("Extended")


def _known(run: TrainingRun) -> dict[str, FactValue]:
    """What the launcher knows before the program begins. A `fit` corrects the Keras, a strategy the devices."""
    known: dict[str, FactValue] = {}
    package = "tf_keras" if keras_of(run.spec) is Keras.TF_KERAS else "keras"
    with contextlib.suppress(PackageNotFoundError):
        known["keras"] = f"{package} {version(package)}"
    if run.role in run.strategy.computing:
        known["devices"] = [f"{run.device_kind.value.upper()}:{place}" for place in range(run.devices)]
    if run.gang:
        known["gang"] = dict(Counter(member.role for member in run.gang))
    return known


def _after_making(kind: Any, tell: Callable[[Any], None]) -> None:
    """`tell(it)` of everything of this kind that is made from now on; what cannot be told is left out."""
    make = kind.__init__

    @wraps(make)
    def made(this: Any, *arguments: Any, **named: Any) -> None:
        make(this, *arguments, **named)
        with contextlib.suppress(Exception):
            tell(this)

    kind.__init__ = made
