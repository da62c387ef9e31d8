"""The agent's own files (identity, lock, socket places), what programs get of its environment, what it finds here."""

from pathlib import Path

import pytest

from worker_agent.daemon.inventory import tpu_chips
from worker_agent.daemon.settings import (
    DataFolderError,
    held,
    program_environment,
    read_identity,
    remove_socket_folder,
    socket_path,
)


def test_secrets_do_not_reach_the_programs_it_starts() -> None:
    found = program_environment({"TRAINYARD_SECRET_KEY": "canary", "DJANGO_SETTINGS_MODULE": "x", "PATH": "/bin"})
    assert found["PATH"] == "/bin"
    assert "canary" not in found.values()
    assert "DJANGO_SETTINGS_MODULE" not in found
    assert (Path(found["PYTHONPATH"]) / "worker_agent").is_dir()


def test_a_data_folder_serves_one_agent_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path / "data"), pytest.raises(DataFolderError, match="another agent"), held(tmp_path / "data"):
        pass
    with held(tmp_path / "data"):
        assert read_identity(tmp_path / "data") is None


def test_a_damaged_identity_and_an_impossible_folder_are_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text("{")
    with pytest.raises(DataFolderError, match="is damaged"):
        read_identity(tmp_path)
    with pytest.raises(DataFolderError, match="cannot be used"), held(tmp_path / "agent.json"):
        pass


def test_sockets_fit_into_the_limit_of_their_names(tmp_path: Path) -> None:
    assert socket_path(Path("/data"), "notify.sock") == "/data/notify.sock"
    deep = tmp_path / ("deep" * 30)
    place = socket_path(deep, "notify.sock")
    assert len(place) < 108
    assert place == socket_path(deep, "notify.sock")
    assert Path(place).parent.stat().st_mode & 0o777 == 0o700
    remove_socket_folder(deep)
    assert not Path(place).parent.exists()
    remove_socket_folder(deep)


def test_tpu_chips_are_counted_on_the_pci_bus(tmp_path: Path) -> None:
    devices = {
        "0": ("0x1ae0", "0x0063"),
        "1": ("0x1ae0", "0x0063"),
        "nic": ("0x1ae0", "0x0042"),
        "gpu": ("0x10de", "0x0063"),
    }
    for name, (vendor, device) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "device").write_text(f"{device}\n")
    (tmp_path / "odd").mkdir()
    assert tpu_chips(tmp_path) == 2
    assert tpu_chips(tmp_path / "none") == 0
