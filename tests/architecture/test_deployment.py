"""docs/settings.md, docker-compose.yml, Dockerfile and .env.example say what the code says."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

from dashboard.config.env import Env
from tests.environment import ROOT, child_environment

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
# Of the compose file alone: they become part of settings, or are given to an agent's command line.
COMPOSE_ONLY = {
    "TRAINYARD_REDIS_BIND",
    "TRAINYARD_DATABASE_PASSWORD",
    "TRAINYARD_REDIS_PASSWORD",
    "TRAINYARD_HOST",
    "TRAINYARD_BIND",
    "TRAINYARD_JOIN_TOKEN_1",
    "TRAINYARD_JOIN_TOKEN_2",
}


def variables() -> set[str]:
    return {f"TRAINYARD_{name.upper()}" for name in Env.model_fields}


def as_documented(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list) else str(value)


def test_settings_page_lists_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| `(TRAINYARD_\w+)` \|\s*(.*?)\s*\| (.+) \|$", (ROOT / "docs/settings.md").read_text(), re.M)
    documented = {name: default.strip("` ") for name, default, _ in rows}
    defaults = {f"TRAINYARD_{name.upper()}": as_documented(each.default) for name, each in Env.model_fields.items()}
    assert documented == defaults


def test_compose_has_every_process_of_an_installation() -> None:
    assert set(SERVICES) >= {"web", "celery", "sweep", "ingest", "postgres", "redis", "agent-1", "agent-2"}


def stages() -> dict[str, str]:
    """The text of each target of the Dockerfile."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", sorted(OURS))
def test_each_command_resolves(name: str) -> None:
    of_image = re.search(r"^CMD (\[.+\])$", stages()[OURS[name]["build"]["target"]], re.M)
    assert of_image
    program, *rest = OURS[name].get("command", json.loads(of_image[1]))
    if program == "python" and rest[0] == "manage.py":
        assert rest[1] in get_commands()
    elif program == "python":
        assert rest[0] == "-m"
        assert importlib.util.find_spec(f"{rest[1]}.__main__") or importlib.util.find_spec(rest[1])
    elif program == "uvicorn":
        module, attribute = rest[0].split(":")
        assert attribute == "application"
        assert importlib.util.find_spec(module)
    else:
        assert program == "celery"
        assert importlib.util.find_spec(rest[rest.index("-A") + 1])


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_service_restarts_and_each_server_has_a_health_check(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == ("no" if name == "migrate" else "unless-stopped")
    assert "healthcheck" in service or name == "migrate"


def test_compose_names_only_settings_that_exist() -> None:
    given = {name for service in OURS.values() for name in service.get("environment", {})}
    assert given <= variables()
    used = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    assert used <= variables() | COMPOSE_ONLY


def test_no_secret_has_a_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for name in ("TRAINYARD_SECRET_KEY", "TRAINYARD_DATABASE_PASSWORD", "TRAINYARD_REDIS_PASSWORD"):
        assert set(re.findall(rf"\$\{{{name}(..)", text)) == {":?"}
        assert re.search(rf"^{name}=$", (ROOT / ".env.example").read_text(), re.M)


def test_example_environment_has_every_variable_of_compose() -> None:
    used = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    assert used == set(re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), re.M))


def test_debian_s_docker_compose_accepts_the_file(tmp_path: Path) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed")
    filled = re.sub(r"=$", "=filled", (ROOT / ".env.example").read_text(), flags=re.M)
    (tmp_path / "env").write_text(filled)
    line = [program, "--project-directory", str(ROOT), "-f", str(ROOT / "docker-compose.yml")]
    accepted = subprocess.run(
        [*line, "--env-file", str(tmp_path / "env"), "config"],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert accepted.returncode == 0, accepted.stderr
    assert set(yaml.safe_load(accepted.stdout)["services"]) == set(SERVICES)
    refused = subprocess.run(
        [*line, "--env-file", str(ROOT / ".env.example"), "config"],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert "set it in .env" in refused.stderr


def test_images_run_as_nobody_special_and_copy_what_exists() -> None:
    targets = stages()
    assert {service["build"]["target"] for service in OURS.values()} == set(targets) - {"base"}
    for name in set(targets) - {"base"}:
        assert re.search(r"^USER trainyard$", targets[name], re.M)
        for sources in re.findall(r"^COPY (.+) \S+$", targets[name], re.M):
            for source in sources.split():
                assert (ROOT / source.replace("${KIND}", "gpu")).exists(), source
