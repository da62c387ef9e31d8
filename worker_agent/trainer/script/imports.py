"""Doing something the moment a module has been imported, by whomever: how the launcher reaches libraries that a script
imports when it likes. A module that is there already (a warm start) is acted on at once.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

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
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, acts)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads as the module's own loader does, then acts, then is gone."""

    def __init__(self, inner: importlib.abc.Loader, acts: list[Act]) -> None:
        self._inner = inner
        self._acts = acts

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then what waited for it."""
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        for act in self._acts:
            _do(act, module)


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
