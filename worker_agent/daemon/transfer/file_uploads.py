"""Files that trainings leave for their owners, on their way up; with patience, and each until it is settled.

Of a recipe: what its loop writes into the artifacts folder, at its end. Of a script: what `trainyard.save` puts there,
and what it has written among its own files by names that the job asks for; from its start on. A file is sent when it
has stood still for one look; a text or an event file also now and then while it grows. Files stay on the node's disk
until all is settled, and `delivered.json` says what was, so that an agent that is started again goes on with the rest.
"""

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from worker_agent.daemon.control_plane import ControlPlane, Rejected, Unreachable
from worker_agent.daemon.core import ReplicaKey
from worker_agent.daemon.journal import Journal
from worker_agent.daemon.transfer.left_files import Changed, Found, Stamp, digest_of, files_below, opened, pieces_of
from worker_agent.machine.files import read_json, write_json
from worker_agent.protocol.files import FILES_MAX, NAMED_MAX, LeftFile, NotKept, Offer, is_asked_for
from worker_agent.protocol.job.job_spec import JobSpec
from worker_agent.protocol.states import Kind

LOOK_S = 2.0
# Looking takes at most this share of the time.
LOOK_SHARE = 0.02
# Files of which a part is of use. While it grows, such a one is sent after so long, then after twice that, and so on up
# to the longest.
GROWING = "*tfevents* *.txt *.csv *.log *.jsonl"
GROWN_S = 20.0
GROWN_LONGEST_S = 600.0
METRICS_FILE = "metrics.json"

_METRICS_CHARS_MAX = 4096
_LONGEST_PAUSE_S = 60.0
_READS_MAX = 3
_DELIVERED_FILE = "delivered.json"

log = structlog.get_logger("uploads")


@dataclass(eq=False)
class _Followed:
    """One replica. `delivered` and `refused` hold each file as it was then (None: whatever it becomes), `seen` as it
    was at the last look. `reads` counts how often a file had changed when it was read. `due` is when one that grows is
    sent, and its next pause. `wanted` answers to what was `offered` last."""

    key: ReplicaKey
    spec: JobSpec
    folder: Path
    delivered: dict[str, Stamp]
    ended: bool = False
    refused: dict[str, tuple[Stamp | None, NotKept]] = field(default_factory=dict)
    seen: dict[str, Stamp] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)
    due: dict[str, tuple[float, float]] = field(default_factory=dict)
    unasked: dict[str, Found] = field(default_factory=dict)
    offered: Offer = field(default_factory=lambda: Offer(files={}))
    wanted: set[str] = field(default_factory=set)


