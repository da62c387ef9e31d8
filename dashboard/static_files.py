"""Static files by the names under which pages ask for them: those that `config/static_preparation.py` gave them, or,
where nothing was prepared, as in tests, their own.
"""

import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any, cast

from django.contrib.staticfiles.finders import get_finders
from django.contrib.staticfiles.storage import StaticFilesStorage, staticfiles_storage
from whitenoise.storage import CompressedManifestStaticFilesStorage

SOURCES = "sources.sha256"
# What no page asks for.
IGNORED = [".*", "*~", "*.LICENSE", "*.map", "*redoc*"]
# What a module imports at once, and not only when it is needed: `import("…")`.
IMPORTED = re.compile(r"""(?:import|from)\s*["'](\.[^"']+)["']""")


class StaticFiles(CompressedManifestStaticFilesStorage):
    """`STORAGES["staticfiles"]`: the names of prepared files. A file that was not prepared keeps its own name."""

    keep_intermediate_files = False
    # As deep as modules may import one another.
    max_post_process_passes = 12
    # Where files name one another, and what stands there then. Of scripts only our own are read.
    patterns = (
        ("*.css", (r"""(?P<matched>url\(['"]?\s*(?P<url>.*?)["']?\))""",)),
        (
            "dashboard/js/*.js",
            (
                (r"""(?P<matched>\b(?P<how>from|import)\s*["'](?P<url>\.[^"']+)["'])""", '%(how)s"%(url)s"'),
                (r"""(?P<matched>\bimport\(["'](?P<url>\.[^"']+)["']\))""", 'import("%(url)s")'),
                (r"""(?P<matched>\bnew URL\(["'](?P<url>\.[^"']+)["'],)""", 'new URL("%(url)s",'),
            ),
        ),
    )

    def modules(self, name: str) -> list[str]:
        """The address of a script, then of all that it imports at once; of one that was not prepared, its own alone."""
        found, waiting = [], [self.stored_name(name)]
        while waiting:
            each = waiting.pop()
            if each in found:
                continue
            found.append(each)
            if self.hashed_files:
                with self.open(each) as script:
                    imported = IMPORTED.findall(script.read().decode())
                waiting += [posixpath.normpath(posixpath.join(posixpath.dirname(each), one)) for one in imported]
        return [StaticFilesStorage.url(self, each) for each in found]

    def stored_name(self, name: str) -> str:
        """The name by which a page asks for the file."""
        hashed: str = self.hashed_files.get(self.hash_key(self.clean_name(name)), name)
        return hashed

    def file_hash(self, name: str, content: Any = None) -> str | None:
        """Short: modules carry the names of those that they import."""
        found: str | None = super().file_hash(name, content)
        return found and found[:8]

    def compress_files(self, paths: set[str]) -> Any:
        """Those that pages ask for: the hashed ones."""
        return super().compress_files(paths & set(self.hashed_files.values()))


# The storage of this process (an object that is made at its first use).
STATIC_FILES = cast(StaticFiles, staticfiles_storage)


def is_prepared(folder: Path) -> bool:
    """Whether `folder` holds the static files of this version."""
    return (folder / SOURCES).exists() and (folder / SOURCES).read_text() == fingerprint()


def sources() -> dict[str, tuple[Any, str]]:
    """Every file that a page may ask for, by its name: the storage that has it and its path there."""
    found: dict[str, tuple[Any, str]] = {}
    for finder in get_finders():
        for path, source in finder.list(IGNORED):
            found.setdefault(f"{source.prefix}/{path}" if getattr(source, "prefix", None) else path, (source, path))
    return found


def fingerprint() -> str:
    """Changes with any of the files, and with how they are prepared."""
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sorted(Path(__file__).parent.rglob("static_*.py"))))
    for name, (source, path) in sorted(sources().items()):
        facts = Path(source.path(path)).stat()
        digest.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()
