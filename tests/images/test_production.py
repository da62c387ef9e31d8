"""The tests are the life of one installation, in this order."""

import contextlib
import re
import signal
import socket
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import yaml

from tests.e2e.recipes import SMALL
from tests.environment import ROOT
from tests.faults.installation.machines import unavailable
from tests.images import builder
from tests.images.production import ADMINISTRATOR, CLUSTER, WEB_PORT, Production, until

pytestmark = [pytest.mark.images, pytest.mark.timeout(2400)]

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
SERVERS = [name for name, service in SERVICES.items() if service["restart"] == "unless-stopped"]
AGENTS = [name for name in SERVERS if "profiles" in SERVICES[name]]
OTHERS = [name for name in SERVERS if name not in AGENTS]
# Four steps a second, so that the machine has time for everything else.
SLOW = (
    SMALL
    + """
import time

def callbacks(params):
    return [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.25))]
"""
)


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    if why := builder.unavailable() or unavailable():
        pytest.skip(why)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with builder.in_use(), Production(tmp_path_factory.mktemp("production")) as running:
        yield running


@pytest.fixture(scope="module")
def job(production: Production) -> int:
    """A gang that trains for long."""
    slow = {"filename": "slow.py", "text": SLOW}
    number = production.train(recipe=None, code=slow, epochs=500, checkpoint_steps=10)
    production.wait_for_job(number, "running")
    until(lambda: production.get(f"/jobs/{number}/checkpoints"))
    return number


def test_every_service_of_the_control_plane_becomes_healthy(production: Production) -> None:
    production.up()


def test_the_first_administrator_signs_in(production: Production) -> None:
    line = f"python manage.py createsuperuser --noinput --username {ADMINISTRATOR} --email ada@example.org"
    status, said = production.containers["web"].execute(
        *line.split(), more={"DJANGO_SUPERUSER_PASSWORD": production.password}
    )
    assert status == 0, said
    production.sign_in()


def test_two_agents_join(production: Production) -> None:
    production.post("/clusters", {"name": CLUSTER})
    for number in (1, 2):
        token = production.post(f"/clusters/{CLUSTER}/join-tokens")["token"]
        production.settings[f"TRAINYARD_JOIN_TOKEN_{number}"] = token
    production.up("agents")
    nodes = until(lambda: len(found := production.get("/nodes")) == 2 and found)
    assert [node["address"] for node in nodes] == AGENTS


def test_a_gang_over_both_agents_trains(production: Production) -> None:
    job = production.wait_for_job(production.train(epochs=3), "succeeded")
    assert job["attempt"] == 1
    artifacts = f"/jobs/{job['id']}/artifacts"
    model, *_ = until(lambda: production.get(artifacts))
    assert production.pages.get(f"/api/v1{artifacts}/{model['id']}").content


def test_nobody_is_root_and_no_command_line_holds_a_secret(production: Production) -> None:
    secrets = [value for name, value in production.settings.items() if re.search("KEY|PASSWORD", name)]
    assert len(secrets) == 3
    for name in SERVERS:
        container = production.containers[name]
        for process in (container.first, *container.first.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                assert process.uids().real != 0, name
                assert not any(secret in " ".join(process.cmdline()) for secret in secrets), name


@pytest.mark.parametrize("name", OTHERS)
def test_a_killed_service_comes_back_and_the_training_goes_on(production: Production, job: int, name: str) -> None:
    reached = production.get(f"/jobs/{job}")["step"]
    production.containers[name].kill()
    production.restart(name)
    for each in production.containers:
        production.wait_for_health(each)
    until(lambda: production.get(f"/jobs/{job}")["step"] > reached)
    assert production.get(f"/jobs/{job}")["attempt"] == 1


@pytest.mark.parametrize("name", AGENTS)
def test_the_gang_of_a_killed_agent_is_launched_again(production: Production, job: int, name: str) -> None:
    before = production.get(f"/jobs/{job}")
    production.containers[name].kill()
    production.restart(name)
    production.wait_for_health(name)
    until(lambda: production.get(f"/jobs/{job}")["attempt"] == before["attempt"] + 1)
    production.wait_for_job(job, "running")
    until(lambda: production.get(f"/jobs/{job}")["step"] > before["step"])


@pytest.fixture(scope="module")
def _slow_upload(production: Production) -> Iterator[None]:
    """Somebody's request that does not end."""
    with socket.create_connection((production.network["web"].address, WEB_PORT)) as connection:
        connection.sendall(b"POST /sign-in/ HTTP/1.1\r\nHost: web\r\nContent-Length: 1000\r\n\r\na")
        yield


@pytest.mark.usefixtures("_slow_upload")
@pytest.mark.parametrize("name", [*AGENTS, *OTHERS])
def test_a_service_that_is_stopped_ends_in_time(production: Production, name: str) -> None:
    assert production.containers[name].stop(), production.containers[name].log[-3000:]


def test_everything_goes_on_after_a_stop_of_all(production: Production, job: int) -> None:
    production.up("agents")
    production.wait_for_job(job, "running")
    production.post(f"/jobs/{job}/stop")
    production.wait_for_job(job, "stopped")
