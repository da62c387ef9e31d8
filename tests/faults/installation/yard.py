"""A whole Trainyard over four machines: the control plane on one, agents on the others.

    with Yard(home, database="sqlite") as yard:
        job = yard.count(steps=50)
        yard.machines["a"].unplug()

What a container's restart policy does in production, `restart` does here, when a test says so. Leaving the block ends
everything and asserts that nothing is left: no process, namespace, mount or temporary file.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from orchestrator.embedded import folder, redis_server
from orchestrator.embedded.startup import ADMINISTRATOR
from tests.environment import ROOT, child_environment
from tests.faults.installation import counting
from tests.faults.installation.database import Database, Postgres, Sqlite
from tests.faults.installation.disks import Disk
from tests.faults.installation.leftovers import groups_in, mounts_in, processes_in
from tests.faults.installation.machines import Network
from tests.waiting import wait_until

NODES = ("a", "b", "c")
REDIS_PORT, WEB_PORT = 6379, 8000
PORTS = (21000, 21399)
CONTROL = ("redis", "web", "celery", "sweep", "ingest")
TERMINAL = ("succeeded", "failed", "stopped")
START_LIMIT_S = 120.0

# Somebody else's process: it notes whatever signal reaches it, and goes on.
BYSTANDER = """
import os, signal, sys, time
def note(number, frame):
    with open(sys.argv[1], "a") as file:
        file.write(f"{number}\\n")
    if number == signal.SIGTERM:
        sys.exit()
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, note)
while True:
    time.sleep(3600)
"""

# What Python runs first: the wall clock is off by what a file says, from one moment to the next. (libfaketime is no
# help: where its offset changes, a sleeping Python gets EINVAL.)
CLOCK = """
import time
real, real_ns, known = time.time, time.time_ns, [0.0, float("-inf")]
def offset():
    if time.monotonic() - known[1] > 0.05:
        with open({path!r}) as file:
            known[:] = float(file.read() or 0), time.monotonic()
    return known[0]
