"""A whole Trainyard for a test: `manage.py up` as a person would start it, on a data folder and port of its own.

    with Stack(tmp_path) as stack:
        job = stack.submit(recipe="digits_mlp", strategy="one_device")
        stack.wait_for_job(job["id"], "succeeded")

Leaving the block stops it as Ctrl-C would and asserts that no process is left.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil

from orchestrator.embedded.supervisor import naming
from tests.environment import ROOT, child_environment
from tests.waiting import wait_until

START_LIMIT_S = 180.0
STOP_LIMIT_S = 60.0
TERMINAL = ("succeeded", "failed", "stopped")

# What is asked is REST, which counts its callers.
until = partial(wait_until, every_s=0.1)


class Stack(AbstractContextManager["Stack"]):
    """One installation. `home` holds the data folder, the ready file and the output of `up`; `settings` are set for
    it, by their names without `TRAINYARD_`."""

    def __init__(
        self,
        home: Path,
        *,
        nodes: int = 2,
        port: int = 0,
        demo: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._settings = {f"TRAINYARD_{name}": str(value) for name, value in (settings or {}).items()}
        self.data, self.ready_file, self.output = home / "data", home / "ready.json", home / "up.log"
        self._line = [sys.executable, "manage.py", "up", "--data", str(self.data), "--port", str(port)]
        self._line += ["--nodes", str(nodes), "--ready-file", str(self.ready_file), *([] if demo else ["--no-demo"])]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = self.username = self.password = self.token = ""
        self.rest = httpx.Client(trust_env=False)

    def __enter__(self) -> "Stack":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until everything answers."""
        self.ready_file.unlink(missing_ok=True)
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._line,
                cwd=ROOT,
                env=child_environment() | self._settings,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            until(self._is_ready, within_s=START_LIMIT_S, what=self.said)
        except BaseException:
            self.kill()
            raise
        ready = json.loads(self.ready_file.read_text())
        self.url, self.username, self.password = ready["url"], ready["username"], ready["password"]
        self.token = ready["token"]
        self.rest = httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=20,
            trust_env=False,
        )

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop it by a signal and assert that it ends well, in time, and leaves nothing behind."""
        process = self._process
        if process is None:
            return
        self._process = None
        self.rest.close()
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        try:
            code = process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"up did not end within {STOP_LIMIT_S:.0f} s:\n{self.said()}") from None
        left = [each for each in {*started, *naming(self.data)} if _lives(each)]
        described = [f"{each.pid} {' '.join(each.cmdline())}" for each in left if _lives(each)]
        for each in left:
            each.kill()
        assert not described, f"left behind: {described}\n{self.said()}"
        assert code == 0, f"up ended with {code}:\n{self.said()}"

    def kill(self) -> None:
        """Take `up` away by SIGKILL, as a test of its own or to clean up; then end whatever is left."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self.rest.close()
        self._process = None

    def said(self) -> str:
        """What `up` has printed so far."""
        return self.output.read_text(errors="replace")

    def log(self, name: str) -> str:
        """What one of its processes has written: web, celery, sweep, ingest, redis, node-1, …"""
        return (self.data / "logs" / f"{name}.log").read_text(errors="replace")

    def pid_of(self, name: str) -> int:
        """The process id of one of its processes now."""
        pid: int = json.loads((self.data / "processes.json").read_text())[name]
        return pid

    def kill_process(self, name: str) -> int:
        """Kill -9 one of its processes and wait until `up` has started it again; the new process id."""
        old = self.pid_of(name)
        os.kill(old, signal.SIGKILL)
        return until(lambda: self.pid_of(name) if self.pid_of(name) != old else 0, within_s=20, what=self.said)

    def get(self, path: str, **query: object) -> Any:
        """GET of the REST interface, such as `/jobs/1/replicas`."""
        answer = self.rest.get(path, params={name: str(value) for name, value in query.items()})
        assert answer.is_success, f"{answer.status_code} {answer.text}"
        return answer.json()

    def post(self, path: str, body: object | None = None) -> Any:
        """POST to the REST interface."""
        answer = self.rest.post(path, json=body)
        assert answer.is_success, f"{answer.status_code} {answer.text}"
        return answer.json()

    def submit(self, **request: object) -> Any:
        """Create a job on the cluster "local"; what is not said is small and quick."""
        defaults = {"name": "test", "cluster": "local", "recipe": "digits_mlp", "strategy": "one_device", "epochs": 2}
        return self.post("/jobs", defaults | request)

    def wait_for_job(self, job_id: int, *statuses: str, within_s: float = 120.0) -> Any:
        """The job once it has one of the statuses; fails at once when it ends otherwise."""

        def reached() -> Any:
            job = self.get(f"/jobs/{job_id}")
            if job["status"] in statuses:
                return job
            assert job["status"] not in TERMINAL, f"job {job_id} is {job['status']}: {job['reason']}"
            return None

        return until(reached, within_s=within_s, what=lambda: json.dumps(self.get(f"/jobs/{job_id}")))

    def _is_ready(self) -> bool:
        process = self._process
        assert process is not None
        assert process.poll() is None, f"up ended with {process.returncode}:\n{self.said()}"
        return self.ready_file.exists()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
