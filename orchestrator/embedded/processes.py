"""The processes of an embedded Trainyard as plain values: command line, environment, how long each may take to end.

Pure: `manage.py up` builds them here and hands them to the supervisor.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.embedded import ports
from orchestrator.embedded.folder import write_private

REDIS = "redis"
CONTROL_PLANE = ("web", "celery", "sweep", "ingest")
LAUNCHERS = ("celery", "sweep")


@dataclass(frozen=True)
class ManagedProcess:
    """One process to keep alive. `argv` is asked anew at each start; `stop_s` is how long it may take to end."""

    name: str
    argv: Callable[[], list[str]]
    environment: Mapping[str, str]
    stop_s: float = 10.0


def control_environment(own: Mapping[str, str], *, data: Path, defaults: Mapping[str, str]) -> dict[str, str]:
    """What control-plane processes see: the person's environment, `defaults` where it says nothing, and `data`."""
    return {
        **{f"TRAINYARD_{name.upper()}": value for name, value in defaults.items()},
        **own,
        "TRAINYARD_DATA_DIR": str(data),
        "DJANGO_SETTINGS_MODULE": "dashboard.config.settings",
        "PYTHONUNBUFFERED": "1",
    }


def agent_environment(own: Mapping[str, str]) -> dict[str, str]:
    """What agents, and so users' programs, see: nothing of the control plane's settings and secrets."""
    kept = {name: value for name, value in own.items() if not name.startswith(("TRAINYARD_", "DJANGO_"))}
    return kept | {"PYTHONUNBUFFERED": "1"}


def redis(server: Path, configuration: Path) -> ManagedProcess:
    """The embedded Redis."""
    return ManagedProcess(REDIS, lambda: [str(server), str(configuration)], {})


def control_plane(environment: Mapping[str, str], *, port: int) -> list[ManagedProcess]:
    """Web server, Celery worker, sweep and ingest."""
    lines = (
        f"-m uvicorn dashboard.config.asgi:application --host {ports.LOOPBACK} --port {port} --no-access-log"
        " --ws websockets-sansio --ws-per-message-deflate false --timeout-graceful-shutdown 3",
        "-m celery -A dashboard.config.celery worker -Q control -P threads -c 4"
        " --without-gossip --without-mingle -n control@%h -l info",
        "manage.py sweep",
        "manage.py ingest",
    )
    return [
        ManagedProcess(name, partial(list, [sys.executable, *line.split()]), environment)
        for name, line in zip(CONTROL_PLANE, lines, strict=True)
    ]


def agent(
    name: str, environment: Mapping[str, str], *, data: Path, url: str, token: str, zygote_idle_s: float
) -> ManagedProcess:
    """A local agent: joins with its token like any other the first time, and simply runs once it has joined."""
    base = [sys.executable, "-m", "worker_agent"]
    common = ["--data", str(data), "--end-replicas-on-exit", "--zygote-idle", f"{zygote_idle_s:g}"]

    def argv() -> list[str]:
        if node_id(data):
            return [*base, "run", *common]
        return [*base, "join", url, "--token", token, "--name", name, "--address", ports.LOOPBACK, *common]

    return ManagedProcess(name, argv, environment, stop_s=25.0)


def agent_folder(data: Path, name: str) -> Path:
    """Where a local agent keeps its things."""
    return data / "agents" / name


def node_id(data: Path) -> str:
    """The node that the agent of this folder is to the control plane; empty when it has not joined yet."""
    path = data / "agent.json"
    return str(json.loads(path.read_text())["node_id"]) if path.exists() else ""


def tell_addresses(data: Path, **addresses: str) -> None:
    """Give an agent that joined in an earlier run the addresses of this one (its `url` and `redis_url`)."""
    path = data / "agent.json"
    if path.exists():
        known = json.loads(path.read_text())
        if known | addresses != known:
            write_private(path, known | addresses)
