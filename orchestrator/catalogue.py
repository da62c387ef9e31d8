"""The recipes that ship with Trainyard, and scripts to start from. `services/programs/programs.py` and the new-job form
list `entries()`; the form offers `sample_for` a strategy."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from worker_agent.protocol.job.recipe_text import RecipeInfo, inspect_recipe
from worker_agent.protocol.states import Strategy


@dataclass(frozen=True)
class Entry:
    """One recipe of the catalogue: its name (the file's stem), its text, and what it declares."""

    name: str
    filename: str
    text: str
    info: RecipeInfo


@dataclass(frozen=True)
class Sample:
    """A short script to start from."""

    name: str
    filename: str
    strategy: Strategy
    text: str


# Scripts of Keras `fit` in examples/scripts.
_SAMPLES = {
    Strategy.ONE_DEVICE: "one_device_fit",
    Strategy.MIRRORED: "mirrored_fit",
    Strategy.MULTI_WORKER_MIRRORED: "keras_multi_worker",
    Strategy.PARAMETER_SERVER: "parameter_server_fit",
    Strategy.TPU: "tpu_fit",
}


def sample_for(wanted: str) -> Sample:
    """The sample of a strategy; that of one device for a strategy without any."""
    strategy = next((strategy for strategy in _SAMPLES if strategy == wanted), Strategy.ONE_DEVICE)
    name = _SAMPLES[strategy]
    path = Path(settings.BASE_DIR) / "examples" / "scripts" / f"{name}.py"
    return Sample(name, path.name, strategy, path.read_text(encoding="utf-8"))


def entries() -> list[Entry]:
    """All recipes of the catalogue by name. Files are read again only when they change."""
    folder = Path(settings.BASE_DIR) / "examples" / "recipes"
    paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    return [_read(str(path), path.stat().st_mtime_ns) for path in paths]


def entry(name: str) -> Entry | None:
    """The recipe of that name."""
    return next((known for known in entries() if known.name == name), None)


@lru_cache(maxsize=64)
def _read(path: str, _mtime_ns: int) -> Entry:
    text = Path(path).read_text(encoding="utf-8")
    name = Path(path).name
    return Entry(name=Path(path).stem, filename=name, text=text, info=inspect_recipe(text, name))
