"""The way up beside its floor: CPU of ingest for live points and for heartbeats. Started by `reports.py`; prints JSON.

`python -m benchmarks.bare.reports [SHORTER]`: with 5, a fifth of ticks and agents. Sending does not count, only what
the one ingest process does. With `TRAINYARD_TEST_DATABASE=postgres` it is PostgreSQL's; the CPU of the database itself
counts under SQLite, which runs in this process.
"""

import atexit
import json
import random
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
import numpy as np
from redis import Redis, RedisError

from tests.environment import HOME, prepare

prepare()

from django.conf import settings  # noqa: E402 - Django reads its settings first
from django.core.management import call_command  # noqa: E402
from django.test import override_settings  # noqa: E402

from orchestrator.embedded import redis_server  # noqa: E402
from orchestrator.ingest import Ingest  # noqa: E402
from orchestrator.models import Attempt, Cluster, Node, Replica  # noqa: E402
from tests.factories import make_cluster, make_inventory, make_job, make_node, make_replica, make_user  # noqa: E402
from tests.waiting import wait_until as until  # noqa: E402
from worker_agent.protocol.codec import encode, plain  # noqa: E402
from worker_agent.protocol.envelope import read_envelope, seal  # noqa: E402
from worker_agent.protocol.records import Points, Progress  # noqa: E402
from worker_agent.protocol.reports import REPORTS_KEY, GpuSample, Heartbeat, Records, Sample  # noqa: E402
from worker_agent.protocol.states import JobStatus  # noqa: E402

PROCESSES, NAMES = 50, ["loss", "accuracy", "learning_rate", "grad_norm"]
AGENTS, GPUS = 1000, 8
TICKS = 280
BEATS = 70  # more than a minute: what happens once a minute happens in it


