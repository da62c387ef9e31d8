"""Where a training process stands, before it is ended because it hangs: the artifact `stacks-ROLE-INDEX.txt`.

The training process registers faulthandler on `SIGNAL` (`listen`): the handler is C, needs neither the interpreter's
lock nor the main thread, and writes the Python stacks of all threads into a file of the replica's folder. The shim
(`collect`) sends that signal, and adds what the kernel knows of every process and thread of the replica: so there is
something to read also of a process that does not answer. Of one that is suspended, the kernel's view is taken first;
then it is continued, and answers before it does anything else.
"""

import contextlib
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from worker_agent.machine.files import write_atomically
from worker_agent.machine.processes import descendants
from worker_agent.protocol.states import Role

# A real-time signal from the end that libraries do not use; USR1 and USR2 are the programs' own.
SIGNAL = signal.SIGRTMAX - 3
ANSWER_S = 2.5
SPY_S = 2.0

_ANSWERS = "stacks.raw"
_PROC = Path("/proc")
_QUIET_S = 0.3
_POLL_S = 0.02
_PROCESSES_MAX = 30
_THREADS_MAX = 400
_TEXT_CHARS = 400_000
_SUSPENDED = frozenset("Tt")
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting in the kernel, cannot be interrupted",
    "T": "suspended by a signal",
    "t": "held by a debugger",
    "Z": "ended",
    "I": "idle",
}


class Thread(NamedTuple):
    """One thread as the kernel sees it; `waits_in` is a function of the kernel, "" where there is none."""

    tid: int
    name: str
    state: str
    waits_in: str
    stack: str


def listen(folder: Path) -> None:
    """In a training process, before the program: write the Python stacks of all threads whenever `SIGNAL` comes."""
    path = folder / _ANSWERS
    # Stays open as long as the process lives: the handler may open nothing.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    faulthandler.register(SIGNAL, file=file, all_threads=True, chain=False)


def artifact_name(role: Role, index: int) -> str:
    """The file that a replica's stacks are in."""
    return f"stacks-{role.value}-{index}.txt"


def collect(child: int, *, folder: Path, path: Path, why: str) -> str:
    """Write to `path` where the training process `child` and everything it started stand; takes five seconds at most.

    Called by its shim. Returns half a sentence when the kernel's view alone says what is wrong, else "".
    """
    before = threads_of(child)
    state = next((thread.state for thread in before if thread.tid == child), "")
    if not state:
        return ""
    kernel = {each.pid: threads_of(each.pid) for each in descendants(os.getpid())[:_PROCESSES_MAX]}
    answer = _ask_for_stacks(child, folder / _ANSWERS, suspended=state in _SUSPENDED)
    spied = _spy(child)
    found = _finding(state, before, threads_of(child))
    parts = [
        f"Process {child}, taken {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC on the node's clock. {why}",
        *([f"The kernel's view: {found}"] if found else []),
        f"== Python, by faulthandler ==\n{answer}",
        *([f"== Python, by py-spy ==\n{spied}"] if spied else []),
        *(f"== Kernel: process {pid} ==\n{describe(threads)}" for pid, threads in kernel.items()),
    ]
    with contextlib.suppress(OSError):  # a full disk: the end comes first
        write_atomically(path, "\n\n".join(parts)[:_TEXT_CHARS].encode())
    return found


def threads_of(pid: int) -> list[Thread]:
    """Every thread of a process; those that end meanwhile are left out."""
    tasks = _PROC / str(pid) / "task"
    try:
        tids = sorted(int(entry.name) for entry in tasks.iterdir())[:_THREADS_MAX]
    except OSError:
        return []
    return [thread for tid in tids if (thread := _thread(tasks / str(tid), tid)) is not None]


def describe(threads: Iterable[Thread]) -> str:
    """The threads in words, those that stand at the same place together."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for thread in threads:
        alike.setdefault(thread[2:], []).append(f"{thread.name} ({thread.tid})")
    blocks = []
    for (state, waits_in, stack), names in alike.items():
        where = f", in {waits_in}" if waits_in else ""
        lines = "".join(f"\n    {line}" for line in stack.splitlines())
        blocks.append(f"{state} ({_STATES.get(state, 'unknown')}){where}: {', '.join(names)}{lines}")
    return "\n".join(blocks) or "It is gone."


def _thread(place: Path, tid: int) -> Thread | None:
    fields = _read(place / "stat")
    if not fields:
        return None
    name, waits_in, stack = (_read(place / file) for file in ("comm", "wchan", "stack"))
    return Thread(tid, name, fields[fields.rindex(")") + 2], "" if waits_in == "0" else waits_in, stack)


def _read(path: Path) -> str:
    """What only root may read on most machines is left out where it may not be read."""
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def _ask_for_stacks(pid: int, answers: Path, *, suspended: bool) -> str:
    """The Python stacks, as far as the process answers in time."""
    if not _listens(pid):
        return "It was not ready to tell: it had not begun with the program yet, or the program changed that."
    before, deadline = _size(answers), time.monotonic() + ANSWER_S
    note = ""
    # It is a child of this process that has not been waited for, so nobody else gets the signal.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, SIGNAL)
        if suspended:
            note = "The process was suspended and could not answer; these are its first words after it was continued.\n"
            os.kill(pid, signal.SIGCONT)
    size, grown_at = before, float("inf")
    while time.monotonic() < min(deadline, grown_at + _QUIET_S):
        if size != (size := _size(answers)):
            grown_at = time.monotonic()
        time.sleep(_POLL_S)
    with contextlib.suppress(OSError), answers.open("rb") as file:
        file.seek(before)
        if text := file.read(_TEXT_CHARS // 2).decode(errors="replace").strip():
            return note + text
    return f"The process did not answer within {ANSWER_S:g} s: not even a handler of a signal runs in it."


def _listens(pid: int) -> bool:
    """Whether the process has a handler for `SIGNAL`: else it would end there and then."""
    for line in _read(_PROC / str(pid) / "status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _spy(pid: int) -> str:
    """What py-spy says, where it is installed: also of a process that is suspended. "" where it says nothing."""
    program = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if program is None:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = [program, "dump", "--nonblocking", "--pid", str(pid)]
        said = subprocess.run(command, capture_output=True, timeout=SPY_S, stdin=subprocess.DEVNULL, check=False)
        # What comes before is the command line, which may hold what is private.
        _, mark, stacks = said.stdout.decode(errors="replace").partition("\nPython v")
        return f"{mark}{stacks}".strip()
    return ""


def _finding(state: str, before: list[Thread], after: list[Thread]) -> str:
    if state in _SUSPENDED:
        return f"the process was {_STATES[state]} (state {state})."
    stuck = {thread.tid for thread in before if thread.state == "D"}
    for thread in after:
        if thread.tid in stuck and thread.state == "D":
            where = f" in {thread.waits_in}" if thread.waits_in else ""
            return f"a thread waited in the kernel{where} for a disk, a file system or a driver (state D)."
    return ""


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
