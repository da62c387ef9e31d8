"""Lines of a log on the job page: each with the colour of its process and the level that its text speaks of."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import Enum, auto

from dashboard.templatetags.trainyard import replica_name
from orchestrator.queries import jobs as job_queries
from orchestrator.queries import telemetry
from orchestrator.queries.rows import Job, Replica
from orchestrator.queries.telemetry import LogLine

ROLE_ORDER = {"chief": 0, "worker": 1, "ps": 2, "evaluator": 3}
SERIES_COLOURS = 8
# The page hands these to `js/job/log.js`, so they are written as both languages read them.
# What TensorFlow's estimator says of graphs that DTensor has not split yet is no error, whatever its letter.
ERROR_LINE = re.compile(
    r"^[EF]\d{4} (?!.*\bop_level_cost_estimator\.cc)|^\w*(Error|Exception)\b|\b(ERROR|CRITICAL|FATAL)\b"
)
WARNING_LINE = re.compile(r"^W\d{4} |\bWARN(ING)?\b|\w*Warning:")
TRACEBACK_LINE = re.compile(r"^Traceback \(")


class _Part(Enum):
    """Of what a line is a part: a traceback ends with its exception, whose message may go on in indented lines."""

    OUTPUT = auto()
    TRACEBACK = auto()
    MESSAGE = auto()


def printed_lines(job: Job, *, limit: int, attempt: int | None = None) -> list[dict[str, object]]:
    """The end of the log of an attempt, or of all. `begins` is the attempt of which a line is the first here, from the
    second on."""
    gang = [replica for replica in gang_in_order(job) if not replica.superseded]
    colours = {str(replica): place % SERIES_COLOURS + 1 for place, replica in enumerate(gang)}
    lines = telemetry.log_tail(job, lines=limit, attempt=attempt)
    before = [1, *(line.attempt for line in lines)]
    return [
        {
            "attempt": line.attempt,
            "begins": line.attempt if line.attempt != previous else None,
            "at": datetime.fromtimestamp(line.at, UTC),
            "name": replica_name(line.replica),
            "replica": line.replica,
            "colour": colours.get(line.replica, 1),
            "level": level,
            "text": line.text,
        }
        for previous, line, level in zip(before, lines, levels(lines), strict=False)
    ]


def levels(lines: Iterable[LogLine]) -> Iterator[str]:
    """ "E", "W" or "I" for each line. All lines of a traceback are errors, from its first to its exception's message,
    also where processes speak in turns."""
    parts: dict[tuple[str, int], _Part] = {}
    for line in lines:
        who = line.replica, line.attempt
        part = parts[who] = _next_part(parts.get(who, _Part.OUTPUT), line.text)
        is_error = part is not _Part.OUTPUT or ERROR_LINE.search(line.text)
        yield "E" if is_error else "W" if WARNING_LINE.search(line.text) else "I"


def gang_in_order(job: Job) -> list[Replica]:
    """The processes of the latest attempt, those that were replaced before the ones in their place."""
    return sorted(job_queries.replicas(job), key=lambda r: (ROLE_ORDER.get(r.role, 9), r.index, r.incarnation))


def _next_part(part: _Part, text: str) -> _Part:
    if TRACEBACK_LINE.match(text):
        return _Part.TRACEBACK
    if part is _Part.OUTPUT or not text or text[0] in " \t":
        return part
    return _Part.MESSAGE if part is _Part.TRACEBACK else _Part.OUTPUT
