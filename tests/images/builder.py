"""Builds images with buildah, as root and without a daemon, on a base that debootstrap makes: nothing is pulled.

Everything stays in `.images/`, so that the next build only does what has changed. `make clean` removes it.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.environment import ROOT
from tests.faults.installation.leftovers import take_down

STORE = ROOT / ".images"
BASE = "localhost/trainyard-base"
STAND_INS = Path(__file__).with_name("stand_ins")
# What the official image has of Debian and Python, as far as the Dockerfile asks for it.
SUITE = "bookworm"
PACKAGES = ("python3.11", "python3-pip", "python3-venv", "ca-certificates")
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"


def unavailable() -> str:
    """Why no image can be built here; empty when one can."""
    if os.geteuid() != 0:
        return "building images needs root"
    missing = [name for name in ("buildah", "debootstrap", "docker-compose", "tini-static") if not shutil.which(name)]
    return f"{', '.join(missing)} not installed" if missing else ""


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """Keep the store to this run, and give back what a run that was killed has left there and in the network."""
    STORE.mkdir(exist_ok=True)
    with (STORE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        take_down()
        buildah("rm", "--all")
        yield


def buildah(*words: str | Path) -> str:
    """Run buildah on our own store; what it wrote. Its errors are shown."""
    line = ["buildah", "--root", STORE / "storage", "--runroot", STORE / "run", *words]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"buildah {' '.join(map(str, words))}:\n{done.stdout[-4000:]}"
    return done.stdout.strip()


def build(image: str, folder: Path, target: str) -> None:
    """Build a target of a Dockerfile on the base."""
    _make_base()
    options = ("--isolation", "chroot", "--layers", "--build-arg", f"BASE={BASE}", "--target", target)
    buildah("build", *options, "--tag", f"localhost/{image}", folder)


def config(image: str) -> dict[str, Any]:
    """What an image says of its program: `User`, `Env`, `Entrypoint`, `Cmd`, `WorkingDir`, `StopSignal`."""
    said = json.loads(buildah("inspect", "--type", "image", f"localhost/{image}"))
    return dict(said["OCIv1"]["config"])


def _make_base() -> None:
    if BASE in buildah("images", "--format", "{{.Name}}"):
        return
    container = buildah("from", "scratch")
    root = Path(buildah("mount", container))
    line = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root)]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3.11")
    (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
    shutil.copyfile(Path("/") / AUTHORITIES, root / AUTHORITIES)  # this machine may trust more than Debian does
    buildah("config", "--cmd", "python", container)
    buildah("commit", "--rm", container, BASE)
