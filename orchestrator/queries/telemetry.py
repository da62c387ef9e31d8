"""Reads of what replicas and nodes say: metric series, logs, load, and how far each stream is stored.

`one_moment` makes several reads see the same instant, which a snapshot needs: its points and its cursors must agree.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import transaction

from orchestrator import series as storage
from orchestrator.models import Cursor, Job, LogChunk, Node, Replica
from orchestrator.queries.jobs import replica_named, replicas

LOG_CHUNK_BYTES = 65_536
LOG_LIMIT_BYTES = 1_000_000
TAIL_BYTES = 524_288
TAIL_LINE_CHARS = 4_000


@dataclass(frozen=True)
class SeriesView:
    """One replica's part of a series, thinned. `values` may hold NaN and infinities (`live.jsonable` names them).
    `incarnation` grows with each process that takes the place of one before it."""

    replica: str
    attempt: int
    steps: list[int]
    times: list[float]
    values: list[float]
    incarnation: int = 0


@dataclass(frozen=True)
class LoadView:
    """One series of a node's load, thinned; `times` are unix seconds."""

    times: list[float]
    values: list[float]


@dataclass(frozen=True)
class LogSlice:
    """Whole characters of a log, and the byte offset behind them."""

    text: str
    next: int


@dataclass(frozen=True)
class LogLine:
    """One line of output, when it was said (unix s), and by which replica."""

    at: float
    replica: str
    text: str


@contextmanager
def one_moment() -> Iterator[None]:
    """Reads within see one state of the database, and hold up no writer. Part of a transaction when one is open."""
    connection = transaction.get_connection()
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "postgresql":
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield
    else:
        # Django would begin IMMEDIATE, which is a writer's lock.
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")


def series(job: Job, *, names: Iterable[str] | None = None, points: int = 1000) -> dict[str, list[SeriesView]]:
    """The metric series of all attempts by name, each replica's thinned to about `points` points."""
    found = {replica.pk: replica for replica in job.replicas.order_by("attempt", "role", "index", "incarnation")}
    owners = [storage.Owner(replica_id=replica_id) for replica_id in found]
    views: dict[str, list[SeriesView]] = defaultdict(list)
    order = {owner: place for place, owner in enumerate(owners)}
    runs = storage.read(owners, names=names)
    for owner, name in sorted(runs, key=lambda key: (key[1], order[key[0]])):
        run, replica = storage.thin(runs[owner, name], points), found[owner.replica_id or 0]
        views[name].append(
            SeriesView(
                replica=str(replica),
                attempt=replica.attempt,
                steps=run.steps.tolist(),
                times=run.times.tolist(),
                values=run.values.tolist(),
                incarnation=replica.incarnation,
            )
        )
    return dict(views)


def cursors(job: Job) -> dict[int, dict[str, int]]:
    """How far each stream of each replica of the job is stored, in bytes."""
    offsets: dict[int, dict[str, int]] = {pk: {} for pk in job.replicas.values_list("pk", flat=True)}
    rows = Cursor.objects.filter(replica__job=job).values_list("replica_id", "stream", "offset")
    for replica_id, stream, offset in rows:
        offsets.setdefault(replica_id, {})[stream] = offset
    return offsets


def log(
    job: Job, *, replica: str, offset: int = 0, limit: int = LOG_LIMIT_BYTES, attempt: int | None = None
) -> LogSlice:
    """The log of a replica such as `worker:0` from byte `offset` on, at most `limit` bytes, never half a character."""
    row = replica_named(job, replica, attempt)
    first = max(offset, 0)
    last = first + min(max(limit, 4), LOG_LIMIT_BYTES)
    data = b"".join(_log_bytes(row, first, last))
    # Continuation bytes at the front belong to a character before `offset`; at the end, to one cut in half.
    text = data[: last - first].decode(errors="ignore")
    lead = len(data) - len(data.lstrip(bytes(range(0x80, 0xC0))))
    return LogSlice(text=text, next=first + lead + len(text.encode()))


def log_tail(job: Job, *, lines: int = 500, attempt: int | None = None) -> list[LogLine]:
    """The last lines of an attempt over all replicas, in the order they were said. Reads the ends of the logs only."""
    rows = [row for row in replicas(job, attempt) if row.log_size]
    share = max(TAIL_BYTES // max(len(rows), 1), LOG_CHUNK_BYTES // 4)
    found = [line for row in rows for line in _last_lines(row, share, lines)]
    found.sort(key=lambda line: line.at)
    return found[-lines:] if lines > 0 else []


def log_ends(job: Job, attempt: int | None = None) -> dict[int, int]:
    """The length in bytes of each replica's log."""
    return {row.pk: row.log_size for row in replicas(job, attempt)}


def load(
    nodes: Sequence[Node], *, names: Iterable[str] | None = None, seconds: float = 900, points: int = 600
) -> dict[str, dict[str, LoadView]]:
    """The load of nodes in the last `seconds`, by node id and name, in one read."""
    since = datetime.now(UTC).timestamp() - seconds
    owners = [storage.Owner(node_id=node.pk) for node in nodes]
    views: dict[str, dict[str, LoadView]] = {node.pk: {} for node in nodes}
    for (owner, name), whole in sorted(storage.read(owners, names=names, since=since).items()):
        run = storage.thin(whole, points)
        views[owner.node_id or ""][name] = LoadView(run.times.tolist(), run.values.tolist())
    return views


def _log_bytes(row: Replica, first: int, last: int) -> Iterator[bytes]:
    """The bytes [`first`, `last`) of a log. A chunk is never longer than LOG_CHUNK_BYTES, so few rows are looked at."""
    chunks = LogChunk.objects.filter(replica=row, start__gt=first - LOG_CHUNK_BYTES, start__lt=last, end__gt=first)
    for start, text in chunks.order_by("start").values_list("start", "text"):
        yield text.encode()[max(first - start, 0) :]


def _last_lines(row: Replica, size_bytes: int, lines: int) -> list[LogLine]:
    begin = row.log_size - size_bytes
    chunks = LogChunk.objects.filter(replica=row, start__gte=begin).order_by("start").values_list("start", "at", "text")
    found: list[LogLine] = []
    rest, rest_at = "", 0.0
    for number, (start, at, text) in enumerate(chunks):
        pieces = (rest + text).split("\n")
        said_at = rest_at if rest else at
        for place, piece in enumerate(pieces[:-1]):
            whole = number or place or not start
            if whole:
                found.append(LogLine(said_at if not place else at, str(row), _shortened(piece)))
        rest, rest_at = pieces[-1], said_at if len(pieces) == 1 else at
    if rest:
        found.append(LogLine(rest_at, str(row), _shortened(rest)))
    return found[-lines:] if lines > 0 else []


def _shortened(line: str) -> str:
    if len(line) <= TAIL_LINE_CHARS:
        return line
    return f"{line[:TAIL_LINE_CHARS]}… ({len(line) - TAIL_LINE_CHARS} characters more are in the log)"
