"""Reads of what replicas and nodes say: metric series, logs, load, and how far each stream is stored.

`one_moment` makes several reads see the same instant, which a snapshot needs: its points and its cursors must agree.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from django.db import transaction

from orchestrator import series as storage
from orchestrator.models import Cursor, Job, LogChunk, Node, Replica
from orchestrator.queries.errors import NotFound
from orchestrator.queries.jobs import replica_named

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
    """One line of output, when it was said (unix s), by which replica, and in which attempt."""

    at: float
    replica: str
    text: str
    attempt: int


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


def series(
    job: Job, *, names: Iterable[str] | None = None, points: int = 1000, attempt: int | None = None
) -> dict[str, list[SeriesView]]:
    """The metric series of an attempt, or of all, by name; each replica's thinned to about `points` points."""
    rows = job.replicas.order_by("attempt", "role", "index", "incarnation")
    found = {row.pk: row for row in (rows if attempt is None else rows.filter(attempt=attempt))}
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


def whole_log(job: Job, *, replica: str, attempt: int | None = None) -> Iterator[str]:
    """All that a replica wrote in an attempt, piece by piece; of all attempts where none is named, one after the other,
    with a line before each. `worker:0.1` is one process, of the latest attempt."""
    is_one = attempt is not None or "." in replica
    numbers = [attempt] if is_one else list(job.attempts.order_by("number").values_list("number", flat=True))
    for number in numbers:
        offset = 0
        with suppress(NotFound):  # it was not part of every attempt
            while (part := log(job, replica=replica, offset=offset, attempt=number)).text:
                if not offset and len(numbers) > 1:
                    yield f"--- Attempt {number} ---\n"
                yield part.text
                offset = part.next


def log_tail(job: Job, *, lines: int = 500, attempt: int | None = None) -> list[LogLine]:
    """The last lines over all replicas of an attempt, or of all: one attempt after the other, each in the order in
    which its lines were said. Reads the ends of the logs only."""
    spoken = job.replicas.filter(log_size__gt=0).only("job", "attempt", "role", "index", "log_size")
    rows = list((spoken if attempt is None else spoken.filter(attempt=attempt)).order_by("-attempt", "pk"))
    found: list[LogLine] = []
    for _, of_attempt in groupby(rows, key=lambda row: row.attempt):
        found = _tail(list(of_attempt), lines - len(found)) + found
        if len(found) >= lines:
            break
    return found


def log_ends(job: Job) -> dict[int, int]:
    """The length in bytes of the log of each replica of every attempt."""
    return dict(job.replicas.values_list("pk", "log_size"))


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


def _tail(rows: Sequence[Replica], lines: int) -> list[LogLine]:
    share = max(TAIL_BYTES // max(len(rows), 1), LOG_CHUNK_BYTES // 4)
    found = [line for row in rows for line in _last_lines(row, share, lines)]
    found.sort(key=lambda line: line.at)
    return found[-lines:] if lines > 0 else []


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
                found.append(LogLine(said_at if not place else at, str(row), _shortened(piece), row.attempt))
        rest, rest_at = pieces[-1], said_at if len(pieces) == 1 else at
    if rest:
        found.append(LogLine(rest_at, str(row), _shortened(rest), row.attempt))
    return found[-lines:] if lines > 0 else []


def _shortened(line: str) -> str:
    if len(line) <= TAIL_LINE_CHARS:
        return line
    return f"{line[:TAIL_LINE_CHARS]}… ({len(line) - TAIL_LINE_CHARS} characters more are in the log)"
