"""Hyper-parameters: declared values checked, defaults filled in, text from a command line given its type."""

import math
from collections.abc import Mapping
from typing import Any

from worker_agent.protocol.job.job_spec import ParamValue
from worker_agent.trainer.outcome import TrainingFailed

Declared = Mapping[str, Mapping[str, Any]]

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


def effective_params(declared: Declared, given: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
    """Every declared parameter with the given value or its default; raises `TrainingFailed` in words."""
    unknown = sorted(set(given) - set(declared))
    if unknown:
        known = ", ".join(sorted(declared)) or "none"
        raise TrainingFailed(f"Unknown parameter {', '.join(unknown)}. The recipe's parameters are: {known}.")
    return {name: _checked(name, about, given.get(name, about.get("default"))) for name, about in declared.items()}


def from_text(declared: Declared, given: Mapping[str, str]) -> dict[str, ParamValue]:
    """`--set` values with the types the recipe declares. Unknown names are left for `effective_params` to name."""
    return {name: _parsed(name, declared.get(name, {}), text) for name, text in given.items()}


def _parsed(name: str, about: Mapping[str, Any], text: str) -> ParamValue:
    kind = about.get("type", "str")
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError:
        raise TrainingFailed(f"Parameter {name}: {text!r} is not {_article(kind)}.") from None
    if kind == "bool":
        if text.lower() not in _TRUE | _FALSE:
            raise TrainingFailed(f"Parameter {name}: {text!r} is neither true nor false.")
        return text.lower() in _TRUE
    if kind == "choice":
        return next((choice for choice in about.get("choices", []) if str(choice) == text), text)
    return text


def _checked(name: str, about: Mapping[str, Any], value: Any) -> ParamValue:
    kind = about.get("type", "str")
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    expected = {"int": int, "float": float, "bool": bool, "str": str}.get(kind)
    if expected is not None and type(value) is not expected:
        raise TrainingFailed(f"Parameter {name}: {value!r} is not {_article(kind)}.")
    if kind == "choice" and value not in about.get("choices", []):
        raise TrainingFailed(
            f"Parameter {name}: {value!r} is not one of {', '.join(map(str, about.get('choices', [])))}."
        )
    if kind in ("int", "float"):
        if not math.isfinite(value):
            raise TrainingFailed(f"Parameter {name}: {value} is not a finite number.")
        low, high = about.get("min"), about.get("max")
        if (low is not None and value < low) or (high is not None and value > high):
            raise TrainingFailed(f"Parameter {name}: {value} is outside {_range(low, high)}.")
    return value


def _article(kind: str) -> str:
    names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
    return names.get(kind, f"a value of type {kind}")


def _range(low: Any, high: Any) -> str:
    return f"{'…' if low is None else low} to {'…' if high is None else high}"