def main(redis: Redis, shorter: int) -> None:
    """Figures of live points, then of agents without and with GPUs."""
    call_command("migrate", verbosity=0)
    cluster = make_cluster("local")
    figures = {"points": _points(redis, cluster, TICKS // shorter)}
    figures |= {
        f"beats_{gpus}": _beats(redis, make_fleet(cluster, AGENTS // shorter, gpus), gpus) for gpus in (0, GPUS)
    }
    print(json.dumps(figures))


def _points(redis: Redis, cluster: Cluster, ticks: int) -> dict[str, float]:
    """CPU s per million scalars, where every process flushes one step at a time."""
    node, owner, ingest = make_node(cluster), make_user(), Ingest(redis)
    jobs = [make_job(owner=owner, cluster=cluster, status=JobStatus.RUNNING, attempt=1) for _ in range(PROCESSES)]
    Attempt.objects.update(running_at=datetime.now(UTC))
    replicas = [make_replica(job, node=node) for job in jobs]
    floor = _Floor(redis)
    ours_s = floor_s = 0.0
    slowest: list[float] = []
    for tick in range(ticks):
        for replica in replicas:
            redis.xadd(REPORTS_KEY, {"e": _flush(node, replica, tick)})
        spent = _cpu(lambda: ingest.step(datetime.now(UTC)))
        if tick >= 10:
            ours_s += spent
            slowest.append(spent)
            floor_s += floor.tick(tick)
    scalars = (ticks - 10) * PROCESSES * len(NAMES)
    return {"ours": ours_s / scalars * 1e6, "floor": floor_s / scalars * 1e6, "longest_s": max(slowest)}


def _flush(node: Node, replica: Replica, tick: int) -> bytes:
    now = time.time()
    said = [
        Points(names=NAMES, steps=[tick], times=[now], values=[[random.random()] for _ in NAMES]),
        Progress(at=now, step=tick, total_steps=10**9, epoch=1, epochs=5),
    ]
    start = 200 * tick
    report = Records(
        node_id=node.pk,
        replica_id=replica.pk,
        attempt=replica.attempt,
        stream="trainer",
        start=start,
        end=start + 200,
        offsets=[start + 100, start + 200],
        records=[encode(record) for record in said],
    )
    return seal(encode(report), node_id=node.pk, key=bytes(node.key), expires_at=now + 600)


class _Floor:
    """The least: entries through the same Redis into a table, a row for each scalar's run, one commit a tick."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._database = sqlite3.connect(HOME / "floor.sqlite3", isolation_level=None)
        for line in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL"):
            self._database.execute(line)
        self._database.execute("CREATE TABLE floor (run INT, name INT, step INT, count INT, data BLOB)")

    def tick(self, number: int) -> float:
        entry = msgspec.msgpack.encode(([number], [time.time()], [[random.random()] for _ in NAMES]))
        for _ in range(PROCESSES):
            self._redis.xadd("floor", {"d": entry})
        return _cpu(self._store)

    def _store(self) -> None:
        answer = self._redis.xread({"floor": "0"}, count=PROCESSES)
        rows = []
        for place, (_, fields) in enumerate(answer[0][1]):
            steps, times, values = msgspec.msgpack.decode(fields[b"d"])
            shared = np.array(steps, "<i8").tobytes() + np.array(times).tobytes()
            rows += [
                (place, name, steps[0], 1, shared + np.array(column).tobytes()) for name, column in enumerate(values)
            ]
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO floor VALUES (?, ?, ?, ?, ?)", rows)
        self._database.execute("COMMIT")
        self._redis.xdel("floor", *(entry_id for entry_id, _ in answer[0][1]))


def _beats(redis: Redis, nodes: Sequence[Node], gpus: int) -> dict[str, float]:
    """CPU µs a beat of many agents; the floor takes the same entries and writes one row of each node."""
    ingest, floor = Ingest(redis), FloorOfBeats(redis)
    spent: list[float] = []
    bare: list[float] = []
    longest = 0.0
    for number in range(BEATS):
        at = time.time() + number  # a minute passes quickly here
        for node in nodes:
            redis.xadd(REPORTS_KEY, {"e": beat_of(node, at, gpus)})
        took = 0.0
        while redis.xlen(REPORTS_KEY):
            step = _cpu(partial(ingest.step, datetime.fromtimestamp(at, UTC)))
            took, longest = took + step, max(longest, step)
        if number:
            spent.append(took)
            bare.append(floor.tick([beat_of(node, at, gpus) for node in nodes]))
    Node.objects.all().delete()
    return {
        "ours": sum(spent) / len(spent) / len(nodes) * 1e6,
        "floor": sum(bare) / len(bare) / len(nodes) * 1e6,
        "longest_s": longest,
    }


def make_fleet(cluster: Cluster, agents: int, gpus: int) -> list[Node]:
    """So many nodes, with so many GPUs each."""
    inventory = plain(make_inventory(slots=max(gpus, 1), kind="gpu" if gpus else "cpu"))
    columns = {"cluster": cluster, "inventory": inventory, "last_seen_at": datetime.now(UTC)}
    return Node.objects.bulk_create(
        Node(
            name=f"g{gpus}-{number}",
            address=f"10.{gpus}.{number // 250}.{number % 250}",
            key=secrets.token_bytes(32),
            **columns,
        )
        for number in range(agents)
    )


def beat_of(node: Node, at: float, gpus: int) -> bytes:
    """A sealed heartbeat, as an agent sends it."""
    load = [
        GpuSample(index=index, utilisation=50.0, memory_bytes=10**9, temperature=60.0, power_w=random.random())
        for index in range(gpus)
    ]
    sample = Sample(
        at=at,
        cpu_percent=random.random() * 100,
        memory_used_bytes=10**9,
        memory_total_bytes=10**10,
        network_sent_bps=1e5,
        network_received_bps=1e5,
        gpus=load,
    )
    beat = encode(Heartbeat(node_id=node.pk, sample=sample, replicas=[]))
    return seal(beat, node_id=node.pk, key=bytes(node.key), expires_at=at + 600)


class FloorOfBeats:
    """The least: entries through the same Redis, and when each node was heard of, in one statement."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._database = sqlite3.connect(HOME / "floor.sqlite3", isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS heard (node TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID")

    def tick(self, beats: list[bytes]) -> float:
        """CPU seconds for these."""
        for beat in beats:
            self._redis.xadd("floor", {"d": beat})
        return _cpu(lambda: self._store(len(beats)))

    def _store(self, count: int) -> None:
        answer = self._redis.xread({"floor": "0"}, count=count)
        rows = [(read_envelope(fields[b"d"]).node_id, fields[b"d"]) for _, fields in answer[0][1]]
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO heard VALUES (?, ?)", rows)
        self._database.execute("COMMIT")
        self._redis.xdel("floor", *(entry_id for entry_id, _ in answer[0][1]))


def _cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def private_redis() -> tuple[Redis, str]:
    """A server of our own, ended with this process, and its address."""
    socket = HOME / "redis.sock"
    line = [
        str(redis_server.find_server()),
        "--port",
        "0",
        "--unixsocket",
        str(socket),
        "--save",
        "",
        "--dir",
        str(HOME),
    ]
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    atexit.register(server.wait)
    atexit.register(server.terminate)
    redis = Redis(unix_socket_path=str(socket))
    until(lambda: _answers(redis), within_s=10)
    return redis, f"unix://{socket}"


def _answers(redis: Redis) -> bool:
    try:
        return bool(redis.ping())
    except RedisError:
        return False


if __name__ == "__main__":
    private, url = private_redis()
    layer = settings.CHANNEL_LAYERS["default"] | {"CONFIG": {"hosts": [url]}}
    with override_settings(REDIS_URL=url, CHANNEL_LAYERS={"default": layer}):
        main(private, int(sys.argv[1]) if len(sys.argv) > 1 else 1)
