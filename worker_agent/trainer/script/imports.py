"""Doing something the moment a module has been imported, by whomever: how the launcher reaches libraries that a script
imports when it likes. A module that is there already (a warm start) is acted on at once.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Act = Callable[[ModuleType], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the other finders find, and remembers to act on it."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Act]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        acts = self.waiting.pop(fullname, None)
        if acts is None:
            return None
        spec = importlib.util.find_spec(fullname)  # asks this finder, too, which no longer waits for it
        if spec is not None and spec.loader is not None:
            _act_behind(spec.loader, acts)
        return spec


def _act_behind(loader: Any, acts: list[Act]) -> None:
    """Have a module's own loader act when it has run the module, once."""
    run = loader.exec_module

    def run_and_act(module: ModuleType) -> None:
        del loader.exec_module
        run(module)
        for act in acts:
            _do(act, module)

    loader.exec_module = run_and_act


_finder = _Finder()


def when_imported(name: str, act: Act) -> None:
    """Call `act(module)` once the module is imported. An act that fails is told in the log and harms nobody."""
    module = sys.modules.get(name)
    if module is not None:
        _do(act, module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(act)


def _do(act: Act, module: ModuleType) -> None:
    try:
        act(module)
    except Exception as error:
        what = act.__doc__ or act.__name__
        sys.stderr.write(f"trainyard: {what.splitlines()[0]} Not done with this {module.__name__}: {error}\n")
