"""What is particular to a job's strategy, as its processes told it (`Replica.facts`): the panel of the job page.

Facts are a process's own words, so any shape of them is possible: what cannot be read is left out, never raised.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dashboard.forms import mapping_of
from dashboard.templatetags.trainyard import filesize, group, replica_name
from orchestrator.domain.words import counted
from orchestrator.queries import telemetry
from orchestrator.queries.rows import Job, Replica
from worker_agent.protocol.job.choices import Sharding
from worker_agent.protocol.job.strategies import label, row_named
from worker_agent.protocol.states import Role

ROWS_SHOWN = 40
UNSHARDED = "unsharded"
TEXT_CHARS = 300
ROLES = {Role.CHIEF: "chief", Role.WORKER: "worker", Role.PS: "parameter server"}


@dataclass(frozen=True)
class Table:
    """A table of the panel. `numbers` are the places of columns that hold numbers; `left_out` counts rows not shown."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: frozenset[int] = frozenset()
    left_out: int = 0

    @property
    def cells(self) -> list[list[tuple[str, bool]]]:
        """The rows, each cell with whether it is a number."""
        return [[(text, place in self.numbers) for place, text in enumerate(row)] for row in self.rows]

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The head, each name with whether its column holds numbers."""
        return [(text, place in self.numbers) for place, text in enumerate(self.head)]


@dataclass(frozen=True)
class StrategyPanel:
    """Everything the panel prints; falsy while no process has told anything."""

    title: str
    summary: str
    rows: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.tables)


def strategy_panel(job: Job, gang: list[Replica]) -> StrategyPanel:
    """The panel of the job's present attempt; `gang` are its replicas, the leader first."""
    told = [(replica_name(str(replica)), mapping_of(replica.facts)) for replica in gang]
    known = {name: value for _who, facts in reversed(told) for name, value in facts.items()}
    row = row_named(job.strategy)
    title, summary = label(job.strategy), row.summary if row else ""
    if not known:
        return StrategyPanel(title, summary)
    rows = [*_sync(known), *_model(known), *_measured(job), *_stages_said(known), *_data(known), *_resumed(known)]
    tables = [
        _stages(known, gang),
        _layouts(known),
        _loads(known),
        _updates(known),
        _partitioned(known),
        _processes(told),
    ]
    return StrategyPanel(
        title,
        summary,
        [(name, value[:TEXT_CHARS]) for name, value in rows if value],
        [table for table in tables if table is not None],
    )


def _sync(known: Mapping[str, object]) -> Iterable[tuple[str, str]]:
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
    yield "Accumulation", f"{_count(passes)} passes per step" if _number(passes, 0) > 1 else ""


