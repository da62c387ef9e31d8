"""Plans and launches for the tests of shim and daemon: a replica whose program is a few lines of Python."""

from pathlib import Path

from worker_agent.protocol.commands import Launch
from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.plan import Plan, plan_in
from worker_agent.protocol.states import DeviceKind, Role, Strategy


def make_spec(**changes: object) -> JobSpec:
    values: dict[str, object] = {
        "name": "count",
        "cluster": "local",
        "code": CodeRef(sha256="0" * 64, entry="recipe.py"),
        "strategy": Strategy.ONE_DEVICE,
    }
    return JobSpec(**(values | changes))


def make_launch(*, spec: JobSpec | None = None, **changes: object) -> Launch:
    values: dict[str, object] = {
        "command_id": 1,
        "replica_id": 7,
        "job_id": 3,
        "attempt": 1,
        "role": Role.WORKER,
        "index": 0,
        "tf_config": None,
        "host": "127.0.0.1",
        "port": 0,
        "devices": [0],
        "device_kind": DeviceKind.CPU,
        "spec": spec or make_spec(),
    }
    return Launch(**(values | changes))


def make_plan(folder: Path, launch: Launch | None = None, *, kill_grace_s: float = 10.0) -> Plan:
    for name in ("code", "spool", "artifacts", "scratch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    launch = launch or make_launch()
    return plan_in(folder, launch, notify=str(folder / "notify.sock"), kill_grace_s=kill_grace_s)
