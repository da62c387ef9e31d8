"""An embedded Trainyard from nothing to "everything answers", then kept alive, then ended in order.

Called by `manage.py up`. Knows the other processes only by their command lines, and the running system only by REST,
like anybody else: what it waits for is what a person would see.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import redis
from redis.exceptions import RedisError

from orchestrator.embedded import folder, ports, processes, redis_server
from orchestrator.embedded.processes import ManagedProcess
from orchestrator.embedded.supervisor import Supervisor
from orchestrator.end_signals import EndSignals

CLUSTER = "local"
ADMINISTRATOR = "admin"
TICK_S = 0.2
START_LIMIT_S = 180.0
GIVE_UP_AFTER = 3
# Agents here are started again by `up`, beside everything else on the same cores: that may take longer than the
# default for machines of their own.
NODE_LOST_AFTER_S = "30"
LONG_AGO = "1970-01-01T00:00:00+00:00"


class StartFailed(Exception):
    """A process did not come up; says which, and what it wrote last."""


class Stopped(Exception):
    """The person asked to stop while starting."""


@dataclass(frozen=True)
class Options:
    """What `up` was asked for."""

    data: Path
    port: int
    nodes: int
    demo: bool
    ready_file: Path | None
    zygote_idle_s: float


@dataclass(frozen=True)
class Entrance:
    """How to get in: shown to the person, and written to the ready file."""

    url: str
    username: str
    password: str
    token: str
    demo: str


class Installation:
    """One run on one data folder. `stopping` is set by the signal handlers; `say` prints a line."""

    def __init__(
        self, options: Options, *, root: Path, own: Mapping[str, str], say: Callable[[str], None], stopping: EndSignals
    ) -> None:
        self._options, self._root, self._own, self._say, self._stopping = options, root, own, say, stopping
        self._data, self._began = options.data, datetime.now(UTC)
        self._port = ports.require_free(options.port)
        self._url = f"http://{ports.LOOPBACK}:{self._port}"
        self._secrets = folder.first_run_secrets(self._data)
        table = self._data / "processes.json"
        self._supervisor = Supervisor(root=root, logs=self._data / "logs", table=table, say=say)
        self._environment: dict[str, str] = {}
        names = [f"node-{number}" for number in range(1, options.nodes + 1)]
        self._agents = {name: processes.agent_folder(self._data, name) for name in names}

    def start(self) -> Entrance:
        """Bring everything up; raises `StartFailed` or `Stopped`."""
        if self._options.ready_file is not None:
            self._options.ready_file.unlink(missing_ok=True)
        redis_url = self._own.get("TRAINYARD_REDIS_URL") or self._own.get("REDIS_URL") or self._start_redis()
        self._environment = processes.control_environment(
            self._own,
            data=self._data,
            defaults={
                "secret_key": self._secrets.secret_key,
                "redis_url": redis_url,
                "public_url": self._url,
                "allowed_hosts": json.dumps([ports.LOOPBACK, "localhost"]),
                "node_lost_after_s": NODE_LOST_AFTER_S,
            },
        )
        prepared = self._manage("prepare", *(part for name in self._agents for part in ("--agent", name)))
        self._say("Database, administrator and cluster are in place")
        for each in processes.control_plane(self._environment, port=self._port):
            self._supervisor.start(each)
        self._until(lambda: self._get("/readyz").is_success, what="The web server", watch=["web"])
        self._say(f"Web server answers on {self._url}")
        self._start_agents(prepared["tokens"])
        password = self._secrets.admin_password if prepared["password_is_ours"] else ""
        # Submitted here, or found as an earlier run made it.
        demo = str(self._manage("demo", "--json")["url"]) if self._options.demo and self._options.nodes else ""
        entrance = Entrance(self._url, ADMINISTRATOR, password, self._secrets.api_token, demo)
        if self._options.ready_file is not None:
            folder.write_private(self._options.ready_file, asdict(entrance))
        return entrance

    def run(self) -> None:
        """Keep everything alive until asked to stop."""
        while not self._stopping.wait(TICK_S):
            self._supervisor.tick()

    def stop(self) -> None:
        """End everything. First what would launch anew, then training and its agents, whose last words are still taken;
        then the rest of the control plane, Redis last."""
        names = self._supervisor.names()
        agents = [name for name in names if name not in (*processes.CONTROL_PLANE, processes.REDIS)]
        for group in (processes.LAUNCHERS, agents, processes.CONTROL_PLANE, [processes.REDIS]):
            self._supervisor.stop(group)
        self._supervisor.end_leftovers(self._data)
        if self._options.ready_file is not None:
            self._options.ready_file.unlink(missing_ok=True)

    def _start_redis(self) -> str:
        server = redis_server.find_server()
        port = redis_server.choose_port(folder.remembered(self._data, "redis_port"))
        folder.remember(self._data, "redis_port", port)
        password = self._secrets.redis_password
        configuration = redis_server.write_configuration(self._data / "redis", port=port, password=password)
        self._supervisor.start(processes.redis(server, configuration))
        url = redis_server.url(port=port, password=password)
        with redis.Redis.from_url(url, socket_timeout=1) as client:
            self._until(lambda: bool(client.ping()), what="Redis", watch=[processes.REDIS])
        self._say(f"Redis answers on {ports.LOOPBACK}:{port}")
        return url

    def _start_agents(self, tokens: Mapping[str, str]) -> None:
        environment = processes.agent_environment(self._own)
        redis_url = self._environment.get("TRAINYARD_AGENT_REDIS_URL") or self._environment["TRAINYARD_REDIS_URL"]
        for name, data in self._agents.items():
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
            processes.tell_addresses(data, url=self._url, redis_url=redis_url)
            token = tokens.get(name, "")
            agent = processes.agent(
                name,
                environment,
                data=data,
                url=self._url,
                token=token,
                zygote_idle_s=self._options.zygote_idle_s,
            )
            self._supervisor.start(agent)
        self._until(self._hears_of_agents, what="An agent", watch=list(self._agents))
        if names := list(self._agents):
            self._say(f"{len(names)} local agent{'s' if len(names) > 1 else ''} ready: {', '.join(names)}")

    def _hears_of_agents(self) -> bool:
        """Whether the control plane has heard of all of them since it was started now."""
        nodes = self._get("/api/v1/nodes").json()
        seen = {node["id"]: node["last_seen_at"] for node in nodes if node["state"] != "lost"}
        node_ids = map(processes.node_id, self._agents.values())
        return all(datetime.fromisoformat(seen.get(each) or LONG_AGO) >= self._began for each in node_ids)

    def _get(self, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._secrets.api_token}"}
        return httpx.get(f"{self._url}{path}", headers=headers, timeout=3, trust_env=False).raise_for_status()

    def _manage(self, *words: str) -> dict[str, dict[str, str]]:
        """Run a management command that answers with one JSON object."""
        line = [sys.executable, "manage.py", *words]
        process = self._supervisor.run_once(ManagedProcess(words[0], lambda: line, self._environment))
        while True:
            try:
                output, _ = process.communicate(timeout=TICK_S)
                break
            except subprocess.TimeoutExpired:
                if self._stopping.is_set():
                    process.terminate()
                    raise Stopped from None
        if process.returncode != 0:
            raise StartFailed(f"`manage.py {words[0]}` failed:\n{self._supervisor.log_tail(words[0])}")
        answer: dict[str, dict[str, str]] = json.loads(output)
        return answer

    def _until(self, ready: Callable[[], bool], *, what: str, watch: Sequence[str]) -> None:
        """Until `ready` says so; what does not answer raises there, and is not ready."""
        deadline = time.monotonic() + START_LIMIT_S
        while not _answers(ready):
            if self._stopping.wait(TICK_S):
                raise Stopped
            self._supervisor.tick()
            failing = [name for name in watch if self._supervisor.failures(name) >= GIVE_UP_AFTER]
            if failing or time.monotonic() > deadline:
                tails = "\n".join(f"--- {name}\n{self._supervisor.log_tail(name)}" for name in failing or watch)
                how = "keeps ending" if failing else f"did not answer within {START_LIMIT_S:.0f} s"
                raise StartFailed(f"{what} {how}.\n{tails}")


def _answers(ready: Callable[[], bool]) -> bool:
    try:
        return ready()
    except (httpx.HTTPError, RedisError, OSError):
        return False
