"""Hyper-parameters: values checked, defaults filled in, text from a command line given its type."""

from collections.abc import Mapping

from worker_agent.protocol.job.job_spec import ParamValue
from worker_agent.protocol.job.recipe_text import PARAM_TYPES, ParamInfo
from worker_agent.trainer.outcome import TrainingFailed

Declared = tuple[ParamInfo, ...]

_SWITCHES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def effective_params(declared: Declared, given: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
    """Every declared parameter with the given value or its default; raises `TrainingFailed` in words."""
    unknown = sorted(set(given) - {param.name for param in declared})
    if unknown:
        known = ", ".join(sorted(param.name for param in declared)) or "none"
        raise TrainingFailed(f"Unknown parameter {', '.join(unknown)}. The recipe's parameters are: {known}.")
    values = {param.name: given.get(param.name, param.default) for param in declared}
    for param in declared:
        if refusal := param.refusal(values[param.name]):
            raise TrainingFailed(f"Parameter {param.name}: {values[param.name]!r} {refusal}.")
        if param.type == "float":
            values[param.name] = float(values[param.name])
    return values


def from_text(declared: Declared, given: Mapping[str, str]) -> dict[str, ParamValue]:
    """`--set` values with the types the recipe declares. Unknown names are left for `effective_params` to name."""
    params = {param.name: param for param in declared}
    return {name: _parsed(params[name], text) if name in params else text for name, text in given.items()}


def _parsed(param: ParamInfo, text: str) -> ParamValue:
    try:
        match param.type:
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "bool":
                return _SWITCHES[text.lower()]
            case "choice":
                return next((choice for choice in param.choices if str(choice) == text), text)
    except (ValueError, KeyError):
        raise TrainingFailed(f"Parameter {param.name}: {text!r} is not {PARAM_TYPES[param.type]}.") from None
    return text
