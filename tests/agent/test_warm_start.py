"""Warm and cold starts of the real training program, through the whole agent."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.plans import make_launch, make_spec
from tests.agent.stack import AgentProcess, ControlPlane
from tests.waiting import wait_until
from worker_agent.daemon.settings import write_identity
from worker_agent.protocol.commands import Launch, Probe
from worker_agent.protocol.job.job_spec import CodeRef
from worker_agent.protocol.records import Started
from worker_agent.protocol.states import Cause, DeviceKind

pytestmark = [pytest.mark.stack, pytest.mark.tf]

RECIPE = '''
"""A line through four points."""
import keras
import tensorflow as tf

TITLE, DESCRIPTION, PARAMS = "Line", "A line.", {}


def build_model(params):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model


def build_dataset(params, split):
    return tf.data.Dataset.from_tensor_slices(([[0.0], [1.0], [2.0], [3.0]], [[1.0], [3.0], [5.0], [7.0]]))
'''


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path / "control")
    yield plane
    plane.close()


def launch_of(plane: ControlPlane, replica_id: int) -> Launch:
    code = CodeRef(sha256=plane.add_code(RECIPE.encode()), entry="recipe.py")
    spec = make_spec(code=code, epochs=2, global_batch_size=4)
    return make_launch(command_id=plane.next_command(), replica_id=replica_id, spec=spec)


def probe_of(plane: ControlPlane) -> Probe:
    """Build what is launched afterwards, as before a first launch."""
    return Probe(
        command_id=plane.next_command(),
        preflight_id=5,
        key="",
        node="node-1",
        own=[],
        others=[],
        devices=[0],
        device_kind=DeviceKind.CPU,
        spec=launch_of(plane, 0).spec,
        builds=True,
        trains=False,
    )


@pytest.mark.parametrize("option", ["--zygote", "--no-zygote"])
def test_a_recipe_trains_and_leaves_its_model(plane: ControlPlane, tmp_path: Path, option: str) -> None:
    data = tmp_path / "agent"
    data.mkdir()
    write_identity(data, plane.identity())
    agent = AgentProcess(data, option, "--end-replicas-on-exit")
    try:
        if option == "--zygote":
            wait_until(lambda: (data / "zygote-keras3.sock").exists(), within_s=120)
            plane.send(probe_of(plane))
            wait_until(lambda: plane.probed, within_s=60)
            (report,) = plane.probed
            assert (report.findings, report.facts["Rows"]) == ([], "4")
        began = time.monotonic()
        plane.send(launch_of(plane, 7))
        end = plane.wait_for_exit(7, timeout_s=120)
        print(f"{option}: launch to exit {time.monotonic() - began:.2f} s")
        assert (end.cause, end.message) == (Cause.COMPLETED, "It ran to its end."), plane.text(7)
        wait_until(lambda: plane.is_complete(7))
        assert plane.steps(7)
        started = next(record for record in plane.records(7) if isinstance(record, Started))
        assert started.warm is (option == "--zygote")
        wait_until(lambda: any("model.keras" in path for path in plane.artifacts))
    finally:
        assert agent.terminate() == 0
    assert not (data / "zygote-keras3.sock").exists()


def test_what_was_let_go_comes_back_for_the_next_launch(plane: ControlPlane, tmp_path: Path) -> None:
    data = tmp_path / "agent"
    data.mkdir()
    write_identity(data, plane.identity())
    agent = AgentProcess(data, "--zygote-idle", "1", "--end-replicas-on-exit")
    door = data / "zygote-keras3.sock"
    try:
        for replica_id in (7, 8):
            wait_until(door.exists, within_s=120) if replica_id == 7 else None
            wait_until(lambda: not door.exists(), within_s=60)
            began = time.monotonic()
            plane.send(launch_of(plane, replica_id))
            plane.wait_for_exit(replica_id, timeout_s=120)
            print(f"let go before: launch to exit {time.monotonic() - began:.2f} s")
            started = next(record for record in plane.records(replica_id) if isinstance(record, Started))
            assert started.warm
    finally:
        assert agent.terminate() == 0
