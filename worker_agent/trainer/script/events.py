"""Scalars from the event files that a script writes (`tf.summary`, a TensorBoard callback), wherever it writes them.

A writer keeps its file open, so the open files of this very process tell where they are; what was opened and closed
between two readings is found at the end below the folders that are the replica's own. Read in a thread, twice a second.
"""

import contextlib
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from worker_agent.trainer.script.periodic import Periodic
from worker_agent.trainer.script.script_report import ScriptReport

READ_EVERY_S = 0.5
FILES_MAX = 200
RECORD_BYTES_MAX = 64 * 1024 * 1024

_MARK = "tfevents"
_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4
# Sub-folders with which Keras and Estimators keep several curves of one name apart.
_KINDS = frozenset({"train", "validation", "val", "eval", "evaluation", "test"})


class EventFiles(Periodic):
    """The event files of this process."""

    def __init__(self, report: ScriptReport, folders: list[Path]) -> None:
        super().__init__("event-files", READ_EVERY_S, lambda: self._read_on(_open_files()))
        self._report = report
        self._folders = folders
        self._read: dict[str, int] = {}

    def close(self) -> None:
        """Read for the last time, everywhere."""
        super().close()
        self._read_on(_written_below(self._folders))

    def _read_on(self, found: Iterable[str]) -> None:
        """What has come into the files that are known, and those that were `found`."""
        for path in found:
            self._read.setdefault(path, 0)
        for path in list(self._read)[:FILES_MAX]:
            try:
                for record in self._records(path):
                    self._tell(path, record)
            except Exception as error:  # not an event file after all, or a damaged one
                sys.stderr.write(f"trainyard: {path} is not read any further: {error}\n")
                self._read[path] = sys.maxsize

    def _records(self, path: str) -> Iterator[bytes]:
        """The whole records that have come since the last reading."""
        start = self._read[path]
        if start == sys.maxsize or not Path(path).exists():
            return
        with Path(path).open("rb") as file:
            file.seek(start)
            while len(header := file.read(_HEADER.size)) == _HEADER.size:
                size_bytes = _HEADER.unpack(header)[0]
                if size_bytes > RECORD_BYTES_MAX:
                    raise ValueError(f"a record of {size_bytes} bytes")
                body = file.read(size_bytes + _FOOTER_BYTES)
                if len(body) < size_bytes + _FOOTER_BYTES:
                    return
                self._read[path] = file.tell()
                yield body[:size_bytes]

    def _tell(self, path: str, record: bytes) -> None:
        from tensorflow.core.util import event_pb2

        event = event_pb2.Event.FromString(record)
        folder = Path(path).parent.name
        prefix = f"{folder}/" if folder in _KINDS else ""
        found = ((prefix + value.tag, _scalar(value)) for value in event.summary.value)
        scalars = {tag: number for tag, number in found if number is not None}
        self._report.found(int(event.step), scalars)


def _scalar(value: Any) -> float | None:
    """The number a summary value holds; None for images, histograms, texts, graphs."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind != "tensor" or value.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    from tensorflow import make_ndarray

    array = make_ndarray(value.tensor)
    return float(array) if array.ndim == 0 and array.dtype.kind in "fiu" else None


def _open_files() -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it has been closed meanwhile
            if _MARK in (file := descriptor.readlink()).name:
                yield str(file)


def _written_below(folders: list[Path]) -> Iterator[str]:
    for folder in folders:
        for path in folder.rglob(f"*{_MARK}*"):
            if path.is_file():
                yield str(path.resolve())