time.time = lambda: real() + offset()
time.time_ns = lambda: real_ns() + int(offset() * 1e9)
"""

# A control plane that does not answer is asked again.
until = partial(wait_until, every_s=0.1, passing=(httpx.HTTPError, AssertionError))


class Yard(AbstractContextManager["Yard"]):
    """One installation. `machines` are the agents' by node name, `control` the control plane's; `rest` is signed in by
    token, `pages` by password; `secrets` may appear nowhere in what people see or programs get. `shares`: the nodes
    have a folder in common.
    """

    def __init__(
        self,
        home: Path,
        *,
        database: str = "sqlite",
        slots: int = 2,
        shares: bool = True,
        zygote: bool = False,
        settings: dict[str, object] | None = None,
    ) -> None:
        self.home, self.data, self.truth, self.temporary = home, home / "data", home / "truth", home / "tmp"
        self.shared, self._shares = home / "shared", shares
        self._slots, self._zygote, self._settings = slots, zygote, settings or {}
        for path in (self.data, self.truth, self.temporary, self.shared):
            path.mkdir(parents=True, exist_ok=True)
        self.network = Network(home, ["control", *NODES])
        self.control = self.network["control"]
        self.machines = {name: self.network[name] for name in NODES}
        self._secrets = folder.first_run_secrets(self.data)
        self.secrets = [self._secrets.secret_key, self._secrets.redis_password, self._secrets.admin_password]
        self.url = f"http://{self.control.address}:{WEB_PORT}"
        self.redis_url = f"redis://:{self._secrets.redis_password}@{self.control.address}:{REDIS_PORT}/0"
        self.database: Database = Sqlite(self.data) if database == "sqlite" else Postgres(home)
        self.rest = httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {self._secrets.api_token}"},
            timeout=20,
            trust_env=False,
        )
        self.pages = httpx.Client(base_url=self.url, timeout=20, trust_env=False)
        self.disks: dict[str, Disk] = {}
        self._platters = home / "platters"
        self.bystanders: dict[str, int] = {}
        self._groups: list[Path] = []

    def __enter__(self) -> "Yard":
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._end()
        left = self.left_behind()
        assert kind is not None or not left, f"left behind: {left}"

    def restart(self, name: str) -> None:
        """A program of the control plane, as its container would be."""
        self.control.start(name, self._lines()[name], self._environment)

    def start_agent(self, name: str) -> int:
        """The agent of a node, joining when it never has; its process id."""
        data = self.agent_folder(name)
        words = [sys.executable, "-m", "worker_agent"]
        if (data / "agent.json").exists():
            words += ["run"]
        else:
            token = self.post(f"/clusters/{counting.CLUSTER}/join-tokens")["token"]
            words += ["join", self.url, "--token", token, "--name", name]
            words += ["--address", self.machines[name].address, "--slots", str(self._slots)]
        words += ["--data", str(data), *([] if self._zygote else ["--no-zygote"])]
        environment = self._own | {"PYTHONPATH": str(self._clock(name).parent)}
        return self.machines[name].start("agent", words, environment)

    def start_bystander(self, name: str, program: str = "bystander") -> int:
        """A process on a node that has nothing to do with Trainyard, and notes signals in `noted`; its process id."""
        line = [sys.executable, "-S", "-E", "-c", BYSTANDER, str(self.noted(name, program))]
        return self.machines[name].start(program, line, self._own)

    def noted(self, name: str, program: str = "bystander") -> Path:
        """The signals that reached a bystander; there is no such file while none did."""
        return self.home / f"{program}-{name}"

    def set_clock(self, name: str, offset_s: int) -> None:
        """The wall clock of a node's programs is off by so much from now on."""
        self._clock(name).write_text(str(offset_s))

    def agent_folder(self, name: str) -> Path:
        """On a small disk of its own."""
        return self.home / "disks" / name

    def get(self, path: str, **query: object) -> Any:
        """GET of REST."""
        answer = self.rest.get(path, params={name: str(value) for name, value in query.items()})
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def post(self, path: str, body: object | None = None) -> Any:
        """POST to REST."""
        answer = self.rest.post(path, json=body)
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def count(self, *, steps: int = 60, wait_s: float = 0.1, workers: int = 3, **more: object) -> int:
        """Submit a counting job; its number."""
        request = counting.request(self.truth, steps=steps, wait_s=wait_s, workers=workers, **more)
        return int(self.post("/jobs", request)["id"])

    def job(self, job_id: int) -> Any:
        """As REST shows it."""
        return self.get(f"/jobs/{job_id}")

    def wait_for(self, job_id: int, *statuses: str, within_s: float = 120.0) -> Any:
        """The job once it has one of the statuses."""
        return until(
            lambda: (job := self.job(job_id))["status"] in statuses and job,
            within_s=within_s,
            what=lambda: f"{statuses} of {json.dumps(self.job(job_id), default=str)[:700]}",
        )

    def wait_for_nodes(self, within_s: float = 60.0) -> None:
        """Until no node is lost any more."""
        until(
            lambda: all(node["state"] != "lost" for node in self.get("/nodes")),
            within_s=within_s,
            what=lambda: str([(node["name"], node["state"], node["reason"]) for node in self.get("/nodes")]),
        )

    def last_heard_of(self, name: str) -> str:
        """When the node's agent spoke last, as REST says it."""
        return str(self.get(f"/nodes/{self.node_id(name)}")["last_seen_at"])

    def node_id(self, name: str) -> str:
        """The node's identity."""
        return str(json.loads((self.agent_folder(name) / "agent.json").read_text())["node_id"])

    def redis(self) -> "redis.Redis[bytes]":
        """A connection to the control plane's Redis."""
        return redis.Redis.from_url(self.redis_url, socket_timeout=10)

    def training(self, *, node: str | None = None, job_id: int | None = None) -> list[psutil.Process]:
        """The shims and training processes there are, of one node, of one job."""
        inside = f"{self.agent_folder(node) if node else self.home / 'disks'}/"
        found = []
        for process in psutil.process_iter():
            try:
                environment, words = process.environ(), process.cmdline()
            except psutil.Error:
                continue
            trains = environment.get("TMPDIR", "").startswith(inside)
            shim = "worker_agent.replica.shim" in words and any(word.startswith(inside) for word in words)
            if (trains and job_id in (None, int(environment["TRAINYARD_JOB_ID"]))) or (shim and job_id is None):
                found.append(process)
        return found

    def left_behind(self) -> list[str]:
        """What this installation has left on the machine, in words."""
        left = [f"namespace {name}" for name in self.network.namespaces()]
        left += [f"process {process.pid} {line[:200]}" for process, line in processes_in(self.home).items()]
        left += [f"mount {place}" for place in mounts_in(self.home)]
        left += [f"cgroup {group}" for group in self._groups if group.exists()]
        return left + [f"file {path}" for path in self.temporary.rglob("*")]

    def _start(self) -> None:
        self.network.__enter__()
        self._own = child_environment() | {"PYTHONUNBUFFERED": "1", "TMPDIR": str(self.temporary)}
        self._environment = self._own | {
            "DJANGO_SETTINGS_MODULE": "dashboard.config.settings",
            "TRAINYARD_SECRET_KEY": self._secrets.secret_key,
            "TRAINYARD_DATA_DIR": str(self.data),
            "TRAINYARD_DATABASE_URL": self.database.url,
            "TRAINYARD_REDIS_URL": self.redis_url,
            "TRAINYARD_PUBLIC_URL": self.url,
            "TRAINYARD_ALLOWED_HOSTS": json.dumps([self.control.address]),
            **{f"TRAINYARD_{name.upper()}": str(value) for name, value in self._settings.items()},
        }
        configuration = redis_server.write_configuration(
            self.data / "redis", port=REDIS_PORT, password=self._secrets.redis_password
        )
        configuration.write_text(configuration.read_text().replace("bind 127.0.0.1", f"bind {self.control.address}"))
        line = [sys.executable, "manage.py", "prepare"]
        done = subprocess.run(line, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for name in CONTROL:
            self.restart(name)
        until(self.answers, within_s=START_LIMIT_S, what=lambda: self.control.log("web").read_text()[-3000:])
        cluster = {"name": counting.CLUSTER, "port_first": PORTS[0], "port_last": PORTS[1]}
        self._platters.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "trainyard-faults", str(self._platters)], check=True)
        self.post("/clusters", cluster | {"checkpoint_place": str(self.shared) if self._shares else ""})
        for name in self.machines:
            self.disks[name] = Disk(self.agent_folder(name), self._platters)
            self.disks[name].make()
            self.bystanders[name] = self.start_bystander(name)
            self._make_clock(name)
            self.start_agent(name)
        until(lambda: all((self.agent_folder(name) / "agent.json").exists() for name in NODES), within_s=START_LIMIT_S)
        self.wait_for_nodes()
        self.secrets += [json.loads((self.agent_folder(name) / "agent.json").read_text())["node_key"] for name in NODES]
        self._sign_in()

    def _end(self) -> None:
        for client in (self.rest, self.pages):
            client.close()
        for name in NODES:
            if "agent" in self.machines[name].programs:
                self.machines[name].kill("agent")
        self._groups = groups_in(self.home)
        at_work = [group for group in self._groups if _has_processes(group)]
        for process in self.training():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for group in at_work:  # whoever would have removed it has just been killed
            until(lambda: not _has_processes(group), within_s=10, what=partial(str, group))  # noqa: B023 - called at once
            with contextlib.suppress(FileNotFoundError):
                group.rmdir()
        self.database.give_back()
        self.network.close()
        self.database.close()
        for disk in self.disks.values():
            disk.unmount()
        if os.path.ismount(self._platters):
            subprocess.run(["umount", "-l", str(self._platters)], check=True)

    def answers(self) -> bool:
        """Whether the web server says that it is ready."""
        try:
            return self.pages.get("/readyz").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _sign_in(self) -> None:
        form = self.pages.get("/sign-in/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None
        answer = self.pages.post(
            "/sign-in/",
            data={
                "csrfmiddlewaretoken": token[1],
                "username": ADMINISTRATOR,
                "password": self._secrets.admin_password,
            },
            headers={"Referer": f"{self.url}/sign-in/"},
        )
        assert answer.status_code == httpx.codes.FOUND, answer.text

    def _clock(self, name: str) -> Path:
        return self.home / f"clock-{name}" / "offset"

    def _make_clock(self, name: str) -> None:
        path = self._clock(name)
        path.parent.mkdir()
        (path.parent / "sitecustomize.py").write_text(CLOCK.format(path=str(path)))
        self.set_clock(name, 0)

    def _lines(self) -> dict[str, list[str]]:
        manage, module = [sys.executable, "manage.py"], [sys.executable, "-m"]
        return {
            "redis": [str(redis_server.find_server()), str(self.data / "redis" / "redis.conf")],
            "web": [
                *(*module, "uvicorn", "dashboard.config.asgi:application", "--host", self.control.address),
                *("--port", str(WEB_PORT), "--ws", "websockets-sansio", "--no-access-log"),
            ],
            "celery": [
                *(*module, "celery", "-A", "dashboard.config.celery", "worker", "-Q", "control", "-P", "threads"),
                *("-c", "4", "--without-gossip", "--without-mingle", "-n", "control@faults"),
            ],
            "sweep": [*manage, "sweep"],
            "ingest": [*manage, "ingest"],
        }


def _has_processes(group: Path) -> bool:
    with contextlib.suppress(OSError):  # it goes at some moment
        return bool((group / "cgroup.procs").read_text().strip())
    return False
