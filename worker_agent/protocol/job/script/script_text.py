"""What the text of an unmodified script says of itself, without running it. One rule for both sides of the wire.

The control plane reads it when a program comes in, to propose a Keras and to say how the roles will run; the launcher
on the node reads it again, and decides by the same words who runs the script. Pure: `ast` alone.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from worker_agent.protocol.job.gang_shape import has_chief
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.job.python_text import parsed
from worker_agent.protocol.job.script.old_keras import uses_old_keras
from worker_agent.protocol.job.script.script_imports import reached
from worker_agent.protocol.job.strategies import STRATEGIES
from worker_agent.protocol.states import Keras, Role, Strategy

PREFERRED_ENTRIES = ("main.py", "train.py")

# With these worker 0 of a program of TensorFlow 1 leads the others; parameter servers are only joined.
_TENSORFLOW_1 = frozenset({"replica_device_setter", "MonitoredTrainingSession", "SyncReplicasOptimizer", "Supervisor"})
# By these a program of DTensor meets the other processes of its gang; any other mesh is of one process's own devices.
_DTENSOR_MEETS = frozenset({"initialize_accelerator_system", "initialize_multi_client", "create_distributed_mesh"})
# What libraries read from the environment while they are imported, or before TensorFlow starts.
READ_AT_IMPORT = ("TF_", "XLA_", "KERAS_", "OMP_", "OPENBLAS_", "MKL_", "KMP_", "PYTHON", "LD_")
_HARMLESS = frozenset({"TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL"})


@dataclass(frozen=True)
class ScriptInfo:
    """What a script's files say. `strategies` are those whose classes they name, in the order of `Strategy`.

    `keras` is the Keras they import by its own name, None when they say `tf.keras` (either will do) or nothing.
    `old_keras`: they use what only tf_keras has. `dtensor`: they use DTensor, and with `dtensor_meets` a mesh over
    several processes. `serves`: they start a `tf.distribute.Server` themselves, so every role runs them; with
    `one_process` it is for a cluster of their own, not that of TF_CONFIG. `worker_leads`: their worker 0 leads, as in
    TensorFlow 1, and they name no chief. `sets_environment`: they set variables that count before TensorFlow is
    imported. `problems` are sentences that name the line; empty means the text can be run.
    """

    strategies: tuple[Strategy, ...] = ()
    keras: Keras | None = None
    old_keras: bool = False
    dtensor: bool = False
    dtensor_meets: bool = False
    serves: bool = False
    one_process: bool = False
    worker_leads: bool = False
    sets_environment: bool = False
    problems: tuple[str, ...] = ()

    def proposed_keras(self, strategy: Strategy) -> Keras:
        """The Keras to propose: the script's own, else what suits its age, else what suits the strategy."""
        if self.keras is not None:
            return self.keras
        if self.old_keras or self.dtensor or Keras.KERAS3 not in STRATEGIES[strategy].keras:
            return Keras.TF_KERAS
        return Keras.KERAS3

    @property
    def proposed_strategy(self) -> Strategy | None:
        """The strategy that it names, when it names exactly one; tensor parallelism for DTensor."""
        if self.dtensor:
            return Strategy.TENSOR_PARALLEL
        return self.strategies[0] if len(self.strategies) == 1 else None


@dataclass
class _Words:
    """The words of all files of a program that matter here."""

    names: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)


def inspect_script(sources: Iterable[tuple[str, str]]) -> ScriptInfo:
    """What a program's Python files say: `(file name, text)` each, the entry first. Those that it never imports say
    nothing. A file that Python refuses is a problem when it is the entry, and is passed over otherwise: it may be a
    template or of another version."""
    read = {filename: parsed(text, filename) for filename, text in sources}
    entry = next(iter(read))
    problem, words = _problem_of(read[entry], entry), _Words()
    trees = {filename: tree for filename, tree in read.items() if isinstance(tree, ast.Module)}
    own_files = [trees[filename] for filename in reached(trees, entry)] if entry in trees else []
    for tree in own_files:
        _read(tree, words)
    named = words.names | words.imports
    own = "keras" in words.imports or any(path.startswith("keras.") for path in words.imports)
    legacy = any(path.split(".")[0] == "tf_keras" for path in words.imports) or "TF_USE_LEGACY_KERAS" in words.texts
    serves = "Server" in words.calls
    return ScriptInfo(
        strategies=tuple(strategy for strategy, row in STRATEGIES.items() if row.class_name in named),
        keras=Keras.TF_KERAS if legacy else Keras.KERAS3 if own else None,
        old_keras=uses_old_keras(own_files),
        dtensor="dtensor" in named,
        dtensor_meets=bool(named & _DTENSOR_MEETS),
        serves=serves,
        one_process=serves and "TF_CONFIG" not in words.texts and "TFConfigClusterResolver" not in named,
        worker_leads=serves and bool(named & _TENSORFLOW_1) and Role.CHIEF not in words.texts,
        sets_environment=any(text.startswith(READ_AT_IMPORT) and text not in _HARMLESS for text in words.texts),
        problems=(problem,) if problem else (),
    )


def runs_script(role: Role, spec: JobSpec, info: ScriptInfo) -> bool:
    """Whether a replica of this role runs the script.

    Always, with one exception: under parameter servers with a chief, when no file of the program calls `Server(`, the
    launcher itself starts the `tf.distribute.Server` of each ps and worker, and chief and evaluator alone run the
    script.
    """
    is_led = STRATEGIES[spec.strategy].coordinated and has_chief(spec)
    return not is_led or info.serves or role in (Role.CHIEF, Role.EVALUATOR)


def entry_of(names: Iterable[str], *, asked: str = "", preferred: Iterable[str] = PREFERRED_ENTRIES) -> str | None:
    """Which file of a program is run: the one asked for, else the first of the preferred ones at the top, else the only
    `.py` there. None when there is no such file, or several."""
    files = list(names)
    if asked:
        plain = str(PurePosixPath(asked))
        return plain if plain in files else None
    top = [name for name in files if "/" not in name and name.endswith(".py")]
    known = next((name for name in preferred if name in top), None)
    return known or (top[0] if len(top) == 1 else None)


def _problem_of(tree: ast.Module | str, entry: str) -> str:
    if isinstance(tree, str):
        return tree
    is_empty = not any(map(_does_something, tree.body))
    return f"{entry}: this program does nothing: write one, or give the file that is to run" if is_empty else ""


def _does_something(statement: ast.stmt) -> bool:
    """Whether it is more than a docstring, `...` or `pass`."""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return not is_constant and not isinstance(statement, ast.Pass)


def _read(tree: ast.Module, words: _Words) -> None:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                words.imports.update(alias.name for alias in names)
                words.paths.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                words.imports.add(module)
                words.paths.update(f"{module}.{alias.name}" for alias in names)
                words.names.update(alias.name for alias in names)
            case ast.Name(id=name):
                words.names.add(name)
            case ast.Attribute(attr=name):
                words.names.add(name)
                words.paths.add(".".join(_dotted(node)))
            case ast.Constant(value=str(value)):
                words.texts.add(value)
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                words.calls.add(name)


def _dotted(node: ast.expr) -> Iterator[str]:
    """`tf.distribute.Server` as its three names; what is not a name is left out."""
    if isinstance(node, ast.Attribute):
        yield from _dotted(node.value)
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
