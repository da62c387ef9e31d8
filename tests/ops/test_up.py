"""`manage.py up` for real: ready file, refusals, restarts, going on with the same data, and nothing left behind."""

import json
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from orchestrator.embedded.supervisor import naming
from tests.e2e.stack import Stack, until
from tests.environment import ROOT, child_environment

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("up"), nodes=1) as running:
        yield running


def up(*arguments: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "manage.py", "up", *arguments]
    return subprocess.run(
        line, cwd=ROOT, env=child_environment(), capture_output=True, text=True, timeout=60, check=False
    )


def test_everything_answers_once_the_ready_file_is_there(stack: Stack) -> None:
    assert stat.S_IMODE(stack.ready_file.stat().st_mode) == 0o600
    assert stack.url.startswith("http://127.0.0.1:")
    assert httpx.get(f"{stack.url}/readyz", trust_env=False).json()["status"] == "ok"
    (node,) = stack.get("/nodes")
    assert (node["name"], node["cluster"], node["state"]) == ("node-1", "local", "ready")
    assert node["inventory"]["tensorflow"]
    assert stack.username == "admin"
    assert stack.password in stack.said()


def test_everything_listens_on_loopback_only(stack: Stack) -> None:
    started = [psutil.Process(stack.pid_of(name)) for name in ("web", "redis", "node-1", "celery")]
    family = [each for process in started for each in (process, *process.children(recursive=True))]
    listening = [each for process in family for each in process.net_connections() if each.status == psutil.CONN_LISTEN]
    assert len(listening) >= 2
    assert {each.laddr.ip for each in listening} == {"127.0.0.1"}


def test_a_second_one_on_the_same_folder_is_refused(stack: Stack) -> None:
    second = up("--data", str(stack.data), "--port", "0", "--no-demo")
    assert second.returncode == 1
    assert f"already running on the data folder {stack.data} (process " in second.stderr
    assert stack.get("/nodes")


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused = up("--data", str(tmp_path / "data"), "--port", str(port), "--no-demo")
    assert refused.returncode == 1
    assert f"Port {port} on 127.0.0.1 is in use by" in refused.stderr
    assert not naming(tmp_path)


@pytest.mark.parametrize("words", [("--nodes", "-1"), ("--nodes", "99"), ("--port", "70000")])
def test_impossible_options_are_refused_in_words(tmp_path: Path, words: tuple[str, str]) -> None:
    refused = up("--data", str(tmp_path), *words)
    assert refused.returncode == 1
    assert f"{words[0]} takes 0 to" in refused.stderr


@pytest.mark.parametrize("name", ["web", "celery", "ingest", "sweep", "node-1", "redis"])
def test_a_killed_process_is_started_again(stack: Stack, name: str) -> None:
    before = stack.get("/nodes")[0]["last_seen_at"] if name != "web" else ""
    assert stack.kill_process(name)

    def all_is_well() -> bool:
        try:
            node = stack.rest.get("/nodes").json()[0]
        except httpx.HTTPError:
            return False
        return node["state"] == "ready" and node["last_seen_at"] > before

    until(all_is_well, within_s=40, what=lambda: stack.log(name)[-2000:])


def test_it_stops_on_sigterm_and_goes_on_with_the_same_data(stack: Stack) -> None:
    node, token, job = stack.get("/nodes")[0], stack.token, stack.submit(name="kept")
    stack.stop(signal.SIGTERM)
    assert not stack.ready_file.exists()
    stack.start()
    assert stack.token == token
    assert [each["id"] for each in stack.get("/nodes")] == [node["id"]]
    assert stack.get(f"/jobs/{job['id']}")["name"] == "kept"
    stack.wait_for_job(job["id"], "succeeded")


def test_killing_up_itself_takes_everything_along_and_the_demo_is_there_when_it_is_ready_again(tmp_path: Path) -> None:
    stack = Stack(tmp_path, nodes=1, demo=True)
    stack.start()
    (demo,) = stack.get("/jobs")["items"]
    stack.kill()
    until(lambda: not naming(stack.data), within_s=40, what=lambda: str(naming(stack.data)))
    stack.start()
    assert [job["id"] for job in stack.get("/jobs")["items"]] == [demo["id"]]
    assert json.loads(stack.ready_file.read_text())["demo"] == f"{stack.url}/jobs/{demo['id']}/"
    stack.stop()
