"""Static files made ready for browsers by `manage.py static_files`: minified, compressed, and named by what is in them,
so that a browser keeps each for good.
"""

import fcntl
import json
import shutil
from pathlib import Path

import minify
from django.core.files.base import ContentFile, File

from dashboard.static_files import SOURCES, StaticFiles, fingerprint, is_prepared, sources

OWN, VENDOR = "dashboard/", "dashboard/vendor/"
MINIFIED = {".js": "application/javascript", ".css": "text/css"}


def prepare(folder: Path) -> bool:
    """Make `folder` hold the static files of this version and, for pages that are open, the hashed ones of the version
    before. True when it did not yet."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_prepared(folder):
            return False
        _prepare(folder)
    return True


def _prepare(folder: Path) -> None:
    found = sources()
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    storage = StaticFiles(location=fresh)
    for name, (source, path) in found.items():
        with source.open(path) as content:
            storage.save(name, _minified(name, content))
    own = {name: (storage, name) for name in found if name.startswith(OWN)}
    for _, _, processed in storage.post_process(found | own):
        if isinstance(processed, Exception):
            raise processed
    _keep_previous(folder, fresh)
    (fresh / SOURCES).write_text(fingerprint())
    old = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _minified(name: str, content: "File[bytes]") -> "File[bytes]":
    """Our own scripts and styles as short as they can be written."""
    kind = MINIFIED.get(Path(name).suffix)
    if kind is None or not name.startswith(OWN) or name.startswith(VENDOR):
        return content
    return ContentFile(minify.string(kind, content.read().decode()).encode())


def _keep_previous(folder: Path, fresh: Path) -> None:
    """Take over what pages of the version before still ask for: modules that they have not loaded yet."""
    if not (folder / StaticFiles.manifest_name).exists():
        return
    for hashed in json.loads((folder / StaticFiles.manifest_name).read_text())["paths"].values():
        for name in (hashed, f"{hashed}.gz", f"{hashed}.br"):
            if (folder / name).exists() and not (fresh / name).exists():
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / name, fresh / name)
