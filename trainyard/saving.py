"""How a program has a file or folder kept with its job, whatever its name and wherever it lies.

What `save` is given is copied, as it is at that moment and with the program's own rights, into the folder that
`TRAINYARD_FILES` names; the node's agent takes it from there. Standard library only, as `telling.py`.
"""

import os
import shutil
import sys
from pathlib import Path

FILES_FOLDER = "TRAINYARD_FILES"


def save(path: str | os.PathLike[str], /) -> None:
    """Keep a file, or every file below a folder, with the job: `save("model.keras")`, `save("/tmp/plots")`.

    Its name is its path below the current folder; the last part of its path where it lies elsewhere. Saved again, it
    is replaced. Links are followed; pipes and hidden files below a folder are left out. Outside a job nothing is copied
    and a line is printed. Raises `FileNotFoundError` where nothing is there, and `OSError` where it cannot be copied.
    """
    source = Path(path)
    files = _files_of(source)
    target = os.environ.get(FILES_FOLDER)
    if not target:
        sys.stdout.write(f"trainyard: {source} stays where it is, because this program runs outside a job\n")
        sys.stdout.flush()
        return
    name = _name_of(source)
    for file in files:
        _copy(file, Path(target) / name / file.relative_to(source))


def _files_of(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise FileNotFoundError(f"trainyard.save: there is no file or folder {source}")
    found = []
    for folder, folders, names in os.walk(source):
        folders[:] = [each for each in folders if not each.startswith(".")]
        found += [Path(folder, each) for each in names if not each.startswith(".")]
    return [each for each in found if each.is_file()]


def _name_of(source: Path) -> Path:
    here = Path.cwd()
    whole = Path(os.path.normpath(here / source))
    name = whole.relative_to(here) if whole.is_relative_to(here) else Path(whole.name)
    return Path(*(part.lstrip(".") or "_" for part in name.parts))


def _copy(file: Path, target: Path) -> None:
    """Under its name only when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{os.getpid()}.{target.name}"[:200])
    try:
        shutil.copyfile(file, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
