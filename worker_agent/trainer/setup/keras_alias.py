"""Make `import keras` mean tf_keras in this process, so that one recipe file serves Keras 3 and parameter servers.

Installed before the recipe, and anything else of Keras, is imported.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `keras.x.y` as `tf_keras.x.y`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "keras" or fullname.startswith("keras."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(f"tf_{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the module has run under its own name."""


def install() -> None:
    """Point `keras` at tf_keras; harmless the second time."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    if any(isinstance(finder, _Alias) for finder in sys.meta_path):
        return
    if "keras" in sys.modules:
        raise RuntimeError("Keras 3 has been imported already; tf_keras cannot take its place any more")
    sys.meta_path.insert(0, _Alias())


def remove() -> None:
    """Let `import keras` mean Keras 3 again: what a program that was not written as a recipe expects."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Alias)]
    for name in [name for name in sys.modules if name == "keras" or name.startswith("keras.")]:
        if sys.modules[name].__name__.startswith("tf_keras"):
            del sys.modules[name]
