"""What the shim says: the training process' output, its start and its end, in the `shim` stream of the spool.

Called by the shim, which never waits for a disk but for the last record. While the disk takes nothing, records stay in
memory, and of output what is beyond a limit is counted instead.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from worker_agent.protocol.codec import encode
from worker_agent.protocol.ending import Ending
from worker_agent.protocol.plan import Plan
from worker_agent.protocol.records import Gap, Leftover, Log, Record, Stream
from worker_agent.replica.folder import append_exit
from worker_agent.replica.output.capture import Capture
from worker_agent.replica.output.printed import Printed
from worker_agent.replica.spool import Writer

_UNWRITTEN_BYTES = 8 * 1024 * 1024
_RETRY_S = 1.0


class ShimStream:
    """The stream of one replica; `capture` takes what the training process wrote."""

    def __init__(self, plan: Plan) -> None:
        self._spool = Path(plan.spool)
        self._writer = Writer(self._spool / Stream.SHIM, notify=plan.notify)
        self.capture = Capture(now=time.monotonic())
        self._printed = Printed(plan.launch, now=time.monotonic())
        self._uncounted_bytes = 0

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for the end of its line, or for the disk."""
        return self.capture.is_waiting or self._writer.pending_bytes > 0

    def store_output(self, *, final: bool = False) -> None:
        """Write what of the output is ready, or all of it."""
        now, at = time.monotonic(), time.time()
        said = self.capture.drain(now=now, at=at, final=final)
        text = "".join(record.text for record in said if isinstance(record, Log))
        for record in (*said, *self._printed.records(text, now=now, at=at, final=final)):
            self.append(record)
        if self._writer.pending_bytes:
            self._writer.publish()

    def append(self, record: Record) -> None:
        """Append a record."""
        if self._writer.pending_bytes > _UNWRITTEN_BYTES:
            self._writer.publish()
        if isinstance(record, Log) and self._writer.pending_bytes > _UNWRITTEN_BYTES:
            self._uncounted_bytes += len(record.text.encode())
            return
        self._append_gap()
        self._writer.append(encode(record))

    def finish(self, ending: Ending, message: str, *, leftovers: Sequence[Leftover] = ()) -> None:
        """The last record; waits for the disk as long as it takes, because without it the end would be a guess."""
        self._append_gap()
        append_exit(self._writer, self._spool, ending=ending, message=message, leftovers=leftovers)
        while self._writer.pending_bytes:
            self._writer.publish()
            if self._writer.pending_bytes:
                time.sleep(_RETRY_S)

    def _append_gap(self) -> None:
        """The gap that a full disk has made, once it can be told."""
        if self._uncounted_bytes:
            gap = Gap(at=time.time(), size_bytes=self._uncounted_bytes, reason="the node's disk was full")
            self._writer.append(encode(gap))
            self._uncounted_bytes = 0
