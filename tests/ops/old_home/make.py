"""Makes the data folder that `tests/ops/test_old_home.py` starts from: an installation with a history, killed at work.

The archive beside this file was made by the version it is named after. To make one of another version:

    git worktree add /tmp/then COMMIT && cd /tmp/then && ln -s CHECKOUT/.venv .venv
    .venv/bin/python -m tests.ops.old_home.make /tmp/home COMMIT.tar.xz

A version that has no such folder yet gets a copy of it, with its own names in the imports. With `--stop` the
installation is stopped as by Ctrl-C.

The archive holds `data/` as it was left, without logs and sockets, and `then.json`: what REST said of every job, and
what the spools and checkpoints of the running ones held when everything had ended. Some of these ended unseen, when no
agent ran any more. Nothing that a later start reads names the folder's place, so it can be unpacked anywhere. The
processes' boot id is replaced by one that no machine has: they ran before the power was cut.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import tarfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.stack import Stack, until
from worker_agent.machine.processes import boot_id
from worker_agent.protocol.codec import decode_record
from worker_agent.protocol.records import Exit, Log, Points, Record
from worker_agent.replica.spool import last_records

NODES = ("node-1", "node-2", "node-3")
NO_BOOT = "00000000-0000-0000-0000-000000000000"
PARTS = ("restarts", "events", "artifacts", "checkpoints", "series?points=20000")

PACED = """
import os
import time

import keras
import numpy as np
import tensorflow as tf

PARAMS = {"pause_ms": {"type": "int", "default": 100, "min": 0, "max": 1000, "help": "Between two steps, then"}}


class Pace(keras.callbacks.Callback):
    def __init__(self, pause_s):
        super().__init__()
        self.pause_s = pause_s

    def on_train_batch_end(self, batch, logs=None):
        if batch % 5 == 0:
            print("batch", batch, flush=True)
        if os.path.exists("READY_FILE"):
            time.sleep(self.pause_s)


def callbacks(params):
    return [Pace(params["pause_ms"] / 1000)]


