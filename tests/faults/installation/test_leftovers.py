"""What a killed suite has left is taken down, and nothing of one that still runs."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.faults.installation import leftovers


def a_pid_of_nobody() -> int:
    done = subprocess.Popen([sys.executable, "-S", "-c", ""])
    done.wait()
    return done.pid


def test_a_suite_that_is_gone_is_taken_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(leftovers, "NAMESPACES", tmp_path / "netns")
    gone = [tmp_path / f"{prefix}{a_pid_of_nobody()}-x" for prefix in ("trainyard-faults-", "trainyard-tests-")]
    kept = [tmp_path / f"trainyard-faults-{os.getpid()}-x", tmp_path / "trainyard-faults-notes"]
    for folder in (*gone, *kept):
        (folder / "disks").mkdir(parents=True)
    line = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    orphan, other = (subprocess.Popen([*line, f"{folder}/file"]) for folder in (gone[0], kept[0]))
    try:
        assert leftovers.take_down() == [str(folder) for folder in gone]
        assert not psutil.pid_exists(orphan.pid)
        assert other.poll() is None
    finally:
        for process in (orphan, other):
            process.kill()
            process.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in kept)
