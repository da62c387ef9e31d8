"""A fleet of agents that only beat, against the real loop of ingest. Started by `reports.py`; prints JSON.

`python -m benchmarks.bare.fleet AGENTS GPUS SECONDS`. CPU is that of the process of ingest without its start; that of
the database counts under SQLite, which runs in it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil
from django.core.management import call_command
from redis import Redis

from benchmarks.bare import reports  # it prepares the environment
from orchestrator.models import Node
from tests.environment import ROOT
from tests.factories import make_cluster
from tests.waiting import wait_until as until
from worker_agent.protocol.reports import REPORTS_KEY

WARM_UP_S = 3.0
SENT_AT_ONCE = 500
FLOOR_ROUNDS = 5
# `manage.py ingest`, and at its end the CPU of its longest step.
INGEST = """
import time
import django
django.setup()
from django.core.management import call_command
from orchestrator.ingest import Ingest

step, spent = Ingest.step, [0.0]

def timed(*args, **named):
    begun = time.process_time()
    found = step(*args, **named)
    spent.append(time.process_time() - begun)
    return found

Ingest.step = timed
call_command("ingest")
print(max(spent))
"""


class Moment:
    """How much CPU ingest had used at a time, and how many beats were stored of those sent."""

    def __init__(self, ingest: psutil.Process, redis: Redis, sent: int) -> None:
        cpu = ingest.cpu_times()
        self.at, self.cpu_s, self.stored = time.monotonic(), cpu.user + cpu.system, sent - int(redis.xlen(REPORTS_KEY))


def main(redis: Redis, url: str, *, agents: int, gpus: int, seconds: float) -> None:
    """Figures of one fleet."""
    call_command("migrate", verbosity=0)
    nodes = reports.make_fleet(make_cluster("local"), agents, gpus)
    environment = os.environ | {"TRAINYARD_REDIS_URL": url}
    line = [sys.executable, "-c", INGEST]
    with subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        redis.xadd(REPORTS_KEY, {"e": reports.beat_of(nodes[0], time.time(), gpus)})
        until(lambda: not redis.xlen(REPORTS_KEY))
        first, last = _beating(redis, nodes, gpus, seconds, psutil.Process(process.pid))
        process.terminate()
        longest_s = float(process.communicate()[0].splitlines()[-1])
    stored, cpu_s, took_s = last.stored - first.stored, last.cpu_s - first.cpu_s, last.at - first.at
    floor = reports.FloorOfBeats(redis)
    bare = [
        floor.tick([reports.beat_of(node, time.time(), gpus) for node in nodes]) / agents for _ in range(FLOOR_ROUNDS)
    ]
    figures = {
        "ours_us": cpu_s / stored * 1e6,
        "floor_us": sum(bare) / len(bare) * 1e6,
        "cores": cpu_s / took_s,
        "stored_per_s": stored / took_s,
        "longest_s": longest_s,
    }
    print(json.dumps(figures))


def _beating(
    redis: Redis, nodes: Sequence[Node], gpus: int, seconds: float, ingest: psutil.Process
) -> tuple[Moment, Moment]:
    """All beat once a second, one after the other, for so long; the moments between which it counts."""
    sent, begun, first = 0, time.monotonic(), None
    while (passed := time.monotonic() - begun) < WARM_UP_S + seconds:
        due = min(int(passed * len(nodes)), sent + SENT_AT_ONCE)
        with redis.pipeline(transaction=False) as pipe:
            for number in range(sent, due):
                beat = reports.beat_of(nodes[number % len(nodes)], time.time(), gpus)
                pipe.xadd(REPORTS_KEY, {"e": beat})
            pipe.execute()
        if due - sent < SENT_AT_ONCE:
            time.sleep(0.005)
        sent = due
        if first is None and passed >= WARM_UP_S:
            first = Moment(ingest, redis, sent)
    assert first is not None
    return first, Moment(ingest, redis, sent)


if __name__ == "__main__":
    agents, gpus, seconds = map(int, sys.argv[1:])
    server, url = reports.private_redis()
    main(server, url, agents=agents, gpus=gpus, seconds=seconds)
