"""Which variable is split how: declared by the recipe, or derived from the layers as Megatron-LM does (Shoeybi et al.
2019, arXiv:1909.08053): of two Dense layers in a row the first is split by columns and the second by rows, so that
nothing is said between them; attention is split by heads; an embedding by its features. What cannot be divided evenly
stays whole. Whatever is chosen, the result is the same: DTensor says what has to be said in between.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import keras

from worker_agent.trainer.outcome import TrainingFailed
from worker_agent.trainer.strategies.tensor.mesh import MODEL, WHOLE, Specs

# What stands between two Dense layers without mixing the features they split.
_ELEMENTWISE = (keras.layers.Activation, keras.layers.Dropout, keras.layers.ReLU, keras.layers.LeakyReLU)
_ATTENTION = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


def model_layouts(model: Any, declared: Mapping[str, Specs] | None, parts: int) -> dict[str, Specs]:
    """Variable path → what splits each of its axes, for every variable of the model; raises `TrainingFailed`."""
    specs = {variable.path: [WHOLE] * len(variable.shape) for variable in model.variables}
    if parts == 1:
        return specs
    if declared is not None:
        return specs | _declared(model, declared, parts)
    specs |= _derived(model, parts)
    if all(MODEL not in spec for spec in specs.values()):
        raise TrainingFailed(
            f"No variable of this model can be split over {parts} devices",
            remedy=(
                "split Dense, EinsumDense, Embedding or attention layers whose size divides by that number, or "
                "declare build_layouts(params) in the recipe"
            ),
        )
    return specs


def _declared(model: Any, declared: Mapping[str, Specs], parts: int) -> dict[str, Specs]:
    specs: dict[str, Specs] = {}
    unused = dict.fromkeys(declared)
    for variable in model.variables:
        pattern = next((known for known in declared if _names(known, variable.path)), None)
        if pattern is None:
            continue
        unused.pop(pattern, None)
        specs[variable.path] = _checked(pattern, list(declared[pattern]), variable, parts)
    if unused:
        raise TrainingFailed(f"build_layouts(): {', '.join(unused)} is the path of no variable.")
    return specs


def _names(pattern: str, path: str) -> bool:
    """True when the pattern is the path's, or that of its end: `wide_*/kernel` names `model/wide_1/kernel`."""
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}")


def _checked(pattern: str, spec: Specs, variable: Any, parts: int) -> Specs:
    where = f"build_layouts(): {pattern} for {variable.path} of shape {tuple(variable.shape)}"
    if len(spec) != len(variable.shape):
        raise TrainingFailed(f"{where} needs {len(variable.shape)} entries, not {len(spec)}.")
    if not set(spec) <= {MODEL, WHOLE} or spec.count(MODEL) > 1:
        raise TrainingFailed(f'{where} may hold "{MODEL}" once and "{WHOLE}" otherwise, not {spec}.')
    if MODEL in spec and variable.shape[spec.index(MODEL)] % parts:
        raise TrainingFailed(f"{where}: {variable.shape[spec.index(MODEL)]} does not divide by {parts} devices.")
    return spec


def _derived(model: Any, parts: int) -> dict[str, Specs]:
    found: dict[str, Specs] = {}
    by_columns: set[int] = set()
    for layer in model._flatten_layers(include_self=False):
        if any(weight.path in found for weight in layer.variables):
            continue  # part of an attention layer that is done
        match layer:
            case keras.layers.Embedding() if layer.output_dim % parts == 0:
                found[layer.embeddings.path] = [WHOLE, MODEL]
            case _ if isinstance(layer, _ATTENTION):
                found |= _attention(layer, parts)
            case keras.layers.Dense() if id(_feeder(layer)) in by_columns and layer.kernel.shape[0] % parts == 0:
                found |= _with_bias(layer, [MODEL, WHOLE], [WHOLE])
            case keras.layers.Dense() if layer.units % parts == 0:
                by_columns.add(id(layer))
                found |= _with_bias(layer, [WHOLE, MODEL], [MODEL])
            case keras.layers.EinsumDense():
                found |= _einsum(layer, parts)
    return found


def _attention(layer: Any, parts: int) -> dict[str, Specs]:
    """Every projection by its heads: an axis of its kernel and of its bias, but for the output's."""
    found: dict[str, Specs] = {}
    for weight in layer.variables:
        side, _, name = weight.path.rpartition("/")
        if side.endswith("attention_output"):
            spec = [MODEL, WHOLE, WHOLE] if name == "kernel" else [WHOLE]
        else:
            spec = [WHOLE, MODEL, WHOLE] if name == "kernel" else [MODEL, WHOLE]
        if len(spec) != len(weight.shape) or (MODEL in spec and weight.shape[spec.index(MODEL)] % parts):
            return {weight.path: [WHOLE] * len(weight.shape) for weight in layer.variables}
        found[weight.path] = spec
    return found


def _einsum(layer: Any, parts: int) -> dict[str, Specs]:
    """By the first axis of the kernel that is the output's and divides."""
    inputs, _, output = layer.equation.replace(" ", "").partition("->")
    axes = inputs.split(",")[1]
    for place, axis in enumerate(axes):
        if axis in output and layer.kernel.shape[place] % parts == 0:
            kernel = [MODEL if i == place else WHOLE for i in range(len(axes))]
            bias_axes = layer.bias_axes or ""
            return _with_bias(layer, kernel, [MODEL if one == axis else WHOLE for one in bias_axes])
    return {}


def _with_bias(layer: Any, kernel: Specs, bias: Specs) -> dict[str, Specs]:
    found = {layer.kernel.path: kernel}
    if layer.bias is not None:
        found[layer.bias.path] = bias if len(bias) == len(layer.bias.shape) else [WHOLE] * len(layer.bias.shape)
    return found


def _feeder(layer: Any) -> Any:
    """The layer whose output this one gets, elementwise ones skipped; None where the model has no graph."""
    try:
        source = layer.input._keras_history.operation
        while isinstance(source, _ELEMENTWISE):
            source = source.input._keras_history.operation
    except (AttributeError, ValueError):
        return None
    return source
