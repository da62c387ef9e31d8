"""A script run as `python entry arguments` runs it: `__main__`, `sys.argv`, `sys.path`, the working directory, and the
way out (threads that are waited for, exit functions, the status)."""

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


def run(entry: Path, *, arguments: Sequence[str], folder: Path) -> None:
    """Run the file `entry` as the main program in `folder`, to its very end. Raises what it raises."""
    os.chdir(folder)
    sys.argv = [os.path.relpath(entry, folder), *arguments]
    sys.path.insert(0, str(entry.parent))
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(entry), __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    program = compile(entry.read_bytes(), str(entry), "exec", dont_inherit=True)
    try:
        exec(program, main.__dict__)
    finally:
        _wait_for_threads()
        # What an interpreter does before it ends; this one is ended by the launcher.
        atexit._run_exitfuncs()


def show(error: BaseException, entry: Path) -> None:
    """The traceback on stderr as Python shows it, from the script's own first line on; by its own hook if any."""
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename != str(entry):
        first = first.tb_next
    trace = first or error.__traceback__
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def status_of(wish: SystemExit) -> int:
    """The exit status that `sys.exit(…)` asked for, as Python takes it; a text goes to stderr."""
    if wish.code is None:
        return 0
    if isinstance(wish.code, int):
        return wish.code & 0xFF
    sys.stderr.write(f"{wish.code}\n")
    return 1


def _wait_for_threads() -> None:
    """Threads that are no daemons are part of the program."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
