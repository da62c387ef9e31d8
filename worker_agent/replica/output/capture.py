"""The output of a training process on its way into the spool: bytes in, `Log` and `Gap` records out.

Pure (the clock comes in as `now`), called by the shim. Text leaves in whole lines where possible and in pieces of at
most `PIECE_CHARS`; a flood is cut by a token bucket, and what is cut is counted. A line that draws over itself leaves
in its last state (`terminal`).
"""

import codecs
from math import inf

from worker_agent.protocol.records import Gap, Log
from worker_agent.replica.output import terminal

PIECE_CHARS = 64 * 1024
PARTIAL_LINE_S = 0.5
# A progress bar is one line for a whole epoch: how often its present state is kept where the epoch takes longer.
REDRAWN_LINE_S = 30.0
RATE_BYTES_S = 2_000_000
BURST_BYTES = 20_000_000
FLOOD = "more output than is kept (2 MB a second on average)"

_TAIL_CHARS = 4096


class Capture:
    """Collects output and gives it away in batches, at the caller's pace."""

    def __init__(self, *, now: float) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._partial_since = inf
        self._tokens = float(BURST_BYTES)
        self._refilled_at = now
        self._dropped_bytes = 0
        self._tail = ""

    @property
    def is_waiting(self) -> bool:
        """Whether the beginning of a line waits for its end."""
        return bool(self._text)

    def feed(self, data: bytes, *, now: float) -> None:
        """Take what the process wrote."""
        self._tokens = min(BURST_BYTES, self._tokens + (now - self._refilled_at) * RATE_BYTES_S)
        self._refilled_at = now
        if len(data) > self._tokens:
            self._dropped_bytes += len(data)
            return
        self._tokens -= len(data)
        self._text += self._decoder.decode(data).replace("\0", "")

    def drain(self, *, now: float, at: float, final: bool = False) -> list[Log | Gap]:
        """What may be written now; `at` is the wall clock for the records. `final` gives the rest."""
        if final:
            self._text += self._decoder.decode(b"", final=True)
        ready = self._ready(now=now, final=final)
        self._tail = (self._tail + ready)[-_TAIL_CHARS:]
        records: list[Log | Gap] = [
            Log(at=at, text=ready[begin : begin + PIECE_CHARS]) for begin in range(0, len(ready), PIECE_CHARS)
        ]
        if self._dropped_bytes:
            records.append(Gap(at=at, size_bytes=self._dropped_bytes, reason=FLOOD))
            self._dropped_bytes = 0
        return records

    def last_lines(self, count: int) -> list[str]:
        """The end of the output, for the message of an exit that nobody explained."""
        return [line.rstrip() for line in self._tail.splitlines() if line.strip()][-count:]

    def _ready(self, *, now: float, final: bool) -> str:
        """Whole lines; also the beginning of a line that is long, or has waited long enough for its end."""
        cut = self._text.rfind("\n") + 1
        lines, line = self._text[:cut], self._text[cut:]
        if lines or not line:
            self._partial_since = inf
        if line:
            self._partial_since = min(self._partial_since, now)
        waited_s = now - self._partial_since
        is_redrawn = terminal.is_redrawn(line)
        if is_redrawn and len(line) >= PIECE_CHARS:
            line = terminal.compact(line)
        if final:
            lines, line = lines + line, ""
        elif len(line) >= PIECE_CHARS or waited_s >= (REDRAWN_LINE_S if is_redrawn else PARTIAL_LINE_S):
            cut = terminal.unfinished_from(line)
            lines, line = lines + line[:cut] + "\n" * is_redrawn, line[cut:]
            self._partial_since = inf
        if terminal.is_redrawn(lines[:1]) and self._tail and not self._tail.endswith("\n"):
            lines = "\n" + lines
        self._text = line
        return terminal.shown(lines)
