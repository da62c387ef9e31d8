"""A job request as typed in a form or sent by REST → typed fields, or what is wrong with each and how to mend it.

Nothing raises, whatever the request holds. `services/submission.py` is the caller; it resolves cluster and program
first, because hyper-parameters are checked against what the recipe declares.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.domain.recipes import RecipeInfo
from orchestrator.domain.values import Bad, choice, integer, number, param_value, text
from worker_agent.protocol.job_spec import ParamValue
from worker_agent.protocol.states import Strategy

KNOWN_FIELDS = (
    "name",
    "cluster",
    "recipe",
    "code",
    "params",
    "strategy",
    "workers",
    "ps",
    "devices_per_worker",
    "global_batch_size",
    "epochs",
    "learning_rate",
    "lr_scaling",
    "warmup_epochs",
    "seed",
    "env",
    "priority",
    "time_limit_s",
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
LR_SCALINGS = ("none", "linear")
# Strategies that agents can run.
OFFERED = (
    Strategy.ONE_DEVICE,
    Strategy.MIRRORED,
    Strategy.MULTI_WORKER_MIRRORED,
    Strategy.PARAMETER_SERVER,
)


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
    names = [strategy.value for strategy in OFFERED]
    strategy = _require(found, request, "strategy", lambda raw: choice(raw, names), f"choose one of {', '.join(names)}")
    if strategy is not None:
        found.values["strategy"] = Strategy(str(strategy))
    _require(found, request, "name", lambda raw: text(raw, limit=100), "give the job a name")
    _read_sizes(found, request)
    _read_learning(found, request)
    _take(found, request, "priority", lambda raw: integer(raw, -MAX_PRIORITY, MAX_PRIORITY), 0)
    _take(found, request, "time_limit_s", lambda raw: integer(raw, 0, MAX_TIME_LIMIT_S), 0)
    _take(found, request, "env", _env, {})
    _read_params(found, request.get("params"), recipe)
    return found


def env_problem(raw: object) -> str:
    """What is wrong with a set of environment variables, or ""."""
    outcome = _env(raw)
    return outcome.message if isinstance(outcome, Bad) else ""


def _read_sizes(found: Fields, request: Mapping[object, object]) -> None:
    strategy = found.values.get("strategy")
    several = strategy in (Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER)
    parameter_server = strategy is Strategy.PARAMETER_SERVER
    workers = _take(found, request, "workers", lambda raw: integer(raw, 1, MAX_WORKERS), 2 if several else 1)
    ps = _take(found, request, "ps", lambda raw: integer(raw, 0, MAX_PS), 1 if parameter_server else 0)
    default_devices = 2 if strategy is Strategy.MIRRORED else 1
    devices = _take(found, request, "devices_per_worker", lambda raw: integer(raw, 1, MAX_DEVICES), default_devices)
    _take(found, request, "global_batch_size", lambda raw: integer(raw, 1, MAX_BATCH), 64)
    if strategy in (Strategy.ONE_DEVICE, Strategy.MIRRORED) and workers not in (1, None):
        found.errors.append(("workers", f"{strategy} runs in one process: set 1, or choose multi_worker_mirrored"))
    if strategy is Strategy.ONE_DEVICE and devices not in (1, None):
        found.errors.append(("devices_per_worker", "one_device uses one device: set 1, or choose mirrored"))
    if parameter_server and devices not in (1, None):
        found.errors.append(("devices_per_worker", "under parameter_server each worker computes on one device: set 1"))
    if parameter_server and ps == 0:
        found.errors.append(("ps", "parameter_server needs at least one parameter server: set 1 or more"))
    if strategy is not None and not parameter_server and ps not in (0, None):
        found.errors.append(("ps", f"{strategy} has no parameter servers: set 0, or choose parameter_server"))


def _read_learning(found: Fields, request: Mapping[object, object]) -> None:
    epochs = _take(found, request, "epochs", lambda raw: integer(raw, 1, MAX_EPOCHS), 5)
    rate = _take(found, request, "learning_rate", lambda raw: number(raw, 1e-12, 1000.0), None)
    scaling = _take(found, request, "lr_scaling", lambda raw: choice(raw, LR_SCALINGS), "none")
    _take(found, request, "seed", lambda raw: integer(raw, 0, MAX_SEED), 0)
    most = epochs if isinstance(epochs, int) else MAX_EPOCHS
    warmup = _take(found, request, "warmup_epochs", lambda raw: number(raw, 0.0, float(most)), 0.0)
    if scaling == "linear" and rate is None and _absent(request.get("learning_rate")):
        found.errors.append(("learning_rate", "linear scaling multiplies a learning rate: give one"))
    if scaling == "none" and warmup not in (0.0, None):
        found.errors.append(("warmup_epochs", "warm-up leads to a scaled rate: set lr_scaling to linear, or this to 0"))


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
        values[name] = cleaned
    return values


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
