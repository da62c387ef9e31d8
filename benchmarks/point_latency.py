"""A point on its way: from the log call in the training process to the sockets of 100 viewers, in ms; and what handing
one message to one viewer costs the web server, in µs of CPU.

Ours is the whole path of a running job: emitter, spool, shipper, stream, ingest with its transaction, Channels, web
server. The floor is the least that has the same 50 ms flush: a process that publishes what has gathered to Redis, and
one asyncio server that forwards it to its sockets; nothing is stored. Both log 20 points a second for some seconds, and
rounds alternate. A point's age is read at arrival against the time that travels in it.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import websockets

from benchmarks.measure import Line, quantile
from orchestrator.embedded import folder, ports, redis_server
from tests.e2e.stack import Stack, until
from tests.environment import ROOT

VIEWERS = 100
ROUNDS = 3
SECONDS = 8.0

PACED_RECIPE = """
import time

import keras
import numpy as np
import tensorflow as tf

from trainyard import log

PARAMS = {}


def build_model(params):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def build_dataset(params, split):
    return tf.data.Dataset.from_tensor_slices((np.zeros((640, 4), "float32"), np.zeros((640, 1), "float32")))


class Paced(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        log(batch, probe=time.time())
        time.sleep(0.05)


def callbacks(params):
    return [Paced()]
"""


@dataclass
class Seen:
    """What the viewers saw: the age of each point at each of them (ms), messages, and CPU seconds of their server."""

    ages: list[float] = field(default_factory=list)
    messages: int = 0
    cpu_s: float = 0.0

    def __iadd__(self, other: "Seen") -> "Seen":
        self.ages += other.ages
        self.messages += other.messages
        self.cpu_s += other.cpu_s
        return self

    def cpu_us(self) -> float:
        """CPU of the server per message and viewer."""
        return self.cpu_s / self.messages * 1e6


def run(rounds: int = ROUNDS) -> list[Line]:
    """p50 and p99 over all viewers and rounds, and the web server's CPU per delivery."""
    ours, floor = Seen(), Seen()
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as home, Stack(Path(home)) as stack:
        cookie = _sign_in(stack)
        for _ in range(rounds):
            ours += asyncio.run(_ours(stack, cookie))
            floor += asyncio.run(_floor(stack))
    what = f"point → browser, {VIEWERS} viewers"
    return [
        Line(f"{what}, p50", "ms", quantile(ours.ages, 0.5), quantile(floor.ages, 0.5), "<= 30"),
        Line(f"{what}, p99", "ms", quantile(ours.ages, 0.99), quantile(floor.ages, 0.99), "<= 80"),
        Line("web server, CPU per message and viewer", "µs", ours.cpu_us(), floor.cpu_us(), "<= 30"),
    ]


async def _ours(stack: Stack, cookie: str) -> Seen:
    # No checkpoints: their uploads, too, are work of the web server.
    job = stack.submit(
        recipe=None,
        code={"filename": "paced.py", "text": PACED_RECIPE},
        global_batch_size=64,
        epochs=40,
        checkpoints_kept=0,
    )
    stack.wait_for_job(job["id"], "running")
    until(lambda: "probe" in stack.get(f"/jobs/{job['id']}/series", names="probe"), within_s=30)
    address = f"{stack.url.replace('http', 'ws', 1)}/ws/jobs/{job['id']}/"
    seen = await _watch(address, {"Cookie": cookie, "Origin": stack.url}, _probe_times, server=stack.pid_of("web"))
    stack.post(f"/jobs/{job['id']}/stop")
    stack.wait_for_job(job["id"], "stopped")
    return seen


async def _floor(stack: Stack) -> Seen:
    port = ports.any_free()
    url = redis_server.url(
        port=folder.remembered(stack.data, "redis_port") or 0, password=folder.read_secrets(stack.data).redis_password
    )
    line = [sys.executable, "-m", "benchmarks.bare.push", str(port), url, str(SECONDS + 30)]
    with subprocess.Popen(line, cwd=ROOT) as process:
        await asyncio.sleep(2)
        try:
            return await _watch(f"ws://127.0.0.1:{port}/", {}, json.loads, server=process.pid)
        finally:
            process.terminate()


async def _watch(address: str, headers: dict[str, str], times_of: Callable[[str], list[float]], *, server: int) -> Seen:
    """What `VIEWERS` sockets receive from the process `server` within `SECONDS`, once all of them have begun to."""
    begun = asyncio.Barrier(VIEWERS + 1)
    seen = Seen()
    measuring = over = False

    async def view() -> None:
        async with websockets.connect(
            address, additional_headers=headers, proxy=None, max_size=None, compression=None
        ) as socket:
            await socket.recv()
            joined = asyncio.create_task(begun.wait())
            while not over:
                text = await socket.recv()
                now = time.time()
                if measuring:
                    seen.messages += 1
                    seen.ages += [(now - at) * 1e3 for at in times_of(str(text))]
            await joined

    viewers = asyncio.gather(*(view() for _ in range(VIEWERS)))
    await begun.wait()
    await asyncio.sleep(1)
    before, measuring = _cpu_s(server), True
    await asyncio.sleep(SECONDS)
    seen.cpu_s, over = _cpu_s(server) - before, True
    await viewers
    assert seen.ages, f"no point arrived at {address}"
    return seen


def _cpu_s(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


def _probe_times(text: str) -> list[float]:
    message = json.loads(text)
    if message["type"] != "events":
        return []
    points = [event["series"] for event in message["events"] if event["kind"] == "points"]
    return [at for series in points if "probe" in series for at in series["probe"]["times"]]


def _sign_in(stack: Stack) -> str:
    """The session cookie of the administrator."""
    with httpx.Client(base_url=stack.url, trust_env=False, follow_redirects=True) as client:
        client.get("/sign-in/")
        form = {
            "username": stack.username,
            "password": stack.password,
            "csrfmiddlewaretoken": client.cookies["csrftoken"],
        }
        client.post("/sign-in/", data=form, headers={"Referer": stack.url}).raise_for_status()
        return f"sessionid={client.cookies['sessionid']}"
