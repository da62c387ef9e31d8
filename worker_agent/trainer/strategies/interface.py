"""What every strategy room offers, and which room a strategy lives in.

A room is a module with `train(task)`: it does everything from meeting the gang to the last step, in this process's
role. Rooms are imported when they are needed, after it is settled which Keras this process holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from typing import cast

from worker_agent.protocol.states import Role, Strategy
from worker_agent.trainer.emit import Emitter
from worker_agent.trainer.setup.rendezvous import Meeting
from worker_agent.trainer.setup.stopping import StopSignal
from worker_agent.trainer.training_run import TrainingRun

_ROOMS = {
    Strategy.ONE_DEVICE: "mirrored.one_device",
    Strategy.MIRRORED: "mirrored.mirrored",
    Strategy.MULTI_WORKER_MIRRORED: "mirrored.multi_worker_mirrored",
    Strategy.PARAMETER_SERVER: "served.parameter_server",
    Strategy.CENTRAL_STORAGE: "mirrored.central_storage",
    Strategy.TPU: "mirrored.tpu",
    Strategy.TENSOR_PARALLEL: "tensor.tensor_parallel",
    Strategy.PIPELINE: "pipe.pipeline",
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a room gets: the run, the devices of this replica by TensorFlow's names, and the way to speak and to stop.

    `meeting` is the open door of a gang's worker 0, None in every other process.
    """

    run: TrainingRun
    devices: list[str]
    emitter: Emitter
    stop: StopSignal
    meeting: Meeting | None

    def deadline(self) -> float:
        """When a rendezvous that begins now has failed (monotonic seconds)."""
        return monotonic() + self.run.rendezvous_timeout_s


def room_of(run: TrainingRun) -> Callable[[Task], None]:
    """The `train` of the strategy's room; an evaluator has one of its own, whatever the strategy."""
    name = "evaluator" if run.role is Role.EVALUATOR else _ROOMS[run.spec.strategy]
    module = import_module(f"worker_agent.trainer.strategies.{name}")
    return cast(Callable[[Task], None], module.train)
