"""Programs from a git address: one commit's files as the zip that the rest of Trainyard takes. Called by `code.py`.

git speaks to whatever address a person types, so it runs on a short leash: https alone, no credentials, no helpers, no
submodules, nothing of this machine's configuration, arguments as lists, a limit on time and size, an empty folder. No
file of the repository is checked out or run; `git archive` packs the tree, and the archive is then looked at like any
upload (links and special files are refused there).
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

from django.conf import settings

from worker_agent.protocol.job.archive import ArchiveRefused, safe_parts
from worker_agent.protocol.job.job_spec import GitRef

PROTOCOLS = ("https",)
TIME_S = 20.0
AT_ONCE = 4
# A repository is larger than the part of it that is run; nobody's history is fetched.
FETCH_FACTOR = 10
REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@-]{0,199}")
URL_CHARS = 500

_POLL_S = 0.05
_WORDS_CHARS = 300
# What git needs of the web server's environment: how to get out of the building, and whom to trust.
_PASSED_ON = ("PATH", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")
_busy = threading.BoundedSemaphore(AT_ONCE)


class GitRefused(Exception):
    """The address cannot be used: the message is a sentence that says why and what to do."""


@dataclass(frozen=True)
class Fetched:
    """The files of `ref.commit` below the path asked for, as a zip archive."""

    ref: GitRef
    content: bytes


def fetch(url: str, ref: str = "", path: str = "") -> Fetched:
    """Fetch one commit: of the branch, tag or commit `ref` ("": the default branch), the folder `path` ("": all).

    Takes `TIME_S` at most; raises `GitRefused`.
    """
    _check(url, ref, path)
    if shutil.which("git") is None:
        raise GitRefused("git is not installed where the web server runs: upload the program as an archive instead")
    if not _busy.acquire(timeout=1.0):
        raise GitRefused("too many repositories are being fetched at the moment: try again in a few seconds")
    try:
        with tempfile.TemporaryDirectory(prefix="trainyard-git-", ignore_cleanup_errors=True) as folder:
            return _fetch(Path(folder), url, ref, path, deadline=monotonic() + TIME_S)
    finally:
        _busy.release()


def _check(url: str, ref: str, path: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise GitRefused(f"the address cannot be read: {error}") from error
    if parts.scheme not in PROTOCOLS or not parts.hostname or not url.isprintable() or len(url) > URL_CHARS:
        raise GitRefused(f"give an address that begins with {PROTOCOLS[0]}://, such as https://host/owner/repository")
    if parts.username is not None or parts.password is not None:
        raise GitRefused("leave user name and password out of the address: it is shown to everybody who sees the job")
    if " " in url or parts.query or parts.fragment:
        raise GitRefused("the address must not contain spaces, ? or #: the branch has its own field")
    if ref and (not REF.fullmatch(ref) or ".." in ref):
        raise GitRefused("the branch, tag or commit may contain letters, digits and . _ - / + @")
    if path:
        try:
            safe_parts(path)
        except ArchiveRefused as error:
            raise GitRefused(f"the folder: {error}") from error


def _fetch(folder: Path, url: str, ref: str, path: str, *, deadline: float) -> Fetched:
    store, packed = folder / "repository", folder / "tree.zip"

    def git(*arguments: str) -> str:
        return _git(["--git-dir", str(store), *arguments], folder, deadline)

    git("init", "--quiet", "--bare", "--template=", str(store))
    options = ["--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-gc"]
    git("fetch", *options, url, ref or "HEAD")
    commit = git("rev-parse", "--verify", "FETCH_HEAD^{commit}").strip()
    tree = f"{commit}:{path.strip('/')}" if path.strip("/") else commit
    if git("cat-file", "-t", tree).strip() not in ("commit", "tree"):
        raise GitRefused(f"{path!r} is a file of that repository: give the folder that holds it, and the file as entry")
    git("archive", "--format=zip", f"--output={packed}", tree)
    if packed.stat().st_size > settings.MAX_CODE_BYTES:
        raise _too_large()
    return Fetched(GitRef(url=url, ref=ref, commit=commit, path=path), packed.read_bytes())


def _git(arguments: list[str], folder: Path, deadline: float) -> str:
    """One git command in a process group of its own; what it printed."""
    output = folder / "output"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            ["git", *arguments],
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, folder, deadline)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    said = output.read_text(errors="replace")
    if process.returncode:
        raise GitRefused(_in_words(said))
    return said


def _wait(process: subprocess.Popen[bytes], folder: Path, deadline: float) -> None:
    while True:
        try:
            process.wait(_POLL_S)
            return
        except subprocess.TimeoutExpired:
            if monotonic() > deadline:
                raise GitRefused(f"the repository could not be fetched within {TIME_S:g} s") from None
            if _size_bytes(folder) > settings.MAX_CODE_BYTES * FETCH_FACTOR:
                raise _too_large() from None


def _environment(folder: Path) -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return passed | {
        "HOME": str(folder),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS),
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def _size_bytes(folder: Path) -> int:
    total = 0
    for root, _folders, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # git tidies up meanwhile
                total += (Path(root) / name).stat().st_size
    return total


def _too_large() -> GitRefused:
    return GitRefused(
        f"the files are larger than {settings.MAX_CODE_BYTES / 1_000_000:g} MB: name a folder of the repository, "
        "and keep data elsewhere"
    )


def _in_words(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "")
    known = {
        "couldn't find remote ref": "there is no such branch, tag or commit",
        "not our ref": "there is no such commit, or the server does not serve single commits",
        "Authentication failed": "the repository does not exist, or is not public",
        "could not read Username": "the repository does not exist, or is not public",
        "not found": "there is no repository at that address",
        "Could not resolve host": "the host of that address is not known here",
        "does not exist in": "the repository has no such folder",
        "Not a valid object name": "the repository has no such folder",
    }
    for words, sentence in known.items():
        if any(words in line for line in lines):
            return sentence
    return f"git says: {last.removeprefix('fatal: ')[:_WORDS_CHARS]}"
