"""The training process as its shim starts it: its environment, how it begins cold, what it does first when forked."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import worker_agent
from worker_agent.protocol.commands import environment_of
from worker_agent.protocol.job.gang_shape import keras_of
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.plan import SHARED_FOLDER, Plan
from worker_agent.protocol.states import DeviceKind, Keras, Kind

_PACKAGE_ROOT = str(Path(worker_agent.__path__[0]).resolve().parent)


def with_package_in_reach(base: Mapping[str, str]) -> dict[str, str]:
    """An environment in which this package can be imported, wherever the process runs."""
    return {**base, "PYTHONPATH": os.pathsep.join(filter(None, [base.get("PYTHONPATH"), _PACKAGE_ROOT]))}


def training_environment(plan: Plan, base: dict[str, str]) -> dict[str, str]:
    """The training process' environment: the machine's, then ours, the cluster's, the job's, and what must hold."""
    launch = plan.launch
    environment = {
        **base,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONUNBUFFERED": "1",
        **environment_of(launch),
        "TMPDIR": plan.scratch,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TRAINYARD_JOB_ID": str(launch.job_id),
        "TRAINYARD_ATTEMPT": str(launch.attempt),
        "TRAINYARD_REPLICA_ID": str(launch.replica_id),
        "TRAINYARD_FILES": plan.artifacts,
        "TRAINYARD_ROLE": f"{launch.role}:{launch.index}",
    }
    if launch.checkpoints and launch.spec.kind is Kind.SCRIPT:
        environment[SHARED_FOLDER] = launch.checkpoints
    environment.pop("TF_CONFIG", None)
    if launch.device_kind is DeviceKind.GPU and launch.devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, launch.devices))
    if launch.tf_config is not None:
        environment["TF_CONFIG"] = json.dumps(launch.tf_config)
    if keras_of(launch.spec) is Keras.TF_KERAS:
        environment["TF_USE_LEGACY_KERAS"] = "1"
    if STRATEGIES[launch.spec.strategy].coordinated:
        environment["GRPC_FAIL_FAST"] = "use_caller"
    return with_package_in_reach(environment)


def start_cold(plan: Path, environment: dict[str, str], output: int) -> int:
    """The training program as a new Python process in a group of its own; its pid."""
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "worker_agent.trainer", "--plan", str(plan)],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ],
        setpgroup=0,
        setsigdef=[signal.SIGINT, signal.SIGHUP],
    )


def become_child() -> None:
    """In a forked training process: leave behind the shim's signal handling and take a group of its own."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setpgid(0, 0)
