"""What a training leaves: each file whole, and a model that cannot be a SavedModel costs nothing but that file."""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from worker_agent.protocol.job.job_spec import CodeRef, JobSpec
from worker_agent.protocol.states import Strategy
from worker_agent.trainer.saving import export
from worker_agent.trainer.training_run import TrainingRun


class Model:
    """Saves itself as a line of text; exports itself unless it is told why not."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal

    def save(self, path: str) -> None:
        Path(path).write_text("weights")

    def export(self, path: str) -> None:
        if self.refusal:
            raise ValueError(self.refusal)
        (Path(path) / "variables").mkdir(parents=True)
        (Path(path) / "saved_model.pb").write_text("graph")
        (Path(path) / "variables" / "variables.index").write_text("index")


def run_in(folder: Path) -> TrainingRun:
    spec = JobSpec(
        name="x", cluster="", code=CodeRef(sha256="", entry="recipe.py"), strategy=Strategy.ONE_DEVICE, epochs=1
    )
    return TrainingRun(entry=Path("recipe.py"), code=Path(), spec=spec, artifacts=folder / "artifacts")


def test_model_saved_model_and_metrics_are_left(tmp_path: Path) -> None:
    export.write(run_in(tmp_path), SimpleNamespace(params={}), Model(), metrics={"loss": 0.5}, steps=3)
    artifacts = tmp_path / "artifacts"
    assert (artifacts / "model.keras").read_text() == "weights"
    with zipfile.ZipFile(artifacts / "saved_model.zip") as content:
        assert "saved_model/saved_model.pb" in content.namelist()
        assert content.read("saved_model/variables/variables.index") == b"index"
    assert json.loads((artifacts / "metrics.json").read_text())["steps"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["artifacts"]


def test_a_model_that_cannot_be_exported_is_told_in_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(refusal="No input shape is known.\nmore")
    export.write(run_in(tmp_path), SimpleNamespace(params={}), model, metrics={}, steps=3)
    assert sorted(path.name for path in (tmp_path / "artifacts").iterdir()) == ["metrics.json", "model.keras"]
    assert "cannot be exported as a SavedModel: ValueError: No input shape is known." in capsys.readouterr().out
