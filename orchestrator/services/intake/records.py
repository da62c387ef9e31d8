"""What replicas said, stored exactly once: slices of spool streams become points, log text, progress and moves.

`reports.apply` calls `store` inside its transaction. A slice is fenced (its node and attempt must be the replica's),
cut by the stream's cursor, stored, and the cursor moved, all in that one transaction; so the wire may repeat itself,
and nothing is doubled. A slice that begins beyond the cursor is not stored: the answer tells the agent where to go on.
"""

import logging
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from math import isfinite

import msgspec
from django.db.models import F

from orchestrator import enqueue, live, series
from orchestrator.many_rows import update_rows
from orchestrator.models import Cursor, Node, Replica
from orchestrator.services import fencing, transitions
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.gang import gang
from orchestrator.services.intake import log_text, progress
from orchestrator.services.intake.log_text import Output
from orchestrator.services.nodes import dirty
from worker_agent.protocol.codec import decode_record
from worker_agent.protocol.records import (
    STEP_PART,
    Checkpointed,
    Exit,
    Facts,
    FactValue,
    Failure,
    Gap,
    Log,
    Phase,
    Points,
    Progress,
    Record,
    Started,
    Stream,
    Summary,
)
from worker_agent.protocol.reports import Records, ack_field

logger = logging.getLogger(__name__)

LIVE_POINTS = 2000
INT64_MAX = 2**63 - 1
# Of replicas and jobs, what storing and announcing need; a batch is too frequent for whole rows.
COLUMNS = (
    *("job_id", "attempt", "role", "index", "incarnation", "superseded", "node_id", "log_size", "step", "status"),
    *("job__status", "job__strategy", "job__attempt", "job__started_at", "job__revision"),
    *(f"job__{name}" for name in progress.COUNTS),
)

Acks = dict[str, dict[str, int]]


@dataclass
class Place:
    """The row of a `Cursor`: how far its stream is stored; not yet a row without `pk`."""

    pk: int | None = None
    offset: int = 0
    final: int | None = None


@dataclass
class Intake:
    """What one replica said in this batch, decoded; `stored` is the part [start, end) of each stream it came from.
    `printed` are points out of its output.

    Of a replica that `is_fenced` only the end is taken; `refused` counts all that it said.
    """

    replica: Replica
    points: list[series.Points] = field(default_factory=list)
    printed: list[series.Points] = field(default_factory=list)
    output: list[Log | Gap] = field(default_factory=list)
    advances: list[Progress | Summary] = field(default_factory=list)
    facts: dict[str, FactValue] = field(default_factory=dict)
    checkpoints: list[Checkpointed] = field(default_factory=list)
    moments: list[Started | Phase | Exit] = field(default_factory=list)
    stored: dict[str, tuple[int, int]] = field(default_factory=dict)
    is_fenced: bool = False
    refused: int = 0


def store(slices: Sequence[tuple[str, Records]], *, now: datetime) -> Acks:
    """Store what is new in `slices` (node id, report), and return what each node may forget: node id → `ack_field` →
    offset."""
    acks: Acks = defaultdict(dict)
    ids = {report.replica_id for _, report in slices if 0 < report.replica_id <= INT64_MAX}
    # Their jobs are locked before any of their rows, as by everybody who moves a gang: else each waits for the other.
    locked = Replica.objects.select_for_update(of=("job",), no_key=True).order_by("job_id", "pk")
    replicas = locked.select_related("job").only(*COLUMNS).in_bulk(ids)
    rows = Cursor.objects.filter(replica__in=replicas).values_list("replica_id", "stream", "pk", "offset", "final")
    cursors = {(replica_id, stream): Place(pk, offset, final) for replica_id, stream, pk, offset, final in rows}
    intakes: dict[int, Intake] = {}
    for node_id, report in slices:
        replica = replicas.get(report.replica_id)
        mark = ack_field(report.replica_id, report.attempt, report.stream)
        if replica is None:
            acks[node_id][mark] = report.end
        elif refusal := _refusal(node_id, replica, report):
            _refuse(node_id, replica, report, refusal)
            acks[node_id][mark] = report.end
        else:
            cursor = cursors.setdefault((replica.pk, report.stream), Place())
            intake = intakes.setdefault(replica.pk, Intake(replica, is_fenced=fencing.is_fenced(replica)))
            _take(intake, report, cursor)
            acks[node_id][mark] = cursor.offset
    news = [intake for intake in intakes.values() if intake.stored]
    _save_cursors(news, cursors)
    _count_refused(news)
    refused = _store_points(news)
    for job_id in {intake.replica.job_id for intake in news if _tells_step_parts(intake)}:
        enqueue.ask_for_slowness(job_id)
    logs = log_text.store({intake.replica: intake.output for intake in news if intake.output})
    told: dict[str, list[live.Announced]] = defaultdict(list)
    for intake in news:
        pk = intake.replica.pk
        told[live.job_group(intake.replica.job_id)] += _events(intake, logs.get(pk, []), refused.get(pk, ()))
    live.announce_each(told)
    progress.store_facts([(intake.replica, intake.facts) for intake in news if intake.facts])
    advanced = [(intake.replica, intake.advances, [*intake.points, *intake.printed]) for intake in news]
    progress.store_progress([each for each in advanced if each[1] or each[2]], now=now)
    for intake in news:
        _note_checkpoints(intake)
    for intake in news:
        for moment in intake.moments:
            _move(intake.replica, moment, now=now)
    return acks


