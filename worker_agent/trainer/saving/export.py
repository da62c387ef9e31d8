"""What a finished training leaves for its owner: `model.keras`, `saved_model.zip` and `metrics.json`. Written by the
leading process."""

import contextlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from worker_agent.trainer.emit import say
from worker_agent.trainer.recipe.recipe_file import Recipe
from worker_agent.trainer.training_run import TrainingRun

MODEL_NAME = "model.keras"
SAVED_MODEL_NAME = "saved_model.zip"
METRICS_NAME = "metrics.json"


def write(run: TrainingRun, program: Recipe, model: Any, *, metrics: Mapping[str, float], steps: int) -> None:
    """All files into `run.artifacts`, each whole or not at all. A model that cannot be a SavedModel is told of."""
    if run.artifacts is None:
        return
    run.artifacts.mkdir(parents=True, exist_ok=True)
    partial = _partial(run.artifacts, MODEL_NAME)
    model.save(str(partial))
    partial.replace(run.artifacts / MODEL_NAME)
    try:
        _write_saved_model(model, run.artifacts)
    except Exception as error:  # whatever a user's layers cannot do: the model itself is safe
        first = (str(error).strip().splitlines() or [""])[0]
        say(f"No {SAVED_MODEL_NAME}: this model cannot be exported as a SavedModel: {type(error).__name__}: {first}")
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
    partial = _partial(run.artifacts, METRICS_NAME)
    partial.write_text(json.dumps(described, indent=2, allow_nan=False) + "\n")
    partial.replace(run.artifacts / METRICS_NAME)


def _write_saved_model(model: Any, artifacts: Path) -> None:
    """The serving signature alone, as a zip of the folder `saved_model`."""
    partial = _partial(artifacts, SAVED_MODEL_NAME)
    with TemporaryDirectory(prefix="export-", ignore_cleanup_errors=True) as folder:
        with contextlib.redirect_stdout(io.StringIO()):  # Keras tells every input and output, at length
            model.export(f"{folder}/saved_model")
        try:
            with zipfile.ZipFile(partial, "w") as content:  # weights do not shrink
                for path in sorted(Path(folder).rglob("*")):
                    content.write(path, path.relative_to(folder))
            partial.replace(artifacts / SAVED_MODEL_NAME)
        finally:
            partial.unlink(missing_ok=True)


def _json_number(value: float) -> float | str:
    """JSON knows no NaN and no infinity: they become words."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _partial(artifacts: Path, name: str) -> Path:
    """Where a file is written until it is whole: not among those that are."""
    return artifacts.with_name(f"{artifacts.name}.partial-{name}")