class FileUploads:
    """One thread for all replicas of the node. `done(key)` is called for one that has ended (`finish`) when nothing of
    it is left to send."""

    def __init__(self, control_plane: ControlPlane, journal: Journal, done: Callable[[ReplicaKey], None]) -> None:
        self._control_plane = control_plane
        self._journal = journal
        self._done = done
        self._followed: dict[ReplicaKey, _Followed] = {}
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._pause_s = LOOK_S
        self._looking_s = 0.0
        threading.Thread(target=self._run, name="uploads", daemon=True).start()

    def follow(self, key: ReplicaKey, spec: JobSpec) -> None:
        """From now on, send what the replica leaves: of a recipe, once it has ended."""
        folder = self._journal.folder(key)
        with self._lock:
            if key not in self._followed:
                delivered = read_json(folder / _DELIVERED_FILE, dict[str, Stamp]) or {}
                self._followed[key] = _Followed(key, spec, folder, delivered)
        self._changed.set()

    def finish(self, key: ReplicaKey, spec: JobSpec) -> None:
        """The replica has ended: send what is left, then say so."""
        self.follow(key, spec)
        with self._lock:
            self._followed[key].ended = True
        self._changed.set()

    def close(self) -> None:
        """Stop after the request in progress."""
        self._closed.set()
        self._changed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._changed.wait(self._pause_s if self._followed else None)
            self._changed.clear()
            with self._lock:
                followed = [(each, each.ended) for each in self._followed.values()]
            self._looking_s, is_well = 0.0, True
            for each, ended in followed:
                if ended or each.spec.kind is Kind.SCRIPT:
                    is_well &= self._settle(each, ended=ended)
            if is_well:
                self._pause_s = max(LOOK_S, self._looking_s / LOOK_SHARE)
            else:
                self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)

    def _settle(self, followed: _Followed, *, ended: bool) -> bool:
        """Look at one replica, and send what is due. False where that has to be tried again later."""
        try:
            is_settled = self._look(followed, ended=ended)
        except Unreachable as error:
            log.info("files wait", replica=followed.key.replica_id, reason=str(error))
            return False
        except Exception:  # whatever a program has left here, the other replicas go on
            log.exception("files cannot be looked at, they stay on the disk", replica=followed.key.replica_id)
            return False
        if ended and is_settled:
            with self._lock:
                del self._followed[followed.key]
            self._done(followed.key)
        return is_settled or not ended

    def _look(self, followed: _Followed, *, ended: bool) -> bool:
        """1. Find what is new. 2. Offer it, if that was not done. 3. Send what is wanted. Whether all is settled."""
        began = time.monotonic()
        found = self._found(followed)
        self._looking_s += time.monotonic() - began
        new = [file for file in found if followed.delivered.get(file.name) != file.stamp]
        due = [file for file in new if not file.problem and self._is_due(followed, file, ended=ended)]
        followed.unasked = {file.name: self._as_told(followed, file, ended=ended) for file in new if _is_unasked(file)}
        followed.seen = {file.name: file.stamp for file in new}
        kept = len(followed.delivered)
        over = [file for file in due if file.name not in followed.delivered][max(FILES_MAX - kept, 0) :]
        left = [(file, file.problem) for file in new if file.problem and not _is_unasked(file)]
        left += [(file, NotKept.MANY) for file in over]
        left += [(file, followed.refused[file.name][1]) for file in due if _was_refused(followed, file)]
        left += [(file, NotKept.UNASKED) for file in followed.unasked.values()]
        settled = {file.name for file, _ in left}
        sendable = [file for file in due if file.name not in settled]
        wanted = self._offer(followed, sendable, left)
        to_send = [file for file in sendable if file.name in wanted and not _is_settled(followed, file)]
        for file in to_send:
            if self._closed.is_set():
                return False
            self._send(followed, file, ended=ended)
        unsettled = [file for file in to_send if not _is_settled(followed, file)]
        if to_send:  # so that pages hear of it
            refused = [(file, followed.refused[file.name][1]) for file in to_send if _was_refused(followed, file)]
            rest = [file for file in sendable if file not in to_send]
            self._offer(followed, [*rest, *unsettled], [*refused, *left])
        return not unsettled

    def _found(self, followed: _Followed) -> list[Found]:
        """One file for each name, the smallest first: what was put aside for its owner before what lies in the work
        folder."""
        aside = files_below(followed.folder / "artifacts", is_wanted=lambda name: True)
        installed_at_ns = self._journal.installed_at_ns(followed.key)
        if followed.spec.kind is not Kind.SCRIPT or installed_at_ns is None:
            return aside
        patterns = followed.spec.files
        written = files_below(
            followed.folder / "code", is_wanted=lambda name: is_asked_for(name, patterns), since_ns=installed_at_ns
        )
        by_name = {file.name: file for file in [*written, *aside]}
        return sorted(by_name.values(), key=lambda file: (file.size_bytes, file.name))

    def _as_told(self, followed: _Followed, file: Found, *, ended: bool) -> Found:
        """A file that nobody asks for as it is told of: while it grows, with the size at which it was seen first."""
        is_still = ended or followed.seen.get(file.name) == file.stamp
        return file if is_still else followed.unasked.get(file.name, file)

    def _is_due(self, followed: _Followed, file: Found, *, ended: bool) -> bool:
        if ended or followed.seen.get(file.name) == file.stamp:
            return True
        if not is_asked_for(file.name, GROWING):
            return False
        now = time.monotonic()
        at, pause_s = followed.due.setdefault(file.name, (now + GROWN_S, GROWN_S))
        if now < at:
            return False
        followed.due[file.name] = (now + 2 * pause_s, min(2 * pause_s, GROWN_LONGEST_S))
        return True

    def _offer(self, followed: _Followed, files: list[Found], left: list[tuple[Found, NotKept]]) -> set[str]:
        """The names to send. Of a recipe, all; of a script, what its job has room for."""
        names = {file.name for file in files}
        if followed.spec.kind is not Kind.SCRIPT:
            return names
        offer = Offer(
            files={file.name: file.size_bytes for file in files},
            left=[LeftFile(name=file.told_name, size_bytes=file.size_bytes, why=why) for file, why in left[:NAMED_MAX]],
            more=len(left[NAMED_MAX:]),
        )
        if offer == followed.offered:
            return followed.wanted
        try:
            wanted = set(self._control_plane.offer_files(offer, **_sender(followed.key)))
        except Rejected as error:
            if error.may_pass:
                raise Unreachable(str(error)) from error
            log.warning("an offer of files was refused", replica=followed.key.replica_id, reason=str(error))
            wanted = names
        followed.offered, followed.wanted = offer, wanted
        return wanted

    def _send(self, followed: _Followed, file: Found, *, ended: bool) -> None:
        """Deliver one file. One that changes meanwhile is sent at another time, or given up once its program has ended;
        raises `Unreachable`."""
        said = log.bind(replica=followed.key.replica_id, name=file.name)
        try:
            with opened(file) as content:
                sha256 = digest_of(content, file.size_bytes)
                self._control_plane.upload_artifact(
                    pieces_of(content, size_bytes=file.size_bytes, sha256=sha256),
                    name=file.name,
                    size_bytes=file.size_bytes,
                    sha256=sha256,
                    metrics=metrics_of(file.folder),
                    **_sender(followed.key),
                )
        except Unreachable:
            raise
        except Rejected as error:
            if error.may_pass:
                raise Unreachable(str(error)) from error
            said.warning("file refused", reason=str(error))
            followed.refused[file.name] = (file.stamp, NotKept.REFUSED)
        except Changed:
            reads = followed.reads[file.name] = followed.reads.get(file.name, 0) + 1
            said.info("file changed while it was read", times=reads)
            if ended and reads >= _READS_MAX:
                followed.refused[file.name] = (None, NotKept.CHANGING)
        except Exception as error:  # whatever a program has left here, its other files go on
            said.warning("file unreadable", reason=str(error))
            followed.refused[file.name] = (file.stamp, NotKept.UNREADABLE)
        else:
            followed.delivered[file.name] = file.stamp
            followed.reads.pop(file.name, None)
            with contextlib.suppress(OSError):
                write_json(followed.folder / _DELIVERED_FILE, followed.delivered)


def _sender(key: ReplicaKey) -> dict[str, int]:
    return {"replica_id": key.replica_id, "attempt": key.attempt}


def _is_unasked(file: Found) -> bool:
    return file.problem is NotKept.UNASKED


def _was_refused(followed: _Followed, file: Found) -> bool:
    stamp, why = followed.refused.get(file.name, (None, None))
    return why is not None and stamp in (None, file.stamp)


def _is_settled(followed: _Followed, file: Found) -> bool:
    return followed.delivered.get(file.name) == file.stamp or _was_refused(followed, file)


def metrics_of(folder: Path) -> str:
    """`metrics.json` on one line with words for NaN and infinity; "" when there is none that could be used."""
    try:
        metrics = json.loads((folder / METRICS_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(metrics, dict):
        return ""
    text = json.dumps({name: _without_nan(value) for name, value in metrics.items()})
    return text if len(text) <= _METRICS_CHARS_MAX else ""


def _without_nan(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
