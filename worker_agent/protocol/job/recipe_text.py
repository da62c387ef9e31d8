"""What the text of a recipe says of itself, without running it. One rule for both sides of the wire.

The control plane reads it when a program comes in, to ask for its hyper-parameters; the trainer reads it again before
anything expensive starts.
"""

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from worker_agent.protocol.job.job_spec import ParamValue
from worker_agent.protocol.job.python_text import parsed

REQUIRED = {"build_model": ("params",), "build_dataset": ("params", "split")}  # with what they have to take
PARAM_KEYS = frozenset({"type", "default", "min", "max", "choices", "help"})
PARAM_TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "choice": ""}

_KINDS: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool, "str": str}
_BRANCHING = (ast.If, ast.Try, ast.ExceptHandler, ast.With)
_READ = ("PARAMS", "TITLE", "DESCRIPTION")


@dataclass(frozen=True)
class ParamInfo:
    """One declared hyper-parameter. `min` and `max` are inclusive; `choices` is used by type "choice" alone."""

    name: str
    type: str
    default: ParamValue
    min: float | None = None
    max: float | None = None
    choices: tuple[ParamValue, ...] = ()
    help: str = ""

    def refusal(self, value: object) -> str:
        """Why it cannot have this value, as the end of a sentence; "" where it can."""
        if self.type == "choice":
            return "" if value in self.choices else f"is not one of {', '.join(map(str, self.choices))}"
        if not isinstance(value, _KINDS[self.type]) or (isinstance(value, bool) and self.type != "bool"):
            return f"is not {PARAM_TYPES[self.type]}"
        if isinstance(value, int | float) and self.type != "bool":
            if not math.isfinite(value):
                return "is not a finite number"
            if (self.min is not None and value < self.min) or (self.max is not None and value > self.max):
                low, high = ("…" if limit is None else limit for limit in (self.min, self.max))
                return f"is outside {low} to {high}"
        return ""


@dataclass(frozen=True)
class RecipeInfo:
    """A recipe as its text declares it. `problems` are sentences that name the line; empty means it can be run.

    `stages` is True when it says where it can be cut (`build_stages`), or may, by an import of everything.
    """

    title: str
    description: str
    params: tuple[ParamInfo, ...]
    problems: tuple[str, ...] = ()
    stages: bool = False


def inspect_recipe(text: str, filename: str) -> RecipeInfo:
    """What the program declares: TITLE, DESCRIPTION, PARAMS, and every problem that would stop it from running."""
    tree = parsed(text, filename)
    if isinstance(tree, str):
        return RecipeInfo("", "", (), (tree,))
    problems: list[str] = []
    literals = _literals(tree, filename, problems)
    params = _params(literals.get("PARAMS"), filename, problems)
    defined = _defined(tree)
    problems += [
        f"{filename}: {name}({', '.join(wanted)}) is missing: a recipe defines it at the top level"
        for name, wanted in REQUIRED.items()
        if defined.isdisjoint({name, "*"})
    ]
    title, description = (literals.get(name, (0, ""))[1] for name in ("TITLE", "DESCRIPTION"))
    return RecipeInfo(
        title=title if isinstance(title, str) else "",
        description=description if isinstance(description, str) else "",
        params=tuple(params),
        problems=tuple(problems),
        stages=not defined.isdisjoint({"build_stages", "*"}),
    )


def _literals(tree: ast.Module, filename: str, problems: list[str]) -> dict[str, tuple[int, object]]:
    """Name → (line, value) of the module-level assignments that Trainyard reads."""
    found: dict[str, tuple[int, object]] = {}
    for node in tree.body:
        for name in _assigned(node):
            if name not in _READ or not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            try:
                found[name] = (node.lineno, ast.literal_eval(node.value) if node.value else None)
            except (ValueError, TypeError, RecursionError, MemoryError):
                problems.append(
                    f"{filename}, line {node.lineno}: {name} has to be written out as a literal "
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
        defined.update(_assigned(node))
    return defined


def _assigned(node: ast.AST) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def _top_level(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements that run in the module's scope, also those inside `if` and `try`."""
    for node in body:
        yield node
        blocks = ("body", "handlers", "orelse", "finalbody") if isinstance(node, _BRANCHING) else ()
        for block in blocks:
            yield from _top_level(getattr(node, block, []))


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
            try:
                params.append(_param(name, fields))
            except ValueError as problem:
                problems.append(f"{where}: parameter {name}: {problem}")
    return params


def _param(name: str, fields: dict[object, object]) -> ParamInfo:
    """The parameter so described; raises `ValueError` with what is wrong."""
    unknown = sorted(str(key) for key in fields if key not in PARAM_KEYS)
    if unknown:
        raise ValueError(f"unknown key {', '.join(unknown)} (known: {', '.join(sorted(PARAM_KEYS))})")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in PARAM_TYPES:
        raise ValueError(f"type has to be one of {', '.join(PARAM_TYPES)}")
    choices = fields.get("choices", ())
    if not isinstance(choices, list | tuple) or not all(isinstance(item, bool | int | float | str) for item in choices):
        raise ValueError("choices has to be a list of numbers or texts")
    if kind == "choice" and not choices:
        raise ValueError("type choice needs choices")
    default, text = fields.get("default"), fields.get("help", "")
    param = ParamInfo(
        name=name,
        type=kind,
        default=default if isinstance(default, bool | int | float | str) else "",
        min=_bound(fields, "min"),
        max=_bound(fields, "max"),
        choices=tuple(choices),
        help=text if isinstance(text, str) else "",
    )
    if refusal := param.refusal(default):
        raise ValueError(f"default {default!r} {refusal}")
    return param


def _bound(fields: dict[object, object], key: str) -> float | None:
    bound = fields.get(key)
    if bound is None:
        return None
    if isinstance(bound, bool) or not isinstance(bound, int | float) or math.isnan(bound):
        raise ValueError(f"{key} has to be a number")
    return bound
