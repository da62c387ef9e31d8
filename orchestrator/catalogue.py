"""The recipes that ship with Trainyard, and what any recipe's text declares. Programs are parsed, never run here.

`services/programs/programs.py` inspects uploads with `inspect_source`; `services/jobs/submission.py` and the new-job
form list `entries()`.
"""

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from orchestrator.domain.job.recipes import PARAM_TYPES, ParamInfo, ParamValue, RecipeInfo

NEEDED_FUNCTIONS = {"build_model": "build_model(params)", "build_dataset": "build_dataset(params, split)"}
PARAM_KEYS = frozenset({"type", "default", "min", "max", "choices", "help"})


@dataclass(frozen=True)
class Entry:
    """One recipe of the catalogue: its name (the file's stem), its text, and what it declares."""

    name: str
    filename: str
    text: str
    info: RecipeInfo


def entries() -> list[Entry]:
    """All recipes of the catalogue by name. Files are read again only when they change."""
    folder = Path(settings.BASE_DIR) / "examples" / "recipes"
    paths = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    return [_read(str(path), path.stat().st_mtime_ns) for path in paths]


def entry(name: str) -> Entry | None:
    """The recipe of that name."""
    return next((known for known in entries() if known.name == name), None)


def inspect_source(text: str, filename: str) -> RecipeInfo:
    """What the program declares: TITLE, DESCRIPTION, PARAMS, and every problem that would stop it from running."""
    try:
        tree = ast.parse(text, filename=filename)
    except SyntaxError as error:
        where = f"{filename}, line {error.lineno}" if error.lineno else filename
        return RecipeInfo("", "", (), (f"{where}: syntax error: {error.msg}",))
    except (RecursionError, MemoryError):
        return RecipeInfo("", "", (), (f"{filename}: this cannot be read as Python: it is nested too deeply",))
    except ValueError as error:
        return RecipeInfo("", "", (), (f"{filename}: this is not a Python program: {error}",))
    problems: list[str] = []
    literals = _literals(tree, filename, problems)
    params = _params(literals.get("PARAMS"), filename, problems)
    defined = _defined(tree)
    problems += _missing_functions(defined, filename)
    title = literals.get("TITLE", (0, ""))[1]
    description = literals.get("DESCRIPTION", (0, ""))[1]
    return RecipeInfo(
        title=title if isinstance(title, str) else "",
        description=description if isinstance(description, str) else "",
        params=tuple(params),
        problems=tuple(problems),
        stages=not defined.isdisjoint({"build_stages", "*"}),
    )


@lru_cache(maxsize=64)
def _read(path: str, _mtime_ns: int) -> Entry:
    text = Path(path).read_text(encoding="utf-8")
    name = Path(path).name
    return Entry(name=Path(path).stem, filename=name, text=text, info=inspect_source(text, name))


def _literals(tree: ast.Module, filename: str, problems: list[str]) -> dict[str, tuple[int, object]]:
    """Name → (line, value) of the module-level assignments that Trainyard reads."""
    found: dict[str, tuple[int, object]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            if not isinstance(target, ast.Name) or target.id not in ("PARAMS", "TITLE", "DESCRIPTION"):
                continue
            try:
                found[target.id] = (node.lineno, ast.literal_eval(node.value) if node.value else None)
            except (ValueError, TypeError, RecursionError, MemoryError):
                problems.append(
                    f"{filename}, line {node.lineno}: {target.id} has to be written out as a literal "
                    "(it is read without running the program)"
                )
    return found


def _defined(tree: ast.Module) -> set[str]:
    """The names that the module's top level defines; "*" among them when it imports everything of another."""
    defined: set[str] = set()
    for node in _top_level(tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            defined.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return defined


def _missing_functions(defined: set[str], filename: str) -> list[str]:
    return [
        f"{filename}: {signature} is missing: a recipe defines it at the top level"
        for name, signature in NEEDED_FUNCTIONS.items()
        if name not in defined and "*" not in defined
    ]


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run in the module's scope, also those inside `if` and `try`."""
    for node in body:
        yield node
        for block in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _top_level(getattr(node, block, []))
        for handler in getattr(node, "handlers", []):
            yield from _top_level(handler.body)


def _params(found: tuple[int, object] | None, filename: str, problems: list[str]) -> list[ParamInfo]:
    if found is None:
        return []
    line, declared = found
    where = f"{filename}, line {line}"
    if not isinstance(declared, dict):
        problems.append(f"{where}: PARAMS has to be a dict of name to description")
        return []
    params = []
    for name, fields in declared.items():
        if not isinstance(name, str) or not name.isidentifier():
            problems.append(f"{where}: {name!r} in PARAMS is not a usable parameter name")
        elif not isinstance(fields, dict):
            problems.append(f"{where}: parameter {name} has to be a dict with type and default")
        else:
            outcome = _param(name, fields)
            if isinstance(outcome, str):
                problems.append(f"{where}: parameter {name}: {outcome}")
            else:
                params.append(outcome)
    return params


def _param(name: str, fields: dict[object, object]) -> ParamInfo | str:
    unknown = sorted(str(key) for key in fields if key not in PARAM_KEYS)
    if unknown:
        return f"unknown key {', '.join(unknown)} (known: {', '.join(sorted(PARAM_KEYS))})"
    kind = fields.get("type")
    if kind not in PARAM_TYPES:
        return f"type has to be one of {', '.join(PARAM_TYPES)}"
    bounds: list[float | None] = []
    for key in ("min", "max"):
        bound = fields.get(key)
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float) or math.isnan(bound)):
            return f"{key} has to be a number"
        bounds.append(bound)
    choices = fields.get("choices", ())
    if not isinstance(choices, list | tuple) or not all(isinstance(item, bool | int | float | str) for item in choices):
        return "choices has to be a list of numbers or texts"
    if kind == "choice" and not choices:
        return "type choice needs choices"
    default = fields.get("default")
    if not _fits(kind, default, tuple(choices)):
        return f"default {default!r} is not of type {kind}"
    if kind in ("int", "float") and isinstance(default, int | float):
        low, high = bounds
        if low is not None and default < low:
            return f"default {default} is below min {low}"
        if high is not None and default > high:
            return f"default {default} is above max {high}"
    text = fields.get("help", "")
    return ParamInfo(
        name=name,
        type=str(kind),
        default=default if isinstance(default, bool | int | float | str) else "",
        min=bounds[0],
        max=bounds[1],
        choices=tuple(choices),
        help=text if isinstance(text, str) else "",
    )


def _fits(kind: object, value: object, choices: tuple[ParamValue, ...]) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "choice":
        return value in choices
    return isinstance(value, str)
