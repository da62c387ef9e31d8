"""`import trainyard` outside of a job's own process: at a terminal, and in processes that a script starts."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import trainyard
from trainyard import telling
from worker_agent.trainer.emit import Emitter, RecipeLog

PROGRAM = """
import os, sys, trainyard
trainyard.log(3, loss=0.25, accuracy=1)
trainyard.progress(3, of=10, epoch=1, epochs=2)
if os.fork() == 0:
    trainyard.log(4, loss=0.125)
    os._exit(0)
os.wait()
assert not any(name.startswith(("worker_agent", "numpy", "tensorflow")) for name in sys.modules)
"""


def run(**environment: str) -> str:
    given = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PATH": os.environ["PATH"], **environment}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=given, capture_output=True, text=True, check=True).stdout


def test_at_a_terminal_it_prints() -> None:
    lines = run().splitlines()
    assert lines[:2] == ["step 3  loss 0.25  accuracy 1", "step 3/10  epoch 1/2"]
    assert lines[-1] == "step 4  loss 0.125"


def test_in_a_process_that_a_script_starts_it_appends(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    assert run(TRAINYARD_SERIES=str(path)) == ""
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 3, "scalars": {"loss": 0.25, "accuracy": 1.0}},
        {"step": 3, "of": 10, "epoch": 1, "epochs": 2},
        {"step": 4, "scalars": {"loss": 0.125}},
    ]


def test_in_a_recipe_it_is_a_point_like_any_other() -> None:
    points: list[tuple[int, Mapping[str, float]]] = []

    class Kept(Emitter):
        def __init__(self) -> None:
            """Without a thread."""

        def log(self, step: int, scalars: Mapping[str, float]) -> None:
            points.append((step, scalars))

    telling.connect(RecipeLog(Kept()))
    try:
        trainyard.log(np.int64(5), loss=np.float32(0.5))
        trainyard.progress(5, of=10)
        with pytest.raises(ValueError, match="abc"):
            trainyard.log(6, loss="abc")
    finally:
        telling.connect(None)
    assert points == [(5, {"loss": 0.5})]
