"""The timeline of a job: for each replica one row of bars over all attempts, as shares of the time shown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dashboard.templatetags.trainyard import replica_name
from dashboard.views.job.words import is_over
from orchestrator.domain.words import counted
from orchestrator.queries import jobs as job_queries
from orchestrator.queries.rows import Attempt, Job, Replica

ATTEMPTS_SHOWN = 6
COLOURS = 8
ENDING_SHARE = 0.008
ROOM_FOR_NUMBER, ROOM_FOR_NOTE = 0.05, 0.15
LEFT_EDGE, RIGHT_EDGE = 0.05, 0.95
TICKS_AT_MOST = 7
TICK_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800)


@dataclass(frozen=True)
class Bar:
    """A span of one row, in seconds from the start; `until` None reaches to now."""

    kind: str
    since: float
    until: float | None
    title: str


@dataclass
class TimelineRow:
    """One replica, by name, through all attempts."""

    name: str
    colour: int
    bars: list[Bar] = field(default_factory=list)


@dataclass(frozen=True)
class Timeline:
    """Seconds from `start`; `span_s` is the whole width, `running` that its right edge is now."""

    start: datetime
    span_s: float
    running: bool
    attempts: list[dict[str, object]]
    rows: list[TimelineRow]
    ticks: list[dict[str, object]]
    told: str


def timeline_of(job: Job, attempts: list[Attempt], gang: Sequence[Replica], *, now: datetime) -> Timeline | None:
    """None before the first launch. Of many attempts, the latest are shown."""
    shown = attempts[-ATTEMPTS_SHOWN:]
    if not shown:
        return None
    start, over = shown[0].started_at, is_over(job)
    end = max(job.ended_at or start, start) if over else now
    span_s = max((end - start).total_seconds(), 1.0)
    names = dict.fromkeys(map(str, gang))
    rows = {name: TimelineRow(replica_name(name), place % COLOURS + 1) for place, name in enumerate(names)}
    for attempt in shown:
        replicas = gang if attempt.number == job.attempt else job_queries.replicas(job, attempt.number)
        begun: dict[str, datetime] = {}  # who takes the place of another one begins where that one ended
        for replica in replicas:
            row = rows.setdefault(str(replica), TimelineRow(replica_name(str(replica)), len(rows) % COLOURS + 1))
            row.bars += _bars(replica, begun.get(str(replica), attempt.started_at), start, span_s, over=over)
            begun[str(replica)] = replica.ended_at or attempt.started_at
    return Timeline(
        start=start,
        span_s=span_s,
        running=not over,
        attempts=_names(shown, start, span_s),
        rows=list(rows.values()),
        ticks=_ticks(start, span_s),
        told=_told(shown, len(rows)),
    )


def _names(attempts: list[Attempt], start: datetime, span_s: float) -> list[dict[str, object]]:
    """The names above the bars, as far as there is room before the next one. The last is always named: at the right
    edge, to the left of where it began."""
    *before, last = [(each.started_at - start).total_seconds() for each in attempts]
    at_edge = last / span_s > RIGHT_EDGE
    ends = [*before[1:], last - at_edge * ROOM_FOR_NUMBER * span_s, span_s]
    names = []
    for attempt, since, until in zip(attempts, [*before, last], ends[-len(attempts) :], strict=True):
        room = (until - since) / span_s
        is_last = attempt is attempts[-1]
        if room > ROOM_FOR_NUMBER or is_last:
            note = _ending(attempt) if room > ROOM_FOR_NOTE else ""
            anchor = "end" if is_last and at_edge else "start"
            names.append({"number": attempt.number, "since": since, "note": note, "anchor": anchor})
    return names


def _bars(replica: Replica, since: datetime, start: datetime, span_s: float, *, over: bool) -> Iterable[Bar]:
    begun = (since - start).total_seconds()
    ended = (replica.ended_at - start).total_seconds() if replica.ended_at else (span_s if over else None)
    ran = (replica.started_at - start).total_seconds() if replica.started_at else None
    name = replica_name(str(replica))
    yield Bar("start", begun, ended if ran is None else ran, f"{name}: starting")
    if ran is not None:
        yield Bar("run", ran, ended, f"{name}: running on {replica.node_name}")
    if ended is not None and replica.ended_at and replica.outcome in ("failed", "lost", "stopped", "paused"):
        kind = "stop" if replica.outcome in ("stopped", "paused") else "fail"
        yield Bar(kind, max(ended - span_s * ENDING_SHARE, begun), ended, f"{name}: {replica.outcome}")


def _ticks(start: datetime, span_s: float) -> list[dict[str, object]]:
    step = next((step for step in TICK_STEPS_S if span_s / step <= TICKS_AT_MOST), TICK_STEPS_S[-1])
    first = start.astimezone(UTC)
    at = datetime.fromtimestamp((first.timestamp() // step + 1) * step, UTC)
    style = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%d %b"
    ticks = []
    while (since := (at - first).total_seconds()) < span_s:
        ticks.append(
            {
                "since": since,
                "at": at,
                "text": f"{at:{style}}",
                "style": "s" if step < 60 else "m",
                "anchor": _anchor(since / span_s),
            }
        )
        at += timedelta(seconds=step)
    return ticks


def _anchor(share: float) -> str:
    return "start" if share < LEFT_EDGE else "end" if share > RIGHT_EDGE else "middle"


def _told(attempts: list[Attempt], rows: int) -> str:
    said = [f"Attempt {each.number}" + (f" ended: {_ending(each)}" if each.ended_at else "") for each in attempts]
    return f"{counted(rows, 'replica')} over time. {'. '.join(said)}."


def _ending(attempt: Attempt) -> str:
    """What it ended of, in a word or two: the table of restarts and the job's notice say the rest."""
    return attempt.cause.replace("_", " ") if attempt.ended_at else ""
