"""The data folder: one `up` at a time, secrets made once and private."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.embedded import folder
from tests.environment import ROOT


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_second_lock_is_refused_and_names_the_holder(tmp_path: Path) -> None:
    held = folder.lock(tmp_path / "data")
    program = (
        "from pathlib import Path; import sys; from orchestrator.embedded import folder; folder.lock(Path(sys.argv[1]))"
    )
    second = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert second.returncode != 0
    assert f"already running on the data folder {tmp_path / 'data'} (process {os.getpid()})" in second.stderr
    held.close()
    folder.lock(tmp_path / "data").close()


def test_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    first = folder.first_run_secrets(tmp_path)
    assert folder.first_run_secrets(tmp_path) == first
    assert folder.read_secrets(tmp_path) == first
    assert mode_of(tmp_path / "secrets.json") == 0o600
    assert len({first.secret_key, first.redis_password, first.admin_password, first.api_token}) == 4
    assert first.api_token.startswith("ty_")


def test_numbers_are_remembered_side_by_side(tmp_path: Path) -> None:
    assert folder.remembered(tmp_path, "redis_port") is None
    folder.remember(tmp_path, "redis_port", 40001)
    folder.remember(tmp_path, "other", 2)
    assert folder.remembered(tmp_path, "redis_port") == 40001


def test_a_private_file_is_replaced_whole_and_stays_private(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("old")
    path.chmod(0o644)
    folder.write_private(path, {"url": "http://127.0.0.1:8000"})
    assert mode_of(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["secrets.json", "up.lock"])
def test_the_folder_itself_is_private(tmp_path: Path, name: str) -> None:
    held = folder.lock(tmp_path / "data")
    folder.first_run_secrets(tmp_path / "data")
    assert mode_of(tmp_path / "data") == 0o700
    assert (tmp_path / "data" / name).exists()
    held.close()
