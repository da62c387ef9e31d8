"""What is particular to a job's strategy, as its processes told it (`Replica.facts`): the panel of the job page.

Facts are a process's own words, so any shape of them is possible: what cannot be read is left out, never raised.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dashboard.forms import mapping_of
from dashboard.templatetags.trainyard import MISSING, filesize, group, replica_name
from orchestrator.domain.hot_server import hot_server
from orchestrator.domain.words import counted
from orchestrator.queries import telemetry
from orchestrator.queries.rows import Job, Replica
from worker_agent.protocol.job.choices import Sharding
from worker_agent.protocol.job.strategies import label, row_named
from worker_agent.protocol.states import Kind, Role

# What one process on one device tells as well.
OF_ANY_JOB = {"Keras", "Peak memory", "Replicas in sync", "Data"}
ROWS_SHOWN = 40
UNSHARDED = "unsharded"
TEXT_CHARS = 300
ROLES = {Role.CHIEF: "chief", Role.WORKER: "worker", Role.PS: "parameter server"}

Facts = Mapping[str, object]
Row = TypeVar("Row")

# The columns that hold numbers, by their names.
NUMBERS = (
    *("Parameters", "Held by a process", "Variables", "Held", "Updates", "Share", "Parts"),
    *("Parameters held", "Peak memory"),
)


@dataclass(frozen=True)
class Table:
    """A table of the panel; `left_out` counts rows not shown."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    left_out: int = 0

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The head, each name with whether its column holds numbers."""
        return [(name, name in NUMBERS) for name in self.head]

    @property
    def cells(self) -> list[list[tuple[str, bool]]]:
        """The rows, each cell with whether it is a number."""
        return [[(text, name in NUMBERS) for text, name in zip(row, self.head, strict=True)] for row in self.rows]


@dataclass(frozen=True)
class StrategyPanel:
    """Everything the panel prints, the `finding` first; falsy while it would say nothing particular."""

    title: str
    summary: str
    finding: str = ""
    rows: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.tables or {name for name, _ in self.rows} - OF_ANY_JOB)


def strategy_panel(job: Job, gang: list[Replica]) -> StrategyPanel:
    """The panel of the job's present attempt; `gang` are its replicas, the leader first."""
    told = [(replica_name(str(replica)), mapping_of(replica.facts)) for replica in gang]
    known = {name: value for _who, facts in reversed(told) for name, value in facts.items()}
    title, summary = _of_strategy(job, _text(known.get("strategy")))
    if not known:
        return StrategyPanel(title, summary)
    devices = known.get("devices")
    several = len(told) > 1 or (isinstance(devices, list) and len(devices) > 1)
    rows = [*_model_and_gang(known, several=several), *_measured(job), *_course(known)]
    return StrategyPanel(
        title,
        summary,
        _hot_server(job, known),
        [(name, value[:TEXT_CHARS]) for name, value in rows if value],
        [table for table in _tables(known, told if several else [], gang) if table is not None],
    )


def _of_strategy(job: Job, built: str) -> tuple[str, str]:
    """What is being looked at, and what it does: a script does what it has `built` itself, as far as it told."""
    row = row_named(job.strategy)
    if row is None or job.typed_spec.kind is Kind.RECIPE or built == row.class_name != "":
        return label(job.strategy), row.summary if row else ""
    return "the program", f"It built {built}." if built else ""


def _hot_server(job: Job, known: Facts) -> str:
    held = {
        ps: _number(each.get("bytes"))
        for each in _mappings(known.get("ps_load"))
        if isinstance(ps := each.get("ps"), int) and _number(each.get("bytes")) >= 0
    }
    if (hot := hot_server(held)) is None:
        return ""
    least = job.typed_spec.min_shard_bytes
    remedy = f"Lower min_shard_bytes from {group(least)}" if least else "Set min_shard_bytes"
    return (
        f"ps {hot.ps} holds {hot.share * 100:.0f} % of the bytes on {len(held)} parameter servers, and all workers wait"
        f" for it. {remedy}, so that large variables are split over all of them."
    )


def _model_and_gang(known: Facts, *, several: bool) -> Iterable[tuple[str, str]]:
    gang = mapping_of(known.get("gang"))
    told = [(gang.get(role), noun) for role, noun in ROLES.items()]
    yield "Gang", ", ".join(counted(number, noun) for number, noun in told if isinstance(number, int))
    yield "Replicas in sync", _count(known.get("replicas_in_sync"))
    communication = _text(known.get("communication"))
    yield "Gradients summed by", "" if communication == "none" else communication
    mesh = mapping_of(known.get("mesh"))
    sizes = {name: _count(size) for name, size in mesh.items() if _is_number(size)}
    yield "Mesh", f"{' × '.join(sizes.values())} ({' × '.join(sizes)})" if sizes else ""
    passes = known.get("accumulation")
    yield "Accumulation", f"{_count(passes)} passes per step" if _number(passes) > 1 else ""
    yield "Keras", _text(known.get("keras"))
    precision = _text(known.get("precision"))
    yield "Precision", "" if precision == "float32" else precision.replace("_", " ")
    yield "Compiled with XLA", "yes" if known.get("jit") is True else ""
    yield "Parameters in total", _count(known.get("parameters_total"))
    yield "Peak memory", "" if several else _bytes(known.get("memory_bytes"))


def _measured(job: Job) -> Iterable[tuple[str, str]]:
    row = row_named(job.strategy)
    names = row.measured if row else ()
    series = telemetry.series(job, names=list(names), points=2) if names else {}
    last = {name: _last(series.get(name, ()), job.attempt) for name in names}
    if (mean := last.get("staleness")) is not None:
        most = last.get("staleness_max")
        worst = f", {most:g} at most" if most is not None else ""
        yield "Staleness", f"{mean:.2f} updates on average{worst}, most recently"
    if (bubble := last.get("bubble")) is not None:
        yield "Idle share, measured", f"{bubble * 100:.0f} % of a step, measured once, in the first steps"


