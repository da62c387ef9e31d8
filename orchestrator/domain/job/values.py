"""Reading single values that people or programs typed: the value, or `Bad` with what to write instead. Never raises.

pydantic holds numbers, switches and choices to their type and limits, as a number or as text; the sentences are ours.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from worker_agent.protocol.job.job_spec import ParamValue
from worker_agent.protocol.job.recipe_text import ParamInfo

TEXT_PARAM_CHARS = 1000
SAFE_INTEGER = 2**53
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Marks that turn the direction of what follows (Unicode TR 9): a name with one could pose as another.
_TURNS = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile(r"[\t\n\r\x85\u2028\u2029]")


@dataclass(frozen=True)
class Bad:
    """The value cannot be used; `message` says what can."""

    message: str


def read(raw: object, kind: Any, low: float | None = None, high: float | None = None) -> Any:
    """A value of `kind` (int, float, bool or an enum) within [low, high], or `Bad`."""
    wanted = _wanted(kind, low, high)
    if kind in (int, float) and (isinstance(raw, bool | bytes) or (isinstance(raw, str) and "_" in raw)):
        return Bad(wanted)
    try:
        return _adapter(kind, low, high).validate_python(raw)
    except ValidationError as refused:
        problem = refused.errors(include_input=False, include_url=False)[0]["type"]
    if problem in ("greater_than_equal", "less_than_equal"):
        return Bad(f"{wanted}, not {_short(raw)}")
    return Bad(f"{wanted}: not a number and infinity cannot be used" if problem == "finite_number" else wanted)


def text(raw: object, *, limit: int, lines: bool = False, empty: bool = False) -> str | Bad:
    """Printable text of at most `limit` characters; on one line unless `lines`."""
    if not isinstance(raw, str):
        return Bad("has to be text")
    value = raw if lines else raw.strip()
    if not value and not empty:
        return Bad("must not be empty")
    if len(value) > limit:
        return Bad(f"has {len(value)} characters; at most {limit} are allowed")
    if _CONTROL.search(value) or _TURNS.search(value) or (not lines and _BREAKS.search(value)):
        return Bad("contains a control character: write plain text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        return Bad("contains half of a character (a lone surrogate): write plain text")
    return value


def param_value(raw: object, param: ParamInfo) -> ParamValue | Bad:
    """A hyper-parameter's value by its declared type, range and choices."""
    if param.type == "str":
        return text(raw, limit=TEXT_PARAM_CHARS, lines=True, empty=True)
    if param.type == "choice":
        return _option(raw, param.choices)
    value: ParamValue | Bad
    if param.type == "int":
        low = -SAFE_INTEGER if param.min is None else math.ceil(max(param.min, -SAFE_INTEGER))
        high = SAFE_INTEGER if param.max is None else math.floor(min(param.max, SAFE_INTEGER))
        value = read(raw, int, low, high)
    else:
        value = read(raw, bool) if param.type == "bool" else read(raw, float, param.min, param.max)
    return value


@lru_cache(maxsize=1000)
def _adapter(kind: Any, low: float | None, high: float | None) -> TypeAdapter[Any]:
    limits = Field(ge=low, le=high, allow_inf_nan=False) if kind is float else Field(ge=low, le=high)
    return TypeAdapter(Annotated[kind, limits] if kind in (int, float) else kind)


def _option(raw: object, options: Sequence[ParamValue]) -> ParamValue | Bad:
    alike = [option for option in options if type(raw) is type(option) and raw == option]
    found = alike or [option for option in options if raw == str(option)]
    return found[0] if found else Bad(f"one of {', '.join(map(str, options))}")


def _wanted(kind: Any, low: float | None, high: float | None) -> str:
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"a whole number from {low} to {high}"
    if kind is not float:
        return f"one of {', '.join(kind)}"
    if low is not None and high is not None:
        return f"a number from {low:g} to {high:g}"
    limits = f" of at least {low:g}" if low is not None else "" if high is None else f" of at most {high:g}"
    return f"a number{limits}"


def _short(raw: object) -> str:
    is_long = isinstance(raw, int) and abs(raw) >= SAFE_INTEGER
    shown = "" if is_long else str(raw).strip()
    return shown if 0 < len(shown) <= len(str(SAFE_INTEGER)) + 1 else "so large a number"
