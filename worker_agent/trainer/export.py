"""What a finished training leaves for its owner: `model.keras` and `metrics.json`. Written by the leading process."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker_agent.trainer.program import Program
from worker_agent.trainer.run import Run

MODEL_NAME = "model.keras"
METRICS_NAME = "metrics.json"


def write(run: Run, program: Program, model: Any, *, metrics: Mapping[str, float], steps: int) -> None:
    """Both files into `run.artifacts`, each whole or not at all."""
    if run.artifacts is None:
        return
    run.artifacts.mkdir(parents=True, exist_ok=True)
    partial = run.artifacts.with_name(f"{run.artifacts.name}.partial-{MODEL_NAME}")
    model.save(str(partial))
    partial.replace(run.artifacts / MODEL_NAME)
    described = {
        "keras": type(model).__module__.partition(".")[0],
        "strategy": run.spec.strategy,
        "workers": run.workers,
        "recipe": run.entry.name,
        "params": dict(program.params),
        "seed": run.spec.seed,
        "global_batch_size": run.spec.global_batch_size,
        "epochs": run.spec.epochs,
        "steps": steps,
        "metrics": {name: _json_number(value) for name, value in metrics.items()},
    }
    _write_whole(run.artifacts / METRICS_NAME, json.dumps(described, indent=2, allow_nan=False) + "\n")


def _json_number(value: float) -> float | str:
    """JSON knows no NaN and no infinity: they become words."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _write_whole(path: Path, text: str) -> None:
    partial = path.parent.with_name(f"{path.parent.name}.partial-{path.name}")
    partial.write_text(text)
    partial.replace(path)
