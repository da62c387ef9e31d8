"""The zygote: a process that has imported TensorFlow and nothing more, forked once per replica or trial.

Started by the daemon by name, one per Keras flavour: `python -m worker_agent.trainer.zygote --flavour keras3 --socket
PATH --parent PID`. The socket exists when it is ready. A client connects, sends a plan's path and a newline, and reads
one line: the pid of the shim that now owns the replica (in a session of its own, as after a cold start).

The zygote never runs a TensorFlow operation and makes no graph: a first `tf.Graph` starts a thread, an operation or a
gradient several, and threads do not survive a fork. It ends when its parent is gone, also one that was gone before this
one looked; and with status 0 when it has been of no use for `--idle` seconds, because it holds about half a gigabyte.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from worker_agent.protocol import codec
from worker_agent.protocol.commands import imports_for_itself
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.states import Keras, Kind
from worker_agent.replica.shim import supervise
from worker_agent.replica.training_process import become_child
from worker_agent.trainer.outcome import ExitCode
from worker_agent.trainer.script import launcher
from worker_agent.trainer.training_run import from_plan

REQUEST_BYTES = 4096
REQUEST_S = 2.0
HOUSEKEEPING_S = 1.0

# One thread in each maths library: theirs start at import and would be missing in the child.
_SINGLE_THREADED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main() -> None:
    """Import, then serve until the parent is gone."""
    parser = argparse.ArgumentParser(prog="python -m worker_agent.trainer.zygote", description=__doc__)
    parser.add_argument("--flavour", choices=list(Keras), required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True, help="the process without which it ends")
    parser.add_argument("--idle", type=float, default=0, help="seconds without use after which it ends; 0: never")
    given = parser.parse_args()
    preload(given.flavour)
    serve(given.socket, parent=given.parent, idle_s=given.idle)
    os._exit(0)  # nothing here needs an orderly end, and TensorFlow's takes half a second


def preload(flavour: str) -> None:
    """Everything a training process imports before the recipe, for one Keras flavour. Leaves one thread."""
    for name in _SINGLE_THREADED:
        os.environ[name] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flavour == Keras.TF_KERAS:
        from worker_agent.trainer.setup import keras_alias

        keras_alias.install()
    for room in ("evaluator", *(row.module for row in STRATEGIES.values() if flavour in row.keras)):
        importlib.import_module(f"worker_agent.trainer.strategies.{room}")
    importlib.import_module("worker_agent.trainer.__main__")
    with contextlib.suppress(ImportError):  # nearly every recipe needs it, where it is installed
        importlib.import_module("sklearn.datasets")
    gc.collect()
    gc.freeze()  # the children share these pages as long as nobody touches them


def needs_fresh_import(plan: Plan) -> bool:
    """True when the launch imports TensorFlow for itself, or when its script sets variables that the import reads."""
    if imports_for_itself(plan.launch.spec, plan.launch.env):
        return True
    return plan.launch.spec.kind is Kind.SCRIPT and launcher.sets_environment(from_plan(plan, cores=1))


def serve(path: Path, *, parent: int, idle_s: float = 0.0) -> None:
    """Answer requests; collect ended shims; leave when `parent` is no longer ours, or when nobody has asked and no shim
    of ours has run for `idle_s` (0: never for that)."""
    path.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.umask(0o077)
    hidden = path.with_name(f".{path.name}")
    hidden.unlink(missing_ok=True)
    door.bind(str(hidden))
    door.listen(64)
    hidden.replace(path)  # whoever sees it can connect
    door.settimeout(HOUSEKEEPING_S)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    used_at = time.monotonic()
    try:
        while os.getppid() == parent:
            if _collect_children():
                used_at = time.monotonic()
            elif 0 < idle_s < time.monotonic() - used_at:
                break
            with contextlib.suppress(TimeoutError):
                guest, _ = door.accept()
                with guest:
                    _answer(door, guest)
                used_at = time.monotonic()
    finally:
        path.unlink(missing_ok=True)


def _answer(door: socket.socket, guest: socket.socket) -> None:
    """Fork a shim for the plan that is asked for; a request that cannot be read is dropped."""
    guest.settimeout(REQUEST_S)
    try:
        request = guest.makefile("rb").readline(REQUEST_BYTES).decode().strip()
        plan = codec.decode_plan(Path(request).read_bytes())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"zygote: not a plan: {error}\n")
        return
    pid = _fork(lambda: _be_shim(plan, Path(request), (door, guest)))
    with contextlib.suppress(OSError):
        guest.sendall(f"{pid}\n".encode())


def _be_shim(plan: Plan, path: Path, inherited: Iterable[socket.socket]) -> int:
    """In the first child: leave the zygote's session, and supervise the second one, the training process."""
    for each in inherited:
        each.close()
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    fresh = needs_fresh_import(plan)
    start = _start_cold if fresh else _start_warm
    supervise(plan, lambda environment, output: _fork(lambda: start(path, environment, output)), warm=not fresh)
    return ExitCode.COMPLETED


def _fork(body: Callable[[], int]) -> int:
    """The pid of a child that ends with the status that `body` returns."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code: int = ExitCode.EXCEPTION
    try:
        code = body()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _start_cold(path: Path, environment: dict[str, str], output: int) -> int:
    _begin(output)
    command = [sys.executable, "-P", "-m", "worker_agent.trainer", "--plan", str(path)]
    os.execve(sys.executable, command, environment)


def _start_warm(path: Path, environment: dict[str, str], output: int) -> int:
    """With the environment, the output and the import path that a cold start would have."""
    _begin(output)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]  # two files
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(environment)
    for name in _SINGLE_THREADED:
        os.environ[name] = environment.get(name, "1")
    _be_marked(environment["TMPDIR"])
    tempfile.tempdir = None  # importing TensorFlow has asked for it, which is remembered
    for folder in reversed(environment.get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in inherited and folder not in sys.path:
            sys.path.insert(0, folder)
    gc.unfreeze()
    from worker_agent.trainer.__main__ import main as train

    return train(["--plan", str(path)])


def _be_marked(scratch: str) -> None:
    """Show TMPDIR in `/proc/PID/environ`, as after a cold start: `cleanup.py` knows by it what a program has started.

    There stands the memory in which the zygote's own environment came, whatever is set later. After a `clear` nobody
    reads it any more. What is forked from here on has a copy.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end of proc(5)
    mark = os.fsencode(f"TMPDIR={scratch}") + b"\0"
    if len(mark) <= end - start:
        ctypes.memmove(start, mark, len(mark))


def _begin(output: int) -> None:
    """Be a training process of its own, whose output goes there."""
    become_child()
    silence = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((silence, output, output)):
        os.dup2(descriptor, number)
    os.umask(0o022)


def _collect_children() -> bool:
    """Whether any still runs."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    main()