def _refusal(node_id: str, replica: Replica, report: Records) -> str:
    if replica.node_id != node_id:
        return "it runs on another node"
    if replica.attempt != report.attempt:
        return f"it belongs to attempt {replica.attempt}, not {report.attempt}"
    if report.stream not in set(Stream):
        return "there is no such stream"
    ends = report.offsets
    ordered = all(first < second for first, second in zip([report.start, *ends], [*ends, report.end + 1], strict=True))
    if len(ends) != len(report.records) or not ordered or not 0 <= report.start <= report.end <= INT64_MAX:
        return "its offsets do not fit its records"
    return ""


def _refuse(node_id: str, replica: Replica, report: Records, refusal: str) -> None:
    logger.warning("refused records of replica %s from node %s: %s", replica.pk, node_id, refusal)
    name = Node.objects.filter(pk=node_id).order_by().values_list("name", flat=True).first() or node_id
    text = f"Output of {replica.words} (attempt {report.attempt}) from {name} was refused: {refusal}."
    _note_once(replica, kind="output_refused", text=text)


def _take(intake: Intake, report: Records, cursor: Place) -> None:
    """Decode the part of a slice behind the cursor, and move the cursor. A slice beyond the cursor is left alone."""
    if report.start > cursor.offset or report.end <= cursor.offset:
        return
    begin = intake.stored.get(report.stream, (cursor.offset, 0))[0]
    for end, data in zip(report.offsets, report.records, strict=True):
        if end > cursor.offset:
            try:
                _sort_in(intake, decode_record(data), Stream(report.stream))
            except (msgspec.DecodeError, ValueError, OverflowError) as error:
                note_skipped(intake.replica, why=str(error))
    cursor.offset = report.end
    intake.stored[report.stream] = (begin, report.end)


def note_skipped(replica: Replica, *, why: str) -> None:
    """A record that nothing can be made of is passed over: said in the log each time, in the job's history once."""
    logger.error("skipped a record of replica %s: %s", replica.pk, why)
    text = f"A record of {replica.words} could not be stored and was skipped: {why}"
    _note_once(replica, kind="record_skipped", text=text)


def _sort_in(intake: Intake, record: Record, stream: Stream) -> None:
    """Of who was replaced, only the Exit counts: it moves nothing, but says how long its streams are."""
    intake.refused += intake.is_fenced
    match record:
        case _ if intake.is_fenced and not isinstance(record, Exit):
            pass
        case Points():
            _add_points(intake.printed if stream is Stream.SHIM else intake.points, record)
        case Log() | Gap():
            intake.output.append(record)
        case Progress() | Summary():
            intake.advances.append(record)
        case Facts():
            intake.facts |= record.facts
        case Checkpointed():
            intake.checkpoints.append(record)
        case Started() | Phase() | Exit():
            intake.moments.append(record)
        case Failure():
            # The shim repeats it in its Exit, and the traceback is on stderr, so in the log.
            pass


def _count_refused(intakes: Iterable[Intake]) -> None:
    for intake in intakes:
        if intake.refused:
            replica = intake.replica
            Replica.objects.filter(pk=replica.pk).update(refused=F("refused") + intake.refused)
            text = f"{replica.words} was given up and launched again: reports of its old process are refused."
            _note_once(replica, kind="output_refused", text=text)


def _add_points(points: list[series.Points], record: Points) -> None:
    steps, times = record.steps, record.times
    if not steps:
        return
    if {len(times), *map(len, record.values)} != {len(steps)} or len(record.values) != len(record.names):
        raise ValueError("the columns of its points differ in length")
    if not all(map(isfinite, times)) or not -INT64_MAX <= min(steps) <= max(steps) <= INT64_MAX:
        raise ValueError("a step or a time is out of range")
    points.append(series.Points([series.tidy_name(name) for name in record.names], steps, times, record.values))


