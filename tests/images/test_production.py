"""The tests are the life of one installation, in this order."""

import sys
from collections.abc import Iterator

import pytest
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.e2e.recipes import SMALL
from tests.faults.installation.machines import unavailable
from tests.images import builder
from tests.images.production import ADMINISTRATOR, CLUSTER, Production, until

pytestmark = [pytest.mark.images, pytest.mark.timeout(2400)]

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
    with Production(tmp_path_factory.mktemp("production")) as running:
        yield running
    for what, seconds in running.seconds.items():
        sys.stderr.write(f"{what}: {seconds:.1f} s\n")


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
    status, said = production.containers["web"].execute(
        *(
            "python",
            "manage.py",
            "createsuperuser",
            "--noinput",
            "--username",
            ADMINISTRATOR,
            "--email",
            "ada@example.org",
        ),
        more={"DJANGO_SUPERUSER_PASSWORD": production.password},
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
    assert {(node["name"], node["address"]) for node in nodes} == {("agent-1", "agent-1"), ("agent-2", "agent-2")}


def test_a_gang_over_both_agents_trains(production: Production) -> None:
    job = production.wait_for_job(production.train(epochs=3), "succeeded")
    assert job["attempt"] == 1


@pytest.mark.parametrize("name", ["web", "celery", "sweep", "ingest", "redis", "postgres"])
def test_a_killed_service_comes_back_and_the_training_goes_on(production: Production, job: int, name: str) -> None:
    reached = production.get(f"/jobs/{job}")["step"]
    production.containers[name].kill()
    production.restart(name)
    for each in production.containers:
        production.wait_for_health(each)
    until(lambda: production.get(f"/jobs/{job}")["step"] > reached)
    assert production.get(f"/jobs/{job}")["attempt"] == 1


@pytest.mark.parametrize("name", ["agent-1", "agent-2"])
def test_the_gang_of_a_killed_agent_is_launched_again(production: Production, job: int, name: str) -> None:
    before = production.get(f"/jobs/{job}")
    production.containers[name].kill()
    production.restart(name)
    production.wait_for_health(name)
    until(lambda: production.get(f"/jobs/{job}")["attempt"] == before["attempt"] + 1)
    production.wait_for_job(job, "running")
    until(lambda: production.get(f"/jobs/{job}")["step"] > before["step"])


@pytest.fixture(scope="module")
def viewer(production: Production) -> Iterator[ClientConnection]:
    """A page that stays open."""
    cookie = "; ".join(f"{name}={value}" for name, value in production.pages.cookies.items())
    address = f"{production.url.replace('http', 'ws')}/ws/jobs/"
    with connect(address, additional_headers={"Cookie": cookie}, origin=Origin(production.url)) as socket:
        yield socket


@pytest.mark.usefixtures("viewer")
@pytest.mark.parametrize("name", ["agent-1", "agent-2", "web", "celery", "sweep", "ingest", "redis", "postgres"])
def test_a_service_that_is_stopped_ends_in_time(production: Production, name: str) -> None:
    ended, seconds = production.containers[name].stop()
    production.seconds[f"{name} stopped"] = seconds
    assert ended, production.containers[name].log[-3000:]


def test_everything_goes_on_after_a_stop_of_all(production: Production, job: int) -> None:
    production.up("agents")
    production.wait_for_job(job, "running")
    production.post(f"/jobs/{job}/stop")
    production.wait_for_job(job, "stopped")
