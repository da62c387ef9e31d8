"""The control plane's own log, as its programs write it."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from orchestrator.embedded import ports
from tests.environment import ROOT, child_environment
from tests.waiting import wait_until


@pytest.mark.stack
def test_every_line_of_the_web_server_is_one_json_object_and_requests_are_none(tmp_path: Path) -> None:
    port, log = str(ports.any_free()), tmp_path / "log"
    settings = {
        "TRAINYARD_SECRET_KEY": "only-for-tests",
        "TRAINYARD_DATA_DIR": str(tmp_path),
        "TRAINYARD_LOG_JSON": "true",
    }
    line = [sys.executable, "-m", "uvicorn", "dashboard.config.asgi:application", "--port", port, "--no-access-log"]
    with log.open("wb") as file:
        web = subprocess.Popen(line, cwd=ROOT, env=child_environment() | settings, stderr=file)
    wait_until(lambda: "running on" in log.read_text())
    assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).is_success
    web.terminate()
    web.wait()
    lines = [json.loads(each) for each in log.read_text().splitlines()]
    assert lines[-1]["event"].startswith("Finished server process")
    assert "uvicorn.access" not in {each["logger"] for each in lines}