def _save_cursors(intakes: Iterable[Intake], cursors: dict[tuple[int, str], Place]) -> None:
    moved: dict[int, Sequence[object]] = {}
    new: list[Cursor] = []
    for intake in intakes:
        finals = _finals(intake)
        for stream in intake.stored.keys() | finals.keys():
            cursor = cursors.setdefault((intake.replica.pk, stream), Place())
            columns = {"offset": cursor.offset, "final": finals.get(stream, cursor.final)}
            if cursor.pk is None:
                new.append(Cursor(replica_id=intake.replica.pk, stream=stream, **columns))
            else:
                moved[cursor.pk] = tuple(columns.values())
    update_rows(Cursor, moved, columns=["offset", "final"])
    Cursor.objects.bulk_create(
        new, update_conflicts=True, unique_fields=["replica", "stream"], update_fields=["offset", "final"]
    )


def _finals(intake: Intake) -> dict[str, int]:
    """The lengths that an Exit gave to the streams there are."""
    return {
        stream: min(max(size, 0), INT64_MAX)
        for moment in intake.moments
        if isinstance(moment, Exit)
        for stream, size in moment.final.items()
        if stream in set(Stream)
    }


def _store_points(intakes: Sequence[Intake]) -> dict[int, set[str]]:
    """Returns the names that were refused, by replica."""
    said = {series.Owner(replica_id=each.replica.pk): [*each.points, *each.printed] for each in intakes}
    owners = {series.Owner(replica_id=each.replica.pk): each for each in intakes}
    refused: dict[int, set[str]] = defaultdict(set)
    for owner, name in series.store({owner: points for owner, points in said.items() if points}):
        refused[owners[owner].replica.pk].add(name)
    for owner, intake in owners.items():
        if owner.replica_id in refused:
            most = series.NAMES_PER_OWNER
            text = f"{intake.replica.words} writes more than {most} series; further names are not kept."
            _note_once(intake.replica, kind="series_refused", text=text)
    return refused


def _tells_step_parts(intake: Intake) -> bool:
    return any(name.startswith(STEP_PART) for points in intake.points for name in points.names)


def _events(intake: Intake, pieces: Sequence[Output], refused: Container[str]) -> Iterator[live.Announced]:
    """The trainer's advance is told even without points, so that a page knows that it missed nothing."""
    if Stream.TRAINER in intake.stored:
        yield partial(_points_event, intake, refused)
    if pieces:
        yield partial(_log_event, intake, pieces, refused)


def _points_event(intake: Intake, refused: Container[str]) -> live.LiveEvent:
    start, end = intake.stored[Stream.TRAINER]
    return live.points_stored(intake.replica, start=start, end=end, series=_told(intake.points, refused))


def _log_event(intake: Intake, pieces: Sequence[Output], refused: Container[str]) -> live.LiveEvent:
    text = "".join(piece.text for piece in pieces)
    first, last = pieces[0], pieces[-1]
    numbers = _told(intake.printed, refused)
    return live.log_stored(intake.replica, start=first.start, end=last.end, at=first.at, text=text, series=numbers)


def _note_checkpoints(intake: Intake) -> None:
    for said in intake.checkpoints:
        try:
            checkpoint_registry.note(intake.replica, said)
        except ValueError as error:
            note_skipped(intake.replica, why=str(error))


def _move(replica: Replica, moment: Started | Phase | Exit, *, now: datetime) -> None:
    match moment:
        case Started():
            gang.on_started(replica=replica, pid=moment.pid, warm=moment.warm, now=now)
        case Phase():
            gang.on_phase(replica=replica, phase=moment.name, now=now)
        case Exit():
            dirty.note(replica=replica, left=moment.leftovers, cause=moment.cause, now=now)
            gang.on_exit(replica=replica, exit_record=moment, now=now)


def _note_once(replica: Replica, *, kind: str, text: str) -> None:
    """A line in the job's history, unless one of this kind about this replica is there."""
    if not replica.events.filter(kind=kind).exists():
        transitions.record(kind=kind, text=text[:2000], replica=replica)


def _told(said: Sequence[series.Points], refused: Container[str]) -> dict[str, live.Columns]:
    """The new points of each series as pages get them, thinned where they are many."""
    columns: dict[str, tuple[list[int], list[float], list[float]]] = {}
    for points in said:
        for name, column in zip(points.names, points.values, strict=True):
            steps, times, values = columns.setdefault(name, ([], [], []))
            steps += points.steps
            times += points.times
            values += column
    return {name: _thinned(*lists) for name, lists in columns.items() if name not in refused}


def _thinned(steps: list[int], times: list[float], values: list[float]) -> live.Columns:
    if len(steps) > LIVE_POINTS:
        run = series.thin(series.curve_of(steps, times, values), LIVE_POINTS)
        steps, times, values = run.steps.tolist(), run.times.tolist(), run.values.tolist()
    told: list[float | str] = [value if isfinite(value) else str(live.jsonable(value)) for value in values]
    return {"steps": steps, "times": times, "values": told}
