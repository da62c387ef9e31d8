"""Reading single values that people or programs typed: the value, or `Bad` with what to write instead. Never raises."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.domain.job.recipes import ParamInfo
from worker_agent.protocol.job.job_spec import ParamValue

TEXT_PARAM_CHARS = 1000
SAFE_INTEGER = 2**53
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Marks that turn the direction of what follows (Unicode TR 9): a name with one could pose as another.
_TURNS = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile(r"[\t\n\r\x85\u2028\u2029]")


@dataclass(frozen=True)
class Bad:
    """The value cannot be used; `message` says what can."""

    message: str


def integer(raw: object, low: int, high: int) -> int | Bad:
    """A whole number within [low, high], as a number or as digits."""
    wanted = f"has to be a whole number from {low} to {high}"
    value = _whole(raw)
    if value is None:
        return Bad(wanted)
    return value if low <= value <= high else Bad(f"{wanted}, not {_short(value)}")


def number(raw: object, low: float | None, high: float | None) -> float | Bad:
    """A finite number within [low, high], as a number or as text."""
    wanted = "has to be a number" + _range(low, high)
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return Bad(wanted)
    try:
        value = float(raw.replace("_", "x") if isinstance(raw, str) else raw)
    except (ValueError, OverflowError):
        return Bad(wanted)
    if not math.isfinite(value):
        return Bad(f"{wanted}: not a number and infinity cannot be used")
    if (low is not None and value < low) or (high is not None and value > high):
        return Bad(f"{wanted}, not {value:g}")
    return value


def text(raw: object, *, limit: int, lines: bool = False, empty: bool = False) -> str | Bad:
    """Printable text of at most `limit` characters; on one line unless `lines`."""
    if not isinstance(raw, str):
        return Bad("has to be a text")
    value = raw if lines else raw.strip()
    if not value and not empty:
        return Bad("must not be empty")
    if len(value) > limit:
        return Bad(f"has {len(value)} characters; at most {limit} fit")
    if _CONTROL.search(value) or _TURNS.search(value) or (not lines and _BREAKS.search(value)):
        return Bad("contains a control character: write plain text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        return Bad("contains half of a character (a lone surrogate): write plain text")
    return value


def choice(raw: object, options: Sequence[str]) -> str | Bad:
    """One of the options."""
    if isinstance(raw, str) and raw in options:
        return str(raw)
    return Bad(f"has to be one of {', '.join(options)}")


def boolean(raw: object) -> bool | Bad:
    """True or false, as such or as a word."""
    if isinstance(raw, bool):
        return raw
    words = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
    if isinstance(raw, str) and raw.strip().lower() in words:
        return words[raw.strip().lower()]
    return Bad("has to be true or false")


def param_value(raw: object, param: ParamInfo) -> ParamValue | Bad:
    """A hyper-parameter's value by its declared type, range and choices."""
    if param.type == "bool":
        return boolean(raw)
    if param.type == "str":
        return text(raw, limit=TEXT_PARAM_CHARS, lines=True, empty=True)
    if param.type == "choice":
        return _option(raw, param.choices)
    if param.type == "float":
        return number(raw, param.min, param.max)
    low = -SAFE_INTEGER if param.min is None else math.ceil(max(param.min, -SAFE_INTEGER))
    high = SAFE_INTEGER if param.max is None else math.floor(min(param.max, SAFE_INTEGER))
    return integer(raw, low, high)


def _whole(raw: object) -> int | None:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, float) and math.isfinite(raw) and raw.is_integer() and abs(raw) < SAFE_INTEGER:
        return int(raw)
    if isinstance(raw, str) and _INTEGER.fullmatch(raw.strip()):
        return int(raw)
    return None


def _option(raw: object, options: Sequence[ParamValue]) -> ParamValue | Bad:
    for option in options:
        if type(raw) is type(option) and raw == option:
            return option
    for option in options:
        if isinstance(raw, str) and raw == str(option):
            return option
    return Bad(f"has to be one of {', '.join(map(str, options))}")


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if low is None:
        return f" of at most {high:g}"
    if high is None:
        return f" of at least {low:g}"
    return f" from {low:g} to {high:g}"


def _short(value: int) -> str:
    return str(value) if abs(value) < SAFE_INTEGER else "so large a number"
