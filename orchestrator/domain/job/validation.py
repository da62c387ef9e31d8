"""A job request as typed in a form or sent by REST → typed fields, or what is wrong with each and how to mend it.

Nothing raises, whatever the request holds. `services/jobs/submission.py` is the caller; it resolves cluster and program
first, because hyper-parameters are checked against what the recipe declares. Which values cannot go together is said
by `combinations.py`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath

from orchestrator.domain.job.recipes import RecipeInfo
from orchestrator.domain.job.strategies import WORDS
from orchestrator.domain.job.values import Bad, boolean, choice, integer, number, param_value, text
from orchestrator.domain.words import counted
from worker_agent.protocol.job.job_spec import ParamValue
from worker_agent.protocol.job.requirements import LINE_CHARS, LINES_MAX, lines_of, problem_of
from worker_agent.protocol.states import Keras, Kind, Strategy

KNOWN_FIELDS = (
    "name",
    "cluster",
    "recipe",
    "code",
    "kind",
    "params",
    "strategy",
    "workers",
    "ps",
    "devices_per_worker",
    "chief",
    "global_batch_size",
    "epochs",
    "accumulation",
    "learning_rate",
    "lr_scaling",
    "warmup_epochs",
    "precision",
    "jit",
    "steps_per_execution",
    "seed",
    "communication",
    "cross_device",
    "min_shard_bytes",
    "model_parallel",
    "micro_batches",
    "tpu",
    "sharding",
    "validation",
    "checkpoint_steps",
    "checkpoints_kept",
    "resume_from",
    "arguments",
    "working_dir",
    "tf_config",
    "keras",
    "requirements",
    "env",
    "priority",
    "time_limit_s",
    "max_restarts",
)
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
ENV_RESERVED = frozenset({"TF_CONFIG", "TMPDIR", "CUDA_VISIBLE_DEVICES", "TF_USE_LEGACY_KERAS", "GRPC_FAIL_FAST"})
ENV_LIMIT = 100
ENV_VALUE_CHARS = 4096
MAX_WORKERS = 1024
MAX_PS = 256
MAX_DEVICES = 64
MAX_BATCH = 1 << 24
MAX_EPOCHS = 100_000
MAX_SEED = 2**31 - 1
MAX_PRIORITY = 100
MAX_TIME_LIMIT_S = 30 * 86_400
MAX_BYTES = 1 << 40
MAX_STEPS = 10**9
MAX_PARTS = 4096
MAX_KEPT = 1000
MAX_RESTARTS = 100
MAX_ARGUMENTS = 200
ARGUMENT_CHARS = 4096
TF_CONFIG_CHARS = 100_000
CHOICES: dict[str, tuple[str, ...]] = {
    "lr_scaling": ("none", "linear", "sqrt"),
    "precision": ("float32", "mixed_float16", "mixed_bfloat16"),
    "communication": ("auto", "ring", "nccl"),
    "cross_device": ("auto", "nccl", "hierarchical_copy", "reduction_to_one_device"),
    "sharding": ("auto", "data", "file", "off"),
    "validation": ("gang", "evaluator"),
}
# Whole numbers with the same default under every strategy: lowest, highest, default.
COUNTS: dict[str, tuple[int, int, int]] = {
    "accumulation": (1, MAX_PARTS, 1),
    "steps_per_execution": (0, 1_000_000, 0),
    "min_shard_bytes": (0, MAX_BYTES, 0),
    "micro_batches": (1, MAX_PARTS, 4),
    "checkpoint_steps": (0, MAX_STEPS, 0),
    "checkpoints_kept": (0, MAX_KEPT, 3),
    "resume_from": (0, 2**53, 0),
    "seed": (0, MAX_SEED, 0),
    "priority": (-MAX_PRIORITY, MAX_PRIORITY, 0),
    "time_limit_s": (0, MAX_TIME_LIMIT_S, 0),
    "max_restarts": (0, MAX_RESTARTS, 0),
}


@dataclass
class Fields:
    """What could be read of a request: `values` by field name (JobSpec's names), `errors` as (field, message)."""

    values: dict[str, object] = field(default_factory=dict)
    errors: list[tuple[str, str]] = field(default_factory=list)


def read_fields(request: Mapping[object, object], recipe: RecipeInfo | None) -> Fields:
    """All fields but cluster and program. A field that is absent, None or "" takes its default."""
    found = Fields()
    for key in request:
        if key not in KNOWN_FIELDS:
            shown = str(key)[:40]
            found.errors.append((shown, f"there is no field {shown!r}; the fields are {', '.join(KNOWN_FIELDS)}"))
    names = [strategy.value for strategy in Strategy]
    strategy = _require(found, request, "strategy", lambda raw: choice(raw, names), f"choose one of {', '.join(names)}")
    if strategy is not None:
        found.values["strategy"] = Strategy(str(strategy))
    kind = _take(found, request, "kind", lambda raw: choice(raw, [each.value for each in Kind]), Kind.RECIPE.value)
    if kind is not None:
        found.values["kind"] = Kind(str(kind))
    _require(found, request, "name", lambda raw: text(raw, limit=100), "give the job a name")
    _read_sizes(found, request)
    _read_learning(found, request)
    for name, (low, high, default) in COUNTS.items():
        _take(found, request, name, partial(integer, low=low, high=high), default)
    for name, options in CHOICES.items():
        _take(found, request, name, partial(choice, options=options), options[0])
    _take(found, request, "jit", boolean, default=False)
    _take(found, request, "tpu", lambda raw: text(raw, limit=200), "")
    _read_script(found, request)
    _take(found, request, "env", _env, {})
    if found.values.get("kind") is not Kind.SCRIPT:
        _read_params(found, request.get("params"), recipe)
    return found


def env_problem(raw: object) -> str:
    """What is wrong with a set of environment variables, or ""."""
    outcome = _env(raw)
    return outcome.message if isinstance(outcome, Bad) else ""


def _read_sizes(found: Fields, request: Mapping[object, object]) -> None:
    """A field that the strategy reads has a default that makes something of it; model_parallel splits over all."""
    strategy = found.values.get("strategy")
    reads = WORDS[strategy].fields if isinstance(strategy, Strategy) else frozenset()
    several = 2 if "workers" in reads else 1
    alone = "devices_per_worker" in reads and several == 1
    workers = _take(found, request, "workers", lambda raw: integer(raw, 1, MAX_WORKERS), several)
    devices = _take(found, request, "devices_per_worker", lambda raw: integer(raw, 1, MAX_DEVICES), 2 if alone else 1)
    _take(found, request, "ps", lambda raw: integer(raw, 0, MAX_PS), 1 if "ps" in reads else 0)
    _take(found, request, "chief", boolean, default=False)
    _take(found, request, "global_batch_size", lambda raw: integer(raw, 1, MAX_BATCH), 64)
    whole = workers * devices if isinstance(workers, int) and isinstance(devices, int) else 1
    default = whole if "model_parallel" in reads and found.values.get("kind") is not Kind.SCRIPT else 1
    _take(found, request, "model_parallel", lambda raw: integer(raw, 1, MAX_WORKERS * MAX_DEVICES), default)


def _read_learning(found: Fields, request: Mapping[object, object]) -> None:
    epochs = _take(found, request, "epochs", lambda raw: integer(raw, 1, MAX_EPOCHS), 5)
    _take(found, request, "learning_rate", lambda raw: number(raw, 1e-12, 1000.0), None)
    most = epochs if isinstance(epochs, int) else MAX_EPOCHS
    _take(found, request, "warmup_epochs", partial(_warmup, most=most), 0.0)


def _read_script(found: Fields, request: Mapping[object, object]) -> None:
    keras = _take(found, request, "keras", lambda raw: choice(raw, [each.value for each in Keras]), None)
    if keras is not None:
        found.values["keras"] = Keras(str(keras))
    _take(found, request, "arguments", _arguments, [])
    _take(found, request, "working_dir", _folder, "")
    _take(found, request, "tf_config", _tf_config, "")
    _take(found, request, "requirements", _requirements, "")


def _read_params(found: Fields, raw: object, recipe: RecipeInfo | None) -> None:
    given = {} if _absent(raw) else raw
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


def _warmup(raw: object, most: int) -> float | Bad:
    outcome = number(raw, 0.0, float(most))
    return Bad(f"{outcome.message} (the job has {counted(most, 'epoch')})") if isinstance(outcome, Bad) else outcome


def _env(raw: object) -> dict[str, str] | Bad:
    if not isinstance(raw, Mapping):
        return Bad("has to be an object of names and values")
    if len(raw) > ENV_LIMIT:
        return Bad(f"at most {ENV_LIMIT} variables; there are {len(raw)}")
    values: dict[str, str] = {}
    for name, value in raw.items():
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            return Bad(f"{str(name)[:40]!r} is no variable name: letters, digits and _, not beginning with a digit")
        if name in ENV_RESERVED or name.startswith("TRAINYARD_"):
            return Bad(f"{name} is set by Trainyard itself: leave it out")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return Bad(f"{name} has to be a text")
        cleaned = text(str(value), limit=ENV_VALUE_CHARS, lines=True, empty=True)
        if isinstance(cleaned, Bad):
            return Bad(f"{name} {cleaned.message}")
        if len(f"{cleaned}.".splitlines()) > 1:
            return Bad(f"{name} contains a line break: a variable's value is one line")
        values[name] = cleaned
    return values


def _arguments(raw: object) -> list[str] | Bad:
    if not isinstance(raw, list | tuple):
        return Bad('has to be a list of texts, such as ["--epochs", "3"]')
    if len(raw) > MAX_ARGUMENTS:
        return Bad(f"at most {MAX_ARGUMENTS} arguments; there are {len(raw)}")
    values: list[str] = []
    for number_, value in enumerate(raw, start=1):
        cleaned = text(value, limit=ARGUMENT_CHARS, lines=True, empty=True)
        if isinstance(cleaned, Bad):
            return Bad(f"argument {number_} {cleaned.message}")
        values.append(cleaned)
    return values


def _folder(raw: object) -> str | Bad:
    """A folder inside the program's, as a POSIX path without detours."""
    cleaned = text(raw, limit=500)
    if isinstance(cleaned, Bad):
        return cleaned
    path = PurePosixPath(cleaned)
    if path.is_absolute() or ".." in path.parts or "\\" in cleaned:
        return Bad("has to be a folder inside the program's own, such as src/train: no leading / and no ..")
    return "" if str(path) == "." else str(path)


def _tf_config(raw: object) -> str | Bad:
    """JSON text, or the object itself as REST may send it."""
    if isinstance(raw, Mapping):
        try:
            raw = json.dumps(raw, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return Bad("has to be JSON")
    return text(raw, limit=TF_CONFIG_CHARS, lines=True)


def _requirements(raw: object) -> str | Bad:
    """The lines without comments, held to the rule that nodes install by."""
    cleaned = text(raw, limit=LINES_MAX * LINE_CHARS, lines=True)
    if isinstance(cleaned, Bad):
        return cleaned
    problem = problem_of(cleaned)
    return Bad(problem) if problem else "\n".join(lines_of(cleaned))


def _require(
    found: Fields, request: Mapping[object, object], name: str, read: Callable[[object], object], missing: str
) -> object:
    """Read a field that has no default."""
    if _absent(request.get(name)):
        found.errors.append((name, missing))
        return None
    return _take(found, request, name, read, None)


def _take(
    found: Fields, request: Mapping[object, object], name: str, read: Callable[[object], object], default: object
) -> object:
    """Read one field into `found`; returns its value, or None when it is wrong."""
    raw = request.get(name)
    if _absent(raw):
        found.values[name] = default
        return default
    outcome = read(raw)
    if isinstance(outcome, Bad):
        found.errors.append((name, outcome.message))
        return None
    found.values[name] = outcome
    return outcome


def _absent(raw: object) -> bool:
    return raw is None or (isinstance(raw, str) and not raw.strip())
