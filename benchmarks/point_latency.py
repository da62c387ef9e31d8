"""A point on its way: from the log call in the training process to the sockets of 100 viewers, in ms.

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
from pathlib import Path

import httpx
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

Ages = list[float]


def run() -> list[Line]:
    """p50 and p99 over all viewers and rounds."""
    ours: Ages = []
    floor: Ages = []
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as home, Stack(Path(home)) as stack:
        cookie = _sign_in(stack)
        for _ in range(ROUNDS):
            ours += asyncio.run(_ours(stack, cookie))
            floor += asyncio.run(_floor(stack))
    return [
        Line(f"point → browser, {VIEWERS} viewers, p50", "ms", quantile(ours, 0.5), quantile(floor, 0.5), "<= 35"),
        Line(f"point → browser, {VIEWERS} viewers, p99", "ms", quantile(ours, 0.99), quantile(floor, 0.99), "<= 75"),
    ]


async def _ours(stack: Stack, cookie: str) -> Ages:
    job = stack.submit(
        recipe=None, code={"filename": "paced.py", "text": PACED_RECIPE}, global_batch_size=64, epochs=40
    )
    stack.wait_for_job(job["id"], "running")
    until(lambda: "probe" in stack.get(f"/jobs/{job['id']}/series", names="probe"), within_s=30)
    address = f"{stack.url.replace('http', 'ws', 1)}/ws/jobs/{job['id']}/"
    ages = await _watch(address, {"Cookie": cookie, "Origin": stack.url}, _probe_times)
    stack.post(f"/jobs/{job['id']}/stop")
    stack.wait_for_job(job["id"], "stopped")
    return ages


async def _floor(stack: Stack) -> Ages:
    port = ports.any_free()
    url = redis_server.url(
        port=folder.remembered(stack.data, "redis_port") or 0, password=folder.read_secrets(stack.data).redis_password
    )
    line = [sys.executable, "-m", "benchmarks.bare_push", str(port), url, str(SECONDS + 30)]
    with subprocess.Popen(line, cwd=ROOT) as process:
        await asyncio.sleep(2)
        try:
            return await _watch(f"ws://127.0.0.1:{port}/", {}, json.loads)
        finally:
            process.terminate()


async def _watch(address: str, headers: dict[str, str], times_of: Callable[[str], list[float]]) -> Ages:
    """Ages in ms of all points that `VIEWERS` sockets receive within `SECONDS`, once all of them have begun to."""
    ages: Ages = []
    begun = 0
    measuring_from = float("inf")

    async def view() -> None:
        nonlocal begun, measuring_from
        async with websockets.connect(
            address, additional_headers=headers, proxy=None, max_size=None, compression=None
        ) as socket:
            await socket.recv()
            begun += 1
            if begun == VIEWERS:
                measuring_from = time.monotonic() + 1
            while time.monotonic() < measuring_from + SECONDS:
                text = await socket.recv()
                now = time.time()
                if time.monotonic() > measuring_from:
                    ages.extend((now - at) * 1e3 for at in times_of(str(text)))

    await asyncio.gather(*(view() for _ in range(VIEWERS)))
    assert ages, f"no point arrived at {address}"
    return ages


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
