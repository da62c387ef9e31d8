"""The production shape, really run: both images are built from the Dockerfile, and every service of docker-compose.yml
runs from its image (`make images-test`). No container engine is needed: buildah builds, namespaces are the containers.

    with Production(home) as production:
        production.up()

Containers are started in the order that their conditions allow. One that ends without being told is an error.
"""

import secrets
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.environment import ROOT
from tests.faults.installation.machines import Network
from tests.images import builder, composition
from tests.images.composition import Service
from tests.images.containers import Container
from tests.waiting import wait_until

ADMINISTRATOR = "ada"
CLUSTER = "hall"
WEB_PORT = 8000
TERMINAL = ("succeeded", "failed", "stopped")

until = partial(wait_until, every_s=0.2, passing=(httpx.HTTPError,))


class Production(AbstractContextManager["Production"]):
    """One installation. `settings` are what `.env` holds; `pages` is a browser that keeps cookies."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.network = Network(home, list(composition.services(_filled(), home)))
        self.url = f"http://{self.network['web'].address}:{WEB_PORT}"
        self.settings = _filled() | {
            **{name: secrets.token_hex(25) for name in ("TRAINYARD_SECRET_KEY", *_PASSWORDS)},
            "TRAINYARD_PUBLIC_URL": self.url,
            "TRAINYARD_HOST": self.network["web"].address,
            "TRAINYARD_SECURE_COOKIES": "false",
        }
        self.password = secrets.token_hex(10)
        self.pages = httpx.Client(base_url=self.url, timeout=20, trust_env=False)
        self.containers: dict[str, Container] = {}

    def __enter__(self) -> "Production":
        try:
            self.network.__enter__()
            hosts = [f"{machine.address} {name}" for name, machine in self.network.machines.items()]
            (self.home / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts, ""]))
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.pages.close()
        for container in self.containers.values():
            container.remove()
        self.network.close()

    def services(self) -> dict[str, Service]:
        """As the settings are now."""
        return composition.services(self.settings, self.home)

    def up(self, *profiles: str) -> None:
        """`docker compose up -d`, and wait until every health check is green."""
        waiting = {
            name: each for name, each in self.services().items() if not each.profiles or {*each.profiles} & {*profiles}
        }
        for name, service in waiting.items():
            if name not in self.containers:
                self.containers[name] = Container(service, self.network[name], self.home)
        started = [name for name in waiting if self.containers[name].is_running]
        while len(started) < len(waiting):
            for name in waiting:
                container = self.containers[name]
                if name not in started and all(self._holds(*need) for need in container.service.needs.items()):
                    container.start()
                    started.append(name)
            time.sleep(0.2)
        for name in waiting:
            self.wait_for_health(name)

    def wait_for_health(self, name: str) -> None:
        """Until its check is green, for as long as an engine would wait before it calls it unhealthy."""
        container = self.containers[name]
        health = container.service.health
        if health is None:
            return
        until(
            lambda: self._lives(container) and container.check_health()[0],
            within_s=health.start_period_s + health.retries * (health.interval_s + health.timeout_s),
            what=lambda: f"{name} is not healthy: {container.check_health()[1]}\n{container.log[-3000:]}",
        )

    def restart(self, name: str) -> None:
        """What the restart policy does after a crash."""
        container = self.containers[name]
        assert container.service.restart == "unless-stopped"
        container.start()

    def sign_in(self) -> None:
        """As the administrator."""
        self.pages.get("/sign-in/")
        form = {
            "username": ADMINISTRATOR,
            "password": self.password,
            "csrfmiddlewaretoken": self.pages.cookies["csrftoken"],
        }
        answer = self.pages.post("/sign-in/", data=form, headers={"Referer": self.url})
        assert answer.status_code == httpx.codes.FOUND, answer.text

    def get(self, path: str) -> Any:
        """GET of REST."""
        answer = self.pages.get(f"/api/v1{path}")
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def post(self, path: str, body: object | None = None) -> Any:
        """POST to REST, as a page does."""
        headers = {"X-CSRFToken": self.pages.cookies["csrftoken"], "Referer": self.url}
        answer = self.pages.post(f"/api/v1{path}", json=body, headers=headers)
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def train(self, **more: object) -> int:
        """Submit a gang of two; its number."""
        gang = {"recipe": "digits_mlp", "strategy": "multi_worker_mirrored", "workers": 2, "global_batch_size": 64}
        return int(self.post("/jobs", {"name": "gang", "cluster": CLUSTER, **gang, **more})["id"])

    def wait_for_job(self, job_id: int, *statuses: str, within_s: float = 180.0) -> Any:
        """The job once it has one of the statuses; fails at once when it ends otherwise."""

        def reached() -> Any:
            job = self.get(f"/jobs/{job_id}")
            assert job["status"] in statuses or job["status"] not in TERMINAL, f"{job['status']}: {job['reason']}"
            return job["status"] in statuses and job

        return until(reached, within_s=within_s, what=lambda: str(self.get(f"/jobs/{job_id}")))

    def _build(self) -> None:
        targets = {service.image: service.target for service in self.services().values()}
        for image, target in targets.items():
            if target:
                builder.build(image, ROOT, target)
            else:
                builder.build(image, Path(__file__).with_name("stand_ins"), image.split(":")[0])
        builder.buildah("rmi", "--prune")  # what earlier builds made and these did not use

    def _holds(self, name: str, condition: str) -> bool:
        """Whether a service that another needs is as far as it asks for."""
        container = self.containers[name]
        if condition == "service_completed_successfully":
            ended = container.process.poll() if container.started_at else None
            assert not ended, f"{name} ended with {ended}:\n{container.log[-3000:]}"
            return ended == 0
        assert condition == "service_healthy"
        return self._lives(container) and container.check_health()[0]

    def _lives(self, container: Container) -> bool:
        if not container.started_at:
            return False
        assert container.is_running, f"{container.service.name} ended by itself:\n{container.log[-5000:]}"
        return True


_PASSWORDS = ("TRAINYARD_DATABASE_PASSWORD", "TRAINYARD_REDIS_PASSWORD")


def _filled() -> dict[str, str]:
    """What `.env.example` proposes, every gap filled but those that may stay empty."""
    rows = (line.partition("=") for line in (ROOT / ".env.example").read_text().splitlines() if line[:1].isalpha())
    may_be_empty = ("TRAINYARD_AGENT_REDIS_URL", "TRAINYARD_JOIN_TOKEN_1", "TRAINYARD_JOIN_TOKEN_2")
    return {name: value or ("" if name in may_be_empty else "filled") for name, _, value in rows}
