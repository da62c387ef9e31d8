"""A job request as typed in a form or sent by REST → typed fields, or what is wrong with each and how to mend it.

Nothing raises, whatever the request holds. `services/jobs/submission.py` is the caller; it resolves cluster and program
first, because hyper-parameters are checked against what the recipe declares. Which values cannot go together is said
by `combinations.py`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from orchestrator.domain.job.values import Bad, param_value, read, text
from worker_agent.protocol.findings import Finding
from worker_agent.protocol.job import printed
from worker_agent.protocol.job.field import Field
from worker_agent.protocol.job.job_spec import FIELDS, ParamValue
from worker_agent.protocol.job.recipe_text import RecipeInfo
from worker_agent.protocol.job.requirements import lines_of, problem_of
from worker_agent.protocol.job.strategies import defaults_of
from worker_agent.protocol.states import Keras, Kind, Strategy

KNOWN_FIELDS = ("recipe", "code", "params", *FIELDS)
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
ENV_RESERVED = frozenset({"TF_CONFIG", "TMPDIR", "CUDA_VISIBLE_DEVICES", "GRPC_FAIL_FAST"})
KERAS_VARIABLE = "TF_USE_LEGACY_KERAS"
ENV_VALUE_CHARS = 4096
ARGUMENT_CHARS = 4096
PROBLEMS_TOLD = 5
_MISSING = {"name": "give the job a name", "strategy": f"choose one of {', '.join(Strategy)}"}


@dataclass
class Fields:
    """What could be read of a request: `values` by field name (JobSpec's names), `errors` as (field, message)."""

    values: dict[str, object] = field(default_factory=dict)
    errors: list[tuple[str, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def read_fields(request: Mapping[str, object], recipe: RecipeInfo | None) -> Fields:
    """All fields but cluster and program. A field that is absent, None or "" takes its default."""
    found = Fields()
    for key in request:
        if key not in KNOWN_FIELDS:
            shown = str(key)[:40]
            found.errors.append((shown, f"there is no field {shown!r}; the fields are {', '.join(KNOWN_FIELDS)}"))
    for row in FIELDS.values():
        raw = request.get(row.name)
        if row.name == "cluster" or (is_absent(raw) and not row.required):
            continue
        value = Bad(_MISSING[row.name]) if is_absent(raw) else _READERS.get(row.name, _read)(raw, row)
        if isinstance(value, Bad):
            found.errors.append((row.name, value.message))
        else:
            found.values[row.name] = value
    _fill_defaults(found, request)
    _take_keras_from_env(found, chosen=request.get("keras"))
    if found.values.get("kind") is not Kind.SCRIPT:
        _read_params(found, request.get("params"), recipe)
    return found


def is_absent(raw: object) -> bool:
    """Whether a field of a request says nothing."""
    return raw is None or (isinstance(raw, str) and not raw.strip())


def env_problem(raw: object) -> str:
    """What is wrong with a cluster's set of environment variables, or ""."""
    outcome = _env(raw, FIELDS["env"])
    if isinstance(outcome, dict) and KERAS_VARIABLE in outcome:
        return f"{KERAS_VARIABLE} is set by each job's field `keras`: leave it out"
    return outcome.message if isinstance(outcome, Bad) else ""


def _fill_defaults(found: Fields, request: Mapping[str, object]) -> None:
    """What the request leaves out: the strategy's own default where it has one, else that of the field."""
    defaults = {row.name: row.default for row in FIELDS.values() if not row.required}
    strategy, kind = found.values.get("strategy"), found.values.get("kind", Kind.RECIPE)
    if isinstance(strategy, Strategy) and isinstance(kind, Kind):
        defaults |= defaults_of(strategy, kind, found.values)
    found.values |= {name: value for name, value in defaults.items() if is_absent(request.get(name))}


def _read(raw: object, row: Field) -> Any:
    return text(raw, limit=row.longest or 0) if row.type is str else read(raw, row.type, row.low, row.high)


def _read_params(found: Fields, raw: object, recipe: RecipeInfo | None) -> None:
    given = {} if is_absent(raw) else raw
    if not isinstance(given, Mapping):
        found.errors.append(("params", "has to be an object of parameter names and values"))
        return
    if recipe is None:
        return
    known = [param.name for param in recipe.params]
    for name in given:
        if name not in known:
            listed = f"it has {', '.join(known)}" if known else "it has none"
            found.errors.append((f"params.{str(name)[:40]}", f"the recipe declares no such parameter; {listed}"))
    values: dict[str, ParamValue] = {}
    for param in recipe.params:
        value = given.get(param.name)
        if value is None or (value == "" and param.type != "str"):
            values[param.name] = param.default
            continue
        outcome = param_value(value, param)
        if isinstance(outcome, Bad):
            found.errors.append((f"params.{param.name}", outcome.message))
        else:
            values[param.name] = outcome
    found.values["params"] = values


def _env(raw: object, row: Field) -> dict[str, str] | Bad:
    if not isinstance(raw, Mapping):
        return Bad("has to be an object of names and values")
    if row.longest is not None and len(raw) > row.longest:
        return Bad(f"at most {row.longest} variables; there are {len(raw)}")
    read = {name: _variable(name, value) for name, value in raw.items()}
    wrong = [value.message for value in read.values() if isinstance(value, Bad)]
    if wrong:
        return Bad("; ".join(wrong[:PROBLEMS_TOLD]))
    return {name: value for name, value in read.items() if isinstance(value, str)}


def _variable(name: object, value: object) -> str | Bad:
    if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
        return Bad(f"{str(name)[:40]!r} is not a variable name: use letters, digits and _, with no digit first")
    if name in ENV_RESERVED or name.startswith("TRAINYARD_"):
        return Bad(f"{name} is set by Trainyard itself: leave it out")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return Bad(f"{name} has to be text")
    cleaned = text(str(value), limit=ENV_VALUE_CHARS, lines=True, empty=True)
    if isinstance(cleaned, Bad):
        return Bad(f"{name} {cleaned.message}")
    if len(f"{cleaned}.".splitlines()) > 1:
        return Bad(f"{name} contains a line break: a variable's value is one line")
    return cleaned


def _take_keras_from_env(found: Fields, *, chosen: object) -> None:
    """The variable that tf.keras goes by (tensorflow/python/util/lazy_loader.py) is the field `keras` here."""
    env = found.values.get("env")
    asked = env.pop(KERAS_VARIABLE, None) if isinstance(env, dict) else None
    if asked is None:
        return
    meant = Keras.TF_KERAS if asked.lower() in ("1", "true") else Keras.KERAS3
    if is_absent(chosen) or chosen == meant:
        found.values["keras"] = meant
        what, why = f"{KERAS_VARIABLE} was taken as the field `keras`", f"it is `{meant}` now"
        found.findings.append(Finding(what, why, "Set the field instead of the variable", blocks=False))
    else:
        message = (
            f"{KERAS_VARIABLE}={asked} asks for `{meant}`, the field `keras` for `{chosen}`: leave one of them out"
        )
        found.errors.append(("env", message))


def _arguments(raw: object, row: Field) -> list[str] | Bad:
    if not isinstance(raw, list | tuple):
        return Bad('has to be a list of texts, such as ["--epochs", "3"]')
    if row.longest is not None and len(raw) > row.longest:
        return Bad(f"at most {row.longest} arguments; there are {len(raw)}")
    values: list[str] = []
    for number, value in enumerate(raw, start=1):
        cleaned = text(value, limit=ARGUMENT_CHARS, lines=True, empty=True)
        if isinstance(cleaned, Bad):
            return Bad(f"argument {number} {cleaned.message}")
        values.append(cleaned)
    return values


def _folder(raw: object, row: Field) -> str | Bad:
    """A folder inside the program's, as a POSIX path without detours."""
    cleaned = text(raw, limit=row.longest or 0)
    if isinstance(cleaned, Bad):
        return cleaned
    path = PurePosixPath(cleaned)
    if path.is_absolute() or ".." in path.parts or "\\" in cleaned:
        return Bad("has to be a folder inside the program's own, such as src/train: no leading / and no ..")
    return "" if str(path) == "." else str(path)


def _tf_config(raw: object, row: Field) -> str | Bad:
    """JSON text, or the object itself as REST may send it."""
    if isinstance(raw, Mapping):
        try:
            raw = json.dumps(raw, allow_nan=False)
        except RecursionError:
            return Bad('is nested too deeply: write {"cluster": {role: [addresses]}}')
        except (TypeError, ValueError):
            return Bad("has to be JSON")
    return text(raw, limit=row.longest or 0, lines=True)


def _requirements(raw: object, row: Field) -> str | Bad:
    """The lines without comments, held to the rule that nodes install by."""
    cleaned = text(raw, limit=row.longest or 0, lines=True)
    if isinstance(cleaned, Bad):
        return cleaned
    problem = problem_of(cleaned)
    return Bad(problem) if problem else "\n".join(lines_of(cleaned))


def _printed(raw: object, row: Field) -> str | Bad:
    """The names, held to the rule that nodes read by."""
    cleaned = text(raw, limit=row.longest or 0, lines=True)
    if isinstance(cleaned, Bad):
        return cleaned
    problem = printed.problem_of(cleaned)
    return Bad(problem) if problem else ", ".join(printed.names_in(cleaned))


_READERS: dict[str, Callable[[object, Field], Any]] = {
    "env": _env,
    "arguments": _arguments,
    "working_dir": _folder,
    "tf_config": _tf_config,
    "requirements": _requirements,
    "printed": _printed,
}
