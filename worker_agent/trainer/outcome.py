"""How a training process ends: its exit statuses, and the exception with which the trainer's rooms end a run."""

import os
import sys
from enum import IntEnum

from worker_agent.protocol.states import SAVED_CODE, Cause
from worker_agent.replica.verdict import TERMINATED_CODE


class ExitCode(IntEnum):
    """The statuses the trainer leaves with, named as causes. STOPPED is a shell's word for SIGTERM (128 + 15)."""

    COMPLETED = 0
    EXCEPTION = 1
    USAGE = 2
    LOSS_NOT_FINITE = 70
    RENDEZVOUS_TIMEOUT = 71
    PORT_TAKEN = 72
    PAUSED = SAVED_CODE
    STOPPED = TERMINATED_CODE


class TrainingFailed(Exception):
    """The run cannot go on: `what` is wrong, `remedy` is a clause that says what to do ("" where `what` says all). The
    `message` of both is one sentence that stands by itself on the job's page."""

    def __init__(self, what: str, cause: Cause = Cause.EXCEPTION, *, remedy: str = "") -> None:
        self.message = f"{what}: {remedy}." if remedy else what
        super().__init__(self.message)
        self.what = what
        self.remedy = remedy
        self.cause = cause


class NodeLacks(TrainingFailed):
    """The same, for what is installed on this node: elsewhere the run might go on."""


class Stopped(Exception):
    """The run was asked to end and does so between two executions."""


class Paused(Exception):
    """The run was asked to save and leave, and has saved: the whole gang the same step."""


def code_of(cause: Cause) -> ExitCode:
    """The exit status for `cause`: the one of the same name."""
    return ExitCode.__members__.get(cause.name, ExitCode.EXCEPTION)


def leave(code: int) -> None:
    """End now. TensorFlow's threads and a gang's services do not survive a slow interpreter shutdown in good order."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
