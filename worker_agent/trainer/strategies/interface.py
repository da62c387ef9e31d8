"""What a strategy is given, and which module has it.

Such a module has `train(process)`: it does everything from meeting the gang to the last step, in this process's role.
One that does not train as `mirrored/synchronous.py` does has a `check` of its own, too, which trials ask. It is
imported when it is needed, after it is settled which Keras this process holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from types import ModuleType
from typing import Any, cast

from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.records import PhaseName
from worker_agent.protocol.states import Role
from worker_agent.trainer.emit import Emitter
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.setup import rendezvous
from worker_agent.trainer.setup.stopping import StopSignal
from worker_agent.trainer.training_run import TrainingRun

# Of a spec, a recipe, its model and the rows of one worker: raises `TrainingFailed` where the strategy would not train
# them; else in how many parts it computes a step.
Check = Callable[[JobSpec, Recipe, Any, Any], int]


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process of a gang: its run, its devices by TensorFlow's names, and the way to speak and to stop.

    `meeting` is the open door of a gang's worker 0, None in every other process.
    """

    run: TrainingRun
    devices: list[str]
    emitter: Emitter
    stop: StopSignal
    meeting: rendezvous.Meeting | None

    def meet(self) -> None:
        """Return in all processes of the gang once each is there, whereupon TensorFlow may start in it."""
        run, deadline = self.run, self._rendezvous()
        if self.meeting is not None:
            self.meeting.gather(deadline=deadline, stop=self.stop)
        else:
            rendezvous.join(run, run.leader, deadline=deadline, stop=self.stop)

    def wait_for_servers(self) -> None:
        """Return once TensorFlow serves in all other processes of the gang."""
        rendezvous.wait_for_ports(self.run, self.run.others, deadline=self._rendezvous(), stop=self.stop)

    def _rendezvous(self) -> float:
        """It begins; when it has failed (monotonic seconds)."""
        self.emitter.phase(PhaseName.RENDEZVOUS, f"{len(self.run.gang)} processes")
        return monotonic() + self.run.rendezvous_timeout_s


def train_of(run: TrainingRun) -> Callable[[Process], None]:
    """The `train` of the run's strategy; an evaluator has one of its own, whatever the strategy."""
    module = _module("evaluator" if run.role is Role.EVALUATOR else run.strategy.module)
    return cast(Callable[[Process], None], module.train)


def check_of(run: TrainingRun) -> Check | None:
    """The `check` of the run's strategy, if it has one."""
    return getattr(_module(run.strategy.module), "check", None)


def _module(name: str) -> ModuleType:
    return import_module(f"worker_agent.trainer.strategies.{name}")