def build_model(params):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def build_dataset(params, split):
    x = np.random.default_rng(0).random((320 if split == "train" else 64, 4), "float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True)))
"""
RAISES = PACED.replace("    x = np", "    raise ValueError('no such order')\n    x = np")
RAISES_LATER = PACED.replace(
    "        if os",
    "        if os.path.exists('READY_FILE.no'):\n            raise ValueError('no such order')\n        if os",
)
SCRIPT = """
import os
import time

import trainyard

for step in range(1, 41):
    trainyard.log(step, loss=1 / step)
    print("step", step, flush=True)
    if os.path.exists("READY_FILE"):
        time.sleep(0.5)
"""

TEN_STEPS_AN_EPOCH = {"global_batch_size": 32, "steps_per_execution": 1}
DIGITS = {"recipe": "digits_mlp", "params": {"units": 8}}
GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVED = {"strategy": "parameter_server", "workers": 2, "ps": 1}
NEVER_LAUNCHED = (
    {"strategy": "mirrored", "devices_per_worker": 2, "cross_device": "hierarchical_copy", "jit": True},
    {"strategy": "central_storage", "devices_per_worker": 2, "learning_rate": 0.01, "lr_scaling": "sqrt"},
    {"strategy": "parameter_server", "workers": 2, "ps": 2, "min_shard_bytes": 4096, "validation": "evaluator"},
    {"strategy": "tensor_parallel", "workers": 2, "model_parallel": 2, "time_limit_s": 600},
    {"strategy": "pipeline", "workers": 2, "micro_batches": 8, "priority": -1, "recipe": "transformer_lm"},
    {"strategy": "multi_worker_mirrored", "workers": 2, "chief": True, "communication": "ring", "sharding": "data"},
)


class Yard(Stack):
    """An installation in which jobs are made and hurt."""

    def make(self, name: str, **request: object) -> int:
        """Submit a job under this name; its number."""
        no_recipe = {} if "recipe" in request else {"recipe": None}
        no_epochs = {"epochs": None} if request.get("kind") == "script" else {}
        job = self.submit(name=name, **no_recipe, **no_epochs, **request)
        print(time.strftime("%X"), job["id"], name, flush=True)
        return int(job["id"])

    def wait_for_step(self, job: int, step: int) -> None:
        until(lambda: self.get(f"/jobs/{job}")["step"] >= step, within_s=90, what=lambda: str(self.get(f"/jobs/{job}")))

    def kill_replica(self, job: int, role: str, index: int, *, restarts: int) -> None:
        """SIGKILL, and wait until the ledger has that many lines and all are at work again."""
        rows = self.get(f"/jobs/{job}/replicas")
        row = next(each for each in rows if (each["role"], each["index"]) == (role, index) and not each["superseded"])
        os.kill(row["pid"], signal.SIGKILL)
        until(
            lambda: len(rows := self.get(f"/jobs/{job}/restarts")) == restarts and rows[-1]["running_at"],
            within_s=120,
            what=self.said,
        )

    def end(self, job: int) -> None:
        self.post(f"/jobs/{job}/stop")
        self.wait_for_job(job, "stopped")


def program(yard: Yard, text: str, filename: str = "recipe.py") -> dict[str, Any]:
    """Slow while the installation is up, so that it is killed at work; without a pause wherever it goes on."""
    return {"code": {"filename": filename, "text": text.replace("READY_FILE", str(yard.ready_file))}}


def script(yard: Yard) -> dict[str, Any]:
    return {"kind": "script", **program(yard, SCRIPT, "count.py")}


def make_history(yard: Yard) -> int:
    """Jobs that have ended in every way, and one that is paused; the number of a check on the nodes."""
    paced = program(yard, PACED) | TEN_STEPS_AN_EPOCH
    succeeded = yard.make("succeeded", **DIGITS, **GANG, global_batch_size=128, env={"WHO": "then"})
    counted = yard.make("script", **script(yard))
    failed = yard.make("failed", **program(yard, RAISES))
    yard.wait_for_job(succeeded, "succeeded")
    yard.wait_for_job(counted, "succeeded")
    until(lambda: yard.get(f"/jobs/{failed}")["status"] == "failed", within_s=60)

    restarted = yard.make("restarted", **paced, **GANG, epochs=4, checkpoint_steps=4, accumulation=2)
    yard.wait_for_step(restarted, 10)
    yard.kill_replica(restarted, "worker", 1, restarts=1)
    yard.wait_for_job(restarted, "succeeded")

    replaced = yard.make("replaced", **paced, **SERVED, epochs=50, checkpoint_steps=5)
    yard.wait_for_job(replaced, "running")
    yard.wait_for_step(replaced, 8)
    yard.kill_replica(replaced, "worker", 1, restarts=1)
    yard.kill_replica(replaced, "ps", 0, restarts=2)
    yard.end(replaced)

    paused = yard.make("paused", **paced, epochs=4, checkpoint_steps=1000)
    yard.wait_for_step(paused, 12)
    yard.post(f"/jobs/{paused}/pause")
    yard.wait_for_job(paused, "paused")

    check = int(yard.post("/preflight", {"name": "check", "cluster": "local", **paced, **GANG})["id"])
    until(lambda: yard.get(f"/preflight/{check}")["state"] == "done", within_s=60)
    return check


def make_work(yard: Yard) -> dict[str, int]:
    """What takes every device, and what waits for room: by name, the jobs that have not ended."""
    jobs = {}
    paced = program(yard, PACED) | TEN_STEPS_AN_EPOCH | {"params": {"pause_ms": 500}, "checkpoint_steps": 5}
    jobs["running"] = yard.make("running", **paced, **GANG, epochs=10)
    jobs["lost a peer"] = yard.make("lost a peer", **paced, **GANG, epochs=10)
    jobs["failed"] = yard.make("failed", **paced | program(yard, RAISES_LATER), epochs=20)
    for name in ("running", "lost a peer", "failed"):
        yard.wait_for_step(jobs[name], 12)
    jobs["tried again"] = yard.make("tried again", **program(yard, RAISES), max_restarts=3)
    until(lambda: yard.get(f"/jobs/{jobs['tried again']}/restarts"), within_s=60)
    jobs["killed"] = yard.make("killed", **script(yard))
    jobs["waiting"] = yard.make("waiting", **DIGITS, epochs=1, checkpoints_kept=0, seed=7)
    for each in NEVER_LAUNCHED:
        yard.end(yard.make(f"never launched, {each['strategy']}", **DIGITS | each | {"params": {}}))
    yard.wait_for_step(jobs["killed"], 4)
    return jobs


def told(yard: Yard, check: int) -> dict[str, Any]:
    """What REST says, by path."""
    answers = {f"/preflight/{check}": yard.get(f"/preflight/{check}")}
    for job in yard.rest.get("/jobs", params={"limit": 100}).json()["items"]:
        path = f"/jobs/{job['id']}"
        launches = [f"{path}/replicas?attempt={attempt}" for attempt in range(1, job["attempt"] + 1)]
        for each in (path, *(f"{path}/{part}" for part in PARTS), *launches):
            answers[each] = yard.rest.get(each).raise_for_status().json()
        for launch in launches:
            for row in answers[launch]:
                name = f"{row['role']}:{row['index']}.{row['incarnation']}"
                log = f"{path}/logs?replica={name}&attempt={row['attempt']}"
                answers[log] = yard.rest.get(log).raise_for_status().json()
    return answers


def cut_power(yard: Yard, jobs: dict[str, int]) -> None:
    """Kill everything. Before, nobody stores what is reported for a moment; then nobody ships what is said, and three
    jobs end."""
    victims = {name: yard.get(f"/jobs/{jobs[name]}/replicas") for name in ("lost a peer", "failed", "killed")}
    spools = [spool_of(yard.data, row) for rows in victims.values() for row in rows]
    up = psutil.Process(int((yard.data / "up.lock").read_text()))
    everybody = [up, *up.children(recursive=True)]
    try:
        up.suspend()
        psutil.Process(yard.pid_of("ingest")).suspend()
        time.sleep(1.2)
        for name in NODES:
            os.kill(yard.pid_of(name), signal.SIGKILL)
        Path(f"{yard.ready_file}.no").touch()
        for name in ("lost a peer", "killed"):
            os.kill(victims[name][-1]["pid"], signal.SIGKILL)
        until(lambda: all(any(isinstance(each, Exit) for each in said_in(spool)) for spool in spools), within_s=20)
    finally:
        for process in {*everybody, *up.children(recursive=True)}:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        yard.kill()
        yard.ready_file.unlink()


def found_on_disk(data: Path, job: int, answers: dict[str, Any]) -> dict[str, Any]:
    """What the processes of a running job had said and saved: points, output, the newest complete checkpoint."""
    said = {}
    for row in answers[f"/jobs/{job}/replicas?attempt=1"]:
        records = said_in(spool_of(data, row))
        losses = [each for each in records if isinstance(each, Points) and "loss" in each.names]
        said[f"{row['role']}:{row['index']}"] = {
            "steps": [step for each in losses for step in each.steps],
            "log": "".join(each.text for each in records if isinstance(each, Log)),
        }
    saved = data.glob(f"agents/*/checkpoints/{job}-1/step-*/complete.json")
    return {"said": said, "saved": max((json.loads(each.read_text())["step"] for each in saved), default=None)}


def spool_of(data: Path, row: Any) -> Path:
    return data / "agents" / row["node"] / "replicas" / f"{row['id']}-{row['attempt']}" / "spool"


def said_in(spool: Path) -> list[Record]:
    return [decode_record(each) for stream in ("trainer", "shim") for each in last_records(spool / stream)]


def pack(home: Path, archive: Path) -> None:
    """The data folder and `then.json`, less what no later start reads."""
    data = home / "data"
    for logs in (data / "logs", *data.glob("agents/*/logs")):
        shutil.rmtree(logs)
    for file in (*data.glob("agents/*/lease"), *data.glob("agents/*/replicas/*/shim.json")):
        file.write_text(file.read_text().replace(boot_id(), NO_BOOT))
    (data / "trainyard.sqlite3-shm").unlink(missing_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        tar.add(home / "then.json", "then.json")
        tar.add(data, "data", filter=lambda each: each if each.isfile() or each.isdir() else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path, help="where the installation is made")
    parser.add_argument("archive", type=Path)
    parser.add_argument("--stop", action="store_true", help="stop it in order instead of cutting the power")
    given = parser.parse_args()
    given.home.mkdir()
    with Yard(given.home, nodes=len(NODES)) as yard:
        check = make_history(yard)
        jobs = make_work(yard)
        answers = told(yard, check)
        if not given.stop:
            cut_power(yard, jobs)
    statuses = {name: answers[f"/jobs/{job}"]["status"] for name, job in jobs.items()}
    at_work = [name for name, status in statuses.items() if status == "running"]
    assert at_work == ["running", "lost a peer", "failed", "killed"], statuses
    assert statuses["waiting"] == statuses["tried again"] == "submitted", statuses
    disk = {name: found_on_disk(yard.data, jobs[name], answers) for name in at_work}
    (given.home / "then.json").write_text(json.dumps({"rest": answers, "open": jobs, "disk": disk}, indent=1))
    pack(given.home, given.archive)


if __name__ == "__main__":
    main()
