"""The user's recipe: read, checked before anything expensive starts, loaded, and asked for model and data.

A recipe is a Python file with `build_model(params)` and `build_dataset(params, split)` and a literal `PARAMS`. It is
checked by its text first, so a slip of the pen is told before a gang has met; it is run only after the strategy exists,
because a recipe may create tensors at its top level.
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from worker_agent.protocol.job.job_spec import ParamValue
from worker_agent.protocol.job.recipe_text import REQUIRED, RecipeInfo, inspect_recipe
from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.recipe.params import effective_params


class Recipe:
    """A loaded recipe together with the values of its hyper-parameters."""

    def __init__(self, module: ModuleType, params: Mapping[str, ParamValue]) -> None:
        self._module = module
        self.params = params
        self.takes_shard = "shard" in inspect.signature(module.build_dataset).parameters

    def model(self) -> Any:
        """What `build_model` returns."""
        return self._module.build_model(dict(self.params))

    def dataset(self, split: str, shard: tuple[int, int] | None = None) -> Any:
        """What `build_dataset` returns for `split`: of all rows, or of shard `(n, i)` where the recipe can do that."""
        given = {"shard": shard} if shard is not None and self.takes_shard else {}
        return self._module.build_dataset(dict(self.params), split, **given)

    def callbacks(self) -> list[Any]:
        """What the optional `callbacks(params)` returns."""
        make = getattr(self._module, "callbacks", None)
        return list(make(dict(self.params))) if make is not None else []

    def layouts(self) -> dict[str, list[str]] | None:
        """What the optional `build_layouts(params)` returns: variable path pattern → what splits each axis."""
        make = getattr(self._module, "build_layouts", None)
        return dict(make(dict(self.params))) if make is not None else None

    def stages(self, count: int) -> list[list[str]] | None:
        """What the optional `build_stages(params, count)` returns: the names of the model's layers, stage by stage."""
        make = getattr(self._module, "build_stages", None)
        if make is None:
            return None
        _check_parameters("build_stages", make, ("params", "count"))
        return _names_of_layers(make(dict(self.params), count))


def declared(entry: Path) -> RecipeInfo:
    """What the recipe's text says; raises `TrainingFailed` when it cannot be a recipe. Does not run it."""
    try:
        info = inspect_recipe(entry.read_text(encoding="utf-8-sig", errors="replace"), entry.name)
    except OSError as error:
        raise TrainingFailed(f"{entry.name} cannot be read: {error.strerror}.") from error
    if info.problems:
        raise TrainingFailed(f"{'; '.join(info.problems)}.")
    return info


def load(entry: Path, code: Path, params: Mapping[str, ParamValue]) -> Recipe:
    """Run the recipe file; its own folder and the program's come first on the import path."""
    for folder in (code, entry.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"recipe_{entry.stem}", entry)
    if spec is None or spec.loader is None:
        raise TrainingFailed(f"{entry.name} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for name, wanted in REQUIRED.items():
        function = getattr(module, name, None)
        if not callable(function):
            raise TrainingFailed(f"{name} in {entry.name} is not a function.")
        _check_parameters(name, function, wanted)
    return Recipe(module, effective_params(declared(entry).params, params))


def _check_parameters(name: str, function: Callable[..., Any], wanted: tuple[str, ...]) -> None:
    """Raise `TrainingFailed` where the signature, if there is one, does not let `function` take what it is given."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    by_name = {"shard": (1, 0)} if "shard" in signature.parameters else {}
    try:
        signature.bind(*wanted, **by_name)
    except TypeError as error:
        raise TrainingFailed(f"{name}() takes {signature}", remedy=f"let it take ({', '.join(wanted)})") from error


def _names_of_layers(made: Any) -> list[list[str]]:
    """What build_stages returned, if that is lists of names; raises `TrainingFailed`."""
    stages = list(made) if _is_list(made) else None
    wrong = [made] if stages is None else [names for names in stages if not _is_list(names)]
    if stages is None or wrong:
        held = f"{'' if stages is None else 'a list of '}{type(wrong[0]).__name__}"
        raise TrainingFailed(
            f"build_stages() returned {held}", remedy="let it give one list of layer names for each device"
        )
    return [list(names) for names in stages]


def _is_list(made: Any) -> bool:
    return isinstance(made, Iterable) and not isinstance(made, str)
