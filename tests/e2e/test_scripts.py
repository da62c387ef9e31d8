"""Unmodified programs through real agents: roles, metrics, the end of those who join for ever, and honest failures."""

import io
import os
import signal
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.stack import Stack, until

pytestmark = [pytest.mark.stack, pytest.mark.tf]

SCRIPTS = Path(__file__).resolve().parents[2] / "examples/scripts"


def script(name: str) -> dict[str, object]:
    absent = {"recipe": None, "epochs": None}
    return absent | {"kind": "script", "code": {"filename": name, "text": (SCRIPTS / name).read_text()}}


def test_parameter_servers_of_a_script_are_ended_when_its_chief_has_ended(stack: Stack) -> None:
    job = stack.submit(**script("parameter_server_loop.py"), strategy="parameter_server", workers=1, ps=1)
    done = stack.wait_for_job(job["id"], "succeeded", within_s=200)
    assert done["cause"] == "completed"
    assert done["metrics"]["loss"] > 0
    assert done["step"] == 60
    (loss,) = stack.get(f"/jobs/{job['id']}/series", names="loss")["loss"]
    assert loss["steps"] == [10, 20, 30, 40, 50, 60]
    replicas = stack.get(f"/jobs/{job['id']}/replicas")
    assert {replica["role"] for replica in replicas} == {"chief", "worker", "ps"}
    assert not any(psutil.pid_exists(replica["pid"]) for replica in replicas)


def test_a_script_of_tensorflow_1_loses_a_worker_and_ends_with_its_workers(stack: Stack) -> None:
    """Its worker 0 leads, which the text tells. A worker that is lost comes back alone, and meets nobody."""

    def present() -> dict[str, Any]:
        rows = stack.get(f"/jobs/{job['id']}/replicas")
        return {f"{row['role']}:{row['index']}": row for row in rows if not row["superseded"]}

    steps = {"arguments": ["--steps", "20000"]}
    job = stack.submit(**script("parameter_server_tf1.py"), strategy="parameter_server", workers=2, ps=1, **steps)
    until(lambda: stack.get(f"/jobs/{job['id']}")["step"] > 100, within_s=120, what=lambda: str(present()))
    os.kill(present()["worker:1"]["pid"], signal.SIGKILL)
    done = stack.wait_for_job(job["id"], "succeeded", within_s=300)
    assert (done["attempt"], done["spec"]["chief"]) == (1, False)
    gang = present()
    assert {name: row["cause"] for name, row in gang.items()} == {
        "worker:0": "completed",
        "worker:1": "completed",
        "ps:0": "stopped",
    }
    assert gang["worker:1"]["incarnation"] == 1


def test_a_script_that_fails_shows_its_own_error(stack: Stack) -> None:
    """Keras 3's fit has no parameter servers: the job says so in Keras' words, and nobody is left waiting."""
    job = stack.submit(
        **script("parameter_server_fit.py"), strategy="parameter_server", workers=1, ps=1, keras="keras3"
    )
    failed = stack.wait_for_job(job["id"], "failed", within_s=200)
    assert failed["cause"] == "exception"
    assert "parameter_server_fit.py, line 2" in failed["reason"]
    assert all(replica["status"] == "exited" for replica in stack.get(f"/jobs/{job['id']}/replicas"))


WRITES = """
import os, pathlib, time, trainyard
pathlib.Path("plots").mkdir()
pathlib.Path("plots/first.png").write_bytes(b"picture")
os.symlink("/etc/passwd", "passwd.txt")
pathlib.Path("large.h5").write_bytes(b"x" * 2_000_000)
pathlib.Path("notes.md").write_text("by hand")
trainyard.save("notes.md")
while True:
    time.sleep(0.1)
    pathlib.Path("table.csv").open("a").write("1,2")
"""


def test_files_of_a_script_are_had_while_it_runs_and_after_it_was_stopped(stack: Stack) -> None:
    code = {"filename": "train.py", "text": WRITES}
    job = stack.submit(recipe=None, epochs=None, kind="script", code=code, files_limit_mb=1)
    address = f"/jobs/{job['id']}"

    def names() -> set[str]:
        return {file["name"] for file in stack.get(f"{address}/artifacts")}

    until(lambda: names() >= {"plots/first.png", "notes.md"}, within_s=120, what=lambda: str(names()))
    assert stack.get(address)["status"] == "running"
    (replica,) = stack.get(f"{address}/replicas")
    assert {file["name"]: file["why"] for file in replica["files_left"]["left"]} == {
        "passwd.txt": "link",
        "large.h5": "limit",
    }
    stack.post(f"{address}/stop")
    stack.wait_for_job(job["id"], "stopped")
    until(lambda: "table.csv" in names(), within_s=60, what=lambda: str(names()))
    packed = zipfile.ZipFile(io.BytesIO(stack.rest.get(f"{address}/artifacts.zip").content))
    assert packed.read("plots/first.png") == b"picture"
    assert packed.read("notes.md") == b"by hand"
    assert set(packed.namelist()) == {"plots/first.png", "notes.md", "table.csv"}
