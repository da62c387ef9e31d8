"""What a zygote has to stay for its children to live: a process of one thread."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.gang import RECIPES, Zygote, gang
from worker_agent.protocol.states import Cause, Strategy

pytestmark = pytest.mark.tf


def threads(zygote: Zygote) -> list[str]:
    """The names of its threads."""
    return [(task / "comm").read_text().strip() for task in Path(f"/proc/{zygote._process.pid}/task").iterdir()]


def test_a_zygote_whose_agent_is_gone_leaves(tmp_path: Path) -> None:
    """Also one that was gone before the zygote had imported everything: it knows the agent's pid from its arguments."""
    program = "import sys, pathlib; from worker_agent.trainer import zygote; "
    program += "zygote.serve(pathlib.Path(sys.argv[1]), parent=1 << 22)"
    door = tmp_path / "door"
    assert subprocess.run([sys.executable, "-c", program, str(door)], timeout=60, check=False).returncode == 0
    assert not door.exists()


def test_a_zygote_of_no_use_leaves_but_not_while_its_shims_run(tmp_path: Path) -> None:
    program = "import os, sys, time, pathlib; from worker_agent.trainer import zygote; began = time.monotonic(); "
    program += "os.fork() or (time.sleep(2), os._exit(0)); "
    program += "zygote.serve(pathlib.Path(sys.argv[1]), parent=os.getppid(), idle_s=0.1); "
    program += "print(time.monotonic() - began)"
    door = tmp_path / "door"
    line = [sys.executable, "-c", program, str(door)]
    ended = subprocess.run(line, timeout=60, check=True, capture_output=True, text=True)
    assert float(ended.stdout) >= 2
    assert not door.exists()


@pytest.mark.parametrize("flavour", ["keras3", "tf_keras"])
def test_a_zygote_has_one_thread(flavour: str, request: pytest.FixtureRequest) -> None:
    """A graph made in it would show as `tf_graph_runner`, an eager context as four threads and more."""
    zygote: Zygote = request.getfixturevalue(flavour)
    assert len(threads(zygote)) == 1, threads(zygote)


def test_a_child_trains_in_a_temporary_folder_of_its_own_and_the_zygote_still_has_one_thread(
    tmp_path: Path, keras3: Zygote
) -> None:
    program = tmp_path / "digits.py"
    asks = '\nimport tempfile\nprint("temporary:", tempfile.gettempdir(), flush=True)\n'
    program.write_text((RECIPES / "digits_mlp.py").read_text() + asks)
    trained = gang(tmp_path, program, Strategy.ONE_DEVICE, epochs=1, global_batch_size=512)
    trained.start(keras3).wait()
    (worker,) = trained.members
    assert worker.exit().cause is Cause.COMPLETED, worker.log()
    assert f"temporary: {worker.plan.scratch}" in worker.log()
    assert worker.series("loss")
    assert len(threads(keras3)) == 1, threads(keras3)
