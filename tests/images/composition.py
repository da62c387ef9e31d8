"""docker-compose.yml as docker-compose resolves it: a `Service` each, with everything that a container of it needs."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.environment import ROOT, child_environment

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
SIZES = {"m": 2**20, "g": 2**30}


@dataclass(frozen=True)
class Health:
    """A health check. Docker's defaults where the file says nothing."""

    line: list[str]
    interval_s: float
    timeout_s: float
    start_period_s: float
    retries: int


@dataclass(frozen=True)
class Service:
    """A service. `volumes` are places in the container by volume; `needs` are conditions by service."""

    name: str
    image: str
    target: str
    command: list[str]
    environment: dict[str, str]
    volumes: dict[str, str]
    needs: dict[str, str]
    health: Health | None
    restart: str
    has_init: bool
    stop_grace_s: float
    shm_bytes: int
    profiles: list[str]


def services(settings: dict[str, str], folder: Path) -> dict[str, Service]:
    """The services under these settings, which are what `.env` holds; it is written to `folder`."""
    path = folder / "env"
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    program = shutil.which("docker-compose")
    assert program is not None
    line = [program, "--project-directory", str(ROOT), "-f", str(ROOT / "docker-compose.yml"), "--env-file", str(path)]
    done = subprocess.run([*line, "config"], env=child_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    resolved = yaml.safe_load(done.stdout.replace("$$", "$"))
    return {name: _service(name, given) for name, given in resolved["services"].items()}


def _service(name: str, given: dict[str, Any]) -> Service:
    return Service(
        name=name,
        image=given["image"],
        target=given.get("build", {}).get("target", ""),
        command=given.get("command", []),
        environment=given.get("environment", {}),
        volumes=dict(volume.split(":")[:2] for volume in given.get("volumes", [])),
        needs={needed: how["condition"] for needed, how in given.get("depends_on", {}).items()},
        health=_health(given["healthcheck"]) if "healthcheck" in given else None,
        restart=given["restart"],
        has_init=given.get("init", False),
        stop_grace_s=_seconds(given.get("stop_grace_period", "10s")),
        shm_bytes=_bytes(given.get("shm_size", "64m")),
        profiles=given.get("profiles", []),
    )


def _health(given: dict[str, Any]) -> Health:
    how, *line = given["test"]
    return Health(
        line=["/bin/sh", "-c", *line] if how == "CMD-SHELL" else line,
        interval_s=_seconds(given.get("interval", "30s")),
        timeout_s=_seconds(given.get("timeout", "30s")),
        start_period_s=_seconds(given.get("start_period", "0s")),
        retries=given.get("retries", 3),
    )


def _seconds(text: str) -> float:
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)([hms])", text))


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([mg])b?", text).groups()  # type: ignore[union-attr]
    return int(number) * SIZES[unit]
