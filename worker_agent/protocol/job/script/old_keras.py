"""What a program uses that Keras 3 no longer has and tf_keras does. Texts are parsed, and never run.

`tests/trainer/script/test_old_keras.py` runs a program for each rule under both. What depends on values that only the
running program knows is passed over.
"""

import ast
from collections.abc import Iterable, Iterator

_NAMES = frozenset(
    {"DatasetCreator", "SidecarEvaluator", "LossScaleOptimizerV1", "reset_states", "set_learning_phase"}
    | {"fit_generator", "evaluate_generator", "predict_generator", "LocallyConnected1D", "LocallyConnected2D"}
)
_PATHS = (
    *("keras.optimizers.legacy", "keras.optimizers.experimental", "keras.experimental", "keras.layers.experimental"),
    *("keras.utils.experimental", "keras.dtensor", "compat.v1.keras", "compat.v1.layers"),
)
_OPTIMIZERS = frozenset({"SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam", "Ftrl"})
# Arguments by the functions that no longer take them; "" stands for any function.
_ARGUMENTS = {
    "": frozenset({"experimental_aggregate_gradients", "experimental_run_tf_function", "reset_metrics"}),
    "ModelCheckpoint": frozenset({"period"}),
    **dict.fromkeys(("fit", "evaluate", "predict"), frozenset({"workers", "use_multiprocessing", "max_queue_size"})),
    **dict.fromkeys(_OPTIMIZERS, frozenset({"lr"})),
}
_WHOLE, _WEIGHTS = (".keras", ".h5", ".hdf5"), (".weights.h5",)


def uses_old_keras(trees: Iterable[ast.Module]) -> bool:
    """Whether the files of a program do."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    homes = dict(home for node in nodes for home in _imported(node))
    paths = {path for node in nodes for path in _paths(node, homes)}
    calls = [(node, _name_of(node.func)) for node in nodes if isinstance(node, ast.Call)]
    called = {name for _, name in calls}
    # Optimizers of TensorFlow 1 have it still.
    minimizes = "minimize" in called and any("keras.optimizers" in path for path in paths)
    is_graph = not called.isdisjoint({"disable_v2_behavior", "disable_eager_execution"})
    return (
        any(path.rpartition(".")[2] in _NAMES for path in paths)
        or any(old in path for path in paths for old in _PATHS)
        or any(path.endswith("optimizer.lr") for path in paths)
        or any(_is_old_call(call, name) for call, name in calls)
        or (minimizes and not any(".train." in path and path.endswith("Optimizer") for path in paths))
        or (is_graph and "fit" in called)
    )


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What a name of the program stands for: `tf` for `tensorflow.compat.v1`."""
    if isinstance(node, ast.Import):
        yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _paths(node: ast.AST, homes: dict[str, str]) -> Iterator[str]:
    """What is named here, in full: `tensorflow.keras.optimizers.legacy`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (path for _, path in _imported(node))
    elif isinstance(node, ast.Attribute):
        parts = [node.attr]
        while isinstance(node := node.value, ast.Attribute):
            parts.append(node.attr)
        if isinstance(node, ast.Name):
            parts.append(homes.get(node.id, node.id))
        yield ".".join(reversed(parts))


def _is_old_call(call: ast.Call, name: str) -> bool:
    given = {word.arg: word.value for word in call.keywords if word.arg}
    if not given.keys().isdisjoint(_ARGUMENTS[""] | _ARGUMENTS.get(name, frozenset())):
        return True
    path = call.args[0] if call.args else given.get("filepath")
    match name:
        case "save_weights":
            return _ends_otherwise(path, _WEIGHTS)
        case "ModelCheckpoint":
            weights = given.get("save_weights_only")
            is_whole = weights is None or (isinstance(weights, ast.Constant) and not weights.value)
            return _ends_otherwise(path, _WHOLE if is_whole else _WEIGHTS)
        case "load_model":
            return _ends_otherwise(path, _WHOLE)
        case "save" if isinstance(call.func, ast.Attribute):
            return _name_of(call.func.value).lower().endswith("model") and _ends_otherwise(path, _WHOLE)
    return False


def _ends_otherwise(path: ast.expr | None, endings: tuple[str, ...]) -> bool:
    """Whether a file's name is written out, and has none of these endings."""
    last = path.values[-1] if isinstance(path, ast.JoinedStr) and path.values else path
    text = last.value if isinstance(last, ast.Constant) else None
    return isinstance(text, str) and not text.endswith(endings)


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
