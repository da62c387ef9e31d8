"""What an installation of the fault suite has on the machine, by its folder. `take_down` ends what was left by a suite
that was itself killed (SIGKILL, out of memory): the next one does so before it begins.

The names of a suite's namespaces and of its folder hold its process id; one whose process is gone is nobody's any more.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import psutil

from tests.environment import PREFIX

HOME = "trainyard-faults-"
NAMESPACE = "tyf"
NAMESPACES = Path("/run/netns")


def make_home() -> Path:
    """The folder of a suite in this process."""
    home = Path(tempfile.mkdtemp(prefix=f"{HOME}{os.getpid()}-"))
    home.chmod(0o755)  # PostgreSQL runs as another user
    return home


def take_down() -> list[str]:
    """End the processes, control groups, mounts, folders and namespaces of suites that are gone; what was found."""
    homes = [path for prefix in (HOME, PREFIX) for path in _orphans(Path(tempfile.gettempdir()), prefix)]
    for home in homes:
        groups = groups_in(home)
        at_work = list(processes_in(home))
        for process in at_work:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(at_work, timeout=10)
        for group in groups:
            with contextlib.suppress(FileNotFoundError):
                group.rmdir()
        for mount in mounts_in(home):
            subprocess.run(["umount", "-l", mount], check=True)
        shutil.rmtree(home)
    spaces = _orphans(NAMESPACES, NAMESPACE)
    for space in spaces:
        subprocess.run(["ip", "netns", "delete", space.name], check=True)
    return [str(path) for path in (*homes, *spaces)]


def processes_in(home: Path) -> dict[psutil.Process, str]:
    """Those whose command line or environment names a place below `home`, other than the caller; what each runs."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            is_inside = any(f"{home}/" in word for word in (*line, *process.environ().values()))
            if is_inside and process.pid != os.getpid():
                found[process] = " ".join(line)
    return found


def groups_in(home: Path) -> list[Path]:
    """The control groups of the training processes that were launched there, as far as its disks still answer; some
    may be gone."""
    found = []
    for shim in (home / "disks").glob("*/replicas/*/shim.json"):
        with contextlib.suppress(OSError):
            found.append(json.loads(shim.read_text()).get("group"))
    return [Path(group) for group in found if group]


def mounts_in(home: Path) -> list[str]:
    """What is mounted below `home`, the latest first."""
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [place for place in reversed(places) if place.startswith(f"{home}/")]


def _orphans(folder: Path, prefix: str) -> list[Path]:
    """What is named `<prefix><pid>-…` there, after a process that is gone."""
    named = [(path, re.match(rf"{prefix}(\d+)-", path.name)) for path in sorted(folder.glob(f"{prefix}*"))]
    return [path for path, begins in named if begins and not psutil.pid_exists(int(begins[1]))]
