"""The recipes that ship with Trainyard. `services/programs/programs.py` and the new-job form list `entries()`."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from worker_agent.protocol.job.recipe_text import RecipeInfo, inspect_recipe


@dataclass(frozen=True)
class Entry:
    """One recipe of the catalogue: its name (the file's stem), its text, and what it declares."""

    name: str
    filename: str
    text: str
    info: RecipeInfo


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