def _course(known: Facts) -> Iterable[tuple[str, str]]:
    yield "Micro-batches", _count(known.get("micro_batches"))
    ideal, overlap = known.get("bubble"), known.get("overlap")
    yield "Idle share, at best", f"{_number(ideal) * 100:.0f} % of a step" if _is_number(ideal) else ""
    yield "Overlap reached", f"{_number(overlap) * 100:.0f} %" if _is_number(overlap) else _text(overlap)
    sharding = mapping_of(known.get("sharding"))
    policy, reason = _text(sharding.get("policy")), _text(sharding.get("reason"))
    files = _count(sharding.get("files"))
    many = f", {files} files" if files and files != "0" else ""
    said = {each.value: each.label for each in Sharding}.get(policy.lower(), policy)
    why = f". {reason[:1].upper()}{reason[1:]}" if reason else ""
    yield "Data", f"{said}{many}{why}" if policy else ""
    resumed = mapping_of(known.get("resumed"))
    step, checkpoint = _count(resumed.get("step")), _text(resumed.get("checkpoint"))
    yield "Started from", f"step {step} (checkpoint {checkpoint})" if step and checkpoint else ""


def _tables(known: Facts, told: list[tuple[str, Facts]], gang: list[Replica]) -> Iterable[Table | None]:
    nodes = {str(replica.index): replica.node_name for replica in gang}
    yield _table(
        "Stages",
        _mappings(known.get("stages")),
        {
            "Stage": lambda each: f"stage {_text(each.get('stage'))}",
            "Node": lambda each: nodes.get(_text(each.get("worker")), ""),
            "Device": lambda each: _text(each.get("device")),
            "Layers": lambda each: _list(each.get("layers")),
            "Parameters": lambda each: _count(each.get("parameters")),
        },
    )
    yield _table(
        "Layouts",
        _mappings(known.get("layouts")),
        {
            "Variable": lambda each: _text(each.get("variable")),
            "Shape": lambda each: _list(each.get("shape"), " × "),
            "Split over": lambda each: _split_over(each.get("shape"), each.get("layout")),
            "Held by a process": lambda each: _bytes(each.get("bytes_here")),
        },
    )
    yield _table(
        "Load of the parameter servers",
        _mappings(known.get("ps_load")),
        {
            "Server": lambda each: _ps(each.get("ps")),
            "Variables": lambda each: _count(each.get("variables")),
            "Held": lambda each: _bytes(each.get("bytes")),
        },
    )
    # What each worker has done of the training under parameter servers; told at the end of every epoch.
    counts = known.get("steps_of_workers")
    made = [_number(each) for each in counts] if isinstance(counts, list) else []
    yield _table(
        "Updates by each worker",
        list(enumerate(made)),
        {
            "Worker": lambda each: f"worker {each[0]}",
            "Updates": lambda each: _count(each[1]),
            "Share": lambda each: f"{each[1] / sum(made) * 100:.0f} %" if sum(made) else "",
        },
    )
    yield _table(
        "Split variables",
        _mappings(known.get("partitioned")),
        {"Variable": lambda each: _text(each.get("variable")), "Parts": lambda each: _list(each.get("parts"))},
    )
    yield _table(
        "Memory per process",
        [(who, facts) for who, facts in told if facts.keys() & {"devices", "parameters", "memory_bytes"}],
        {
            "Process": lambda each: each[0],
            "Computes on": lambda each: _devices(each[1].get("devices")),
            "Parameters held": lambda each: _count(each[1].get("parameters")),
            "Peak memory": lambda each: _bytes(each[1].get("memory_bytes")),
        },
    )


def _table(title: str, rows: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]) -> Table | None:
    """Without the columns in which nothing stands; None if that is so in all."""
    written = {name: [text_of(row)[:TEXT_CHARS] for row in rows] for name, text_of in columns.items()}
    kept = {name: texts for name, texts in written.items() if any(texts)}
    if not kept:
        return None
    lines = [tuple(text or MISSING for text in line) for line in zip(*kept.values(), strict=True)]
    return Table(title, tuple(kept), lines[:ROWS_SHOWN], max(0, len(lines) - ROWS_SHOWN))


def _split_over(shape: object, layout: object) -> str:
    """`4 over model`: which of a variable's dimensions is split over which of the mesh; "" where none is."""
    if not isinstance(shape, list) or not isinstance(layout, list) or len(shape) != len(layout):
        return _list(layout)
    pairs = zip(map(_text, shape), map(_text, layout), strict=True)
    return ", ".join(f"{size} over {axis}" for size, axis in pairs if axis not in ("", UNSHARDED))


def _last(views: Iterable[telemetry.SeriesView], attempt: int) -> float | None:
    found = [view.values[-1] for view in views if view.attempt == attempt and view.values]
    return next((value for value in found if _is_number(value)), None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and _is_number(value) else 0.0


def _count(value: object) -> str:
    return group(value) if _is_number(value) else ""


def _bytes(value: object) -> str:
    return filesize(value) if _is_number(value) else ""


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _list(value: object, between: str = ", ") -> str:
    return between.join(filter(None, map(_text, value))) if isinstance(value, list) else _text(value)


def _devices(value: object) -> str:
    """TensorFlow's names without job, replica and task, which the row says already."""
    names = value if isinstance(value, list) else [value]
    return ", ".join(filter(None, (_text(name).rpartition("device:")[2] for name in names)))


def _ps(value: object) -> str:
    return f"ps {value}" if isinstance(value, int) else replica_name(_text(value))


def _mappings(value: object) -> list[Facts]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