def _model(known: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    yield "Keras", _text(known.get("keras"))
    precision = _text(known.get("precision"))
    yield "Precision", "" if precision == "float32" else precision.replace("_", " ")
    yield "Compiled with XLA", "yes" if known.get("jit") is True else ""
    yield "Parameters in total", _count(known.get("parameters_total"))


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


def _stages_said(known: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    yield "Micro-batches", _count(known.get("micro_batches"))
    ideal, overlap = known.get("bubble"), known.get("overlap")
    yield "Idle share, at best", f"{_number(ideal, 0) * 100:.0f} % of a step" if _is_number(ideal) else ""
    yield "Overlap reached", f"{_number(overlap, 0) * 100:.0f} %" if _is_number(overlap) else _text(overlap)


def _data(known: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    sharding = mapping_of(known.get("sharding"))
    policy, reason = _text(sharding.get("policy")), _text(sharding.get("reason"))
    files = _count(sharding.get("files"))
    many = f", {files} files" if files and files != "0" else ""
    said = {each.value: each.label for each in Sharding}.get(policy.lower(), policy)
    why = f". {reason[:1].upper()}{reason[1:]}" if reason else ""
    yield "Data", f"{said}{many}{why}" if policy else ""


def _resumed(known: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    resumed = mapping_of(known.get("resumed"))
    step, checkpoint = _count(resumed.get("step")), _text(resumed.get("checkpoint"))
    yield "Started from", f"step {step} (checkpoint {checkpoint})" if step and checkpoint else ""


def _stages(known: Mapping[str, object], gang: list[Replica]) -> Table | None:
    nodes = {str(replica.index): replica.node_name for replica in gang}
    rows = [
        (
            f"stage {_text(each.get('stage'))}",
            nodes.get(_text(each.get("worker")), ""),
            _text(each.get("device")),
            _list(each.get("layers")),
            _count(each.get("parameters")),
        )
        for each in _mappings(known.get("stages"))
    ]
    return _table("Stages", ("Stage", "Node", "Device", "Layers", "Parameters"), rows, {4})


def _layouts(known: Mapping[str, object]) -> Table | None:
    rows = [
        (
            _text(each.get("variable")),
            _list(each.get("shape"), " × "),
            _split_over(each.get("shape"), each.get("layout")),
            _bytes(each.get("bytes_here")),
        )
        for each in _mappings(known.get("layouts"))
    ]
    return _table("Layouts", ("Variable", "Shape", "Split over", "Held by a process"), rows, {3})


def _split_over(shape: object, layout: object) -> str:
    """`4 over model`: which of a variable's dimensions is split over which of the mesh; "" where none is."""
    if not isinstance(shape, list) or not isinstance(layout, list) or len(shape) != len(layout):
        return _list(layout)
    pairs = zip(map(_text, shape), map(_text, layout), strict=True)
    return ", ".join(f"{size} over {axis}" for size, axis in pairs if axis not in ("", UNSHARDED))


def _loads(known: Mapping[str, object]) -> Table | None:
    rows = [
        (_ps(each.get("ps")), _count(each.get("variables")), _bytes(each.get("bytes")))
        for each in _mappings(known.get("ps_load"))
    ]
    return _table("Load of the parameter servers", ("Server", "Variables", "Held"), rows, {1, 2})


def _updates(known: Mapping[str, object]) -> Table | None:
    """What each worker has done of the training under parameter servers; told at the end of every epoch."""
    counts = known.get("steps_of_workers")
    made = [_number(each, 0) for each in counts] if isinstance(counts, list) else []
    rows = [
        (f"worker {place}", _count(number), f"{number / sum(made) * 100:.0f} %" if sum(made) else "")
        for place, number in enumerate(made)
    ]
    return _table("Updates by each worker", ("Worker", "Updates", "Share"), rows, {1, 2})


def _partitioned(known: Mapping[str, object]) -> Table | None:
    rows = [(_text(each.get("variable")), _list(each.get("parts"))) for each in _mappings(known.get("partitioned"))]
    return _table("Split variables", ("Variable", "Parts"), rows, {1})


def _processes(told: list[tuple[str, Mapping[str, object]]]) -> Table | None:
    rows = [
        (
            who,
            _devices(facts.get("devices")),
            _count(facts.get("parameters")),
            _bytes(facts.get("memory_bytes")),
        )
        for who, facts in told
        if any(name in facts for name in ("devices", "parameters", "memory_bytes"))
    ]
    head = ("Process", "Computes on", "Parameters held", "Peak memory")
    return _table("Memory per process", head, rows, {2, 3})


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: set[int]) -> Table | None:
    """Without the columns in which nothing stands; None without rows."""
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    if not rows or not kept:
        return None
    return Table(
        title,
        tuple(head[place] for place in kept),
        [tuple(row[place][:TEXT_CHARS] or "–" for place in kept) for row in rows[:ROWS_SHOWN]],  # noqa: RUF001
        frozenset(kept.index(place) for place in numbers if place in kept),
        max(0, len(rows) - ROWS_SHOWN),
    )


def _last(views: Iterable[telemetry.SeriesView], attempt: int) -> float | None:
    found = [view.values[-1] for view in views if view.attempt == attempt and view.values]
    return next((value for value in found if _is_number(value)), None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and _is_number(value) else default


def _count(value: object) -> str:
    return str(group(value)) if _is_number(value) else ""


def _bytes(value: object) -> str:
    return str(filesize(value)) if _is_number(value) else ""


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


def _mappings(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
