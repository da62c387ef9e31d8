"""Trainyard's own store of checkpoints, for clusters whose nodes share no folder: taken from agents file by file, given
to the agents of gangs that go on from them, and to people as an archive.

A checkpoint gathers in `<checkpoint root>/.incoming/<replica>-<name>/`, marker first, so that it is known what is to
come; when every file is there with its digest, the folder is renamed to `<checkpoint root>/<job>/<name>/`. Sending
anything again is harmless, so an upload that was cut off goes on with the files that are missing.
"""

import hashlib
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from orchestrator import enqueue, live
from orchestrator.models import Checkpoint, Job, Node, Replica
from orchestrator.queries import jobs as job_queries
from orchestrator.queries.errors import NotFound
from orchestrator.services import artifacts, fencing
from orchestrator.services.checkpoints import checkpoint_registry
from orchestrator.services.errors import Conflict, FieldError, Invalid
from worker_agent.protocol.checkpoint import MARKER, Marker, is_name, order_of, problem_of
from worker_agent.protocol.states import JobStatus

MARKER_BYTES_MAX = 16_000_000
PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Offered:
    """What the store says to a checkpoint: the files that are `missing` still, or the row once it is complete."""

    missing: list[str]
    row: Checkpoint | None = None


def offer(*, node: Node, replica_id: int, attempt: int, marker: bytes) -> Offered:
    """An agent has the checkpoint that this marker describes, and asks what to send; asked again when all is sent.

    Raises `NotFound` (no such replica on this node), `Conflict` (another attempt) and `Invalid`.
    """
    replica = fencing.sender(node=node, replica_id=replica_id, attempt=attempt)
    described = _read(marker, replica)
    known = Checkpoint.objects.filter(job=replica.job, name=described.name).first()
    if known is not None and known.usable:
        return Offered([], known)
    folder = _incoming(replica, described.name)
    folder.mkdir(exist_ok=True, mode=0o700)
    (folder / MARKER).write_bytes(marker)
    missing = [name for name, part in described.files.items() if not _has(folder / name, part.size_bytes)]
    if missing:
        return Offered(missing)
    return Offered([], _complete(replica, described, folder, marker))


def take(*, node: Node, replica_id: int, attempt: int, name: str, file: str, chunks: Iterable[bytes]) -> None:
    """One file of a checkpoint whose marker was offered; raises as `offer` does, and `NoSpace`."""
    replica = fencing.sender(node=node, replica_id=replica_id, attempt=attempt)
    folder = _incoming(replica, name) if is_name(name) else Path()
    try:
        described = _read((folder / MARKER).read_bytes(), replica)
    except OSError as error:
        raise NotFound("No checkpoint of that name was offered.") from error
    part = described.files.get(file)
    if part is None:
        raise NotFound("The marker of the checkpoint names no such file.")
    partial = folder / f".{file}"
    partial.unlink(missing_ok=True)
    try:
        artifacts.receive(chunks, partial, part.sha256)
        partial.replace(folder / file)
    finally:
        partial.unlink(missing_ok=True)


def open_for(node: Node, checkpoint_id: int, file: str) -> tuple[BinaryIO, int]:
    """A file of a checkpoint, and its size, for a node that holds a replica which begins with it; else `NotFound`. One
    that was replaced begins with its own job's."""
    row = Checkpoint.objects.filter(pk=checkpoint_id, usable=True, place="").first()
    may_begin = Q(job__attempts__resumed_from=checkpoint_id) | Q(job__checkpoints=checkpoint_id, incarnation__gt=0)
    begins = Replica.objects.filter(may_begin, node=node, held=True)
    if row is None or not begins.exists():
        raise NotFound("No replica on this node begins with such a checkpoint.")
    path = checkpoint_registry.folder_of(row) / file
    if "/" in file or file.startswith(".") or not path.is_file():
        raise NotFound("The checkpoint has no such file.")
    return path.open("rb"), path.stat().st_size


def archive(*, user: job_queries.Person, job_id: int, checkpoint_id: int) -> tuple[Checkpoint, Iterator[bytes]]:
    """A checkpoint of a job that this person may see, as the pieces of a tar file; `NotFound`, or `Conflict` where the
    files lie elsewhere."""
    job = job_queries.get(user, job_id)
    row = Checkpoint.objects.filter(pk=checkpoint_id, job=job).first()
    if row is None:
        raise NotFound("This job has no such checkpoint.")
    if row.place:
        raise Conflict(f"It is in the folder that the nodes share: {row.place}/{row.name}.")
    folder = checkpoint_registry.folder_of(row)
    if not row.usable or not (folder / MARKER).is_file():
        raise Conflict("It is still on its way from its node.")
    return row, _tar(folder)


def _complete(replica: Replica, described: Marker, folder: Path, marker: bytes) -> Checkpoint:
    """Row and folder together: if the rename fails, the row is not usable."""
    digest = hashlib.sha256(marker).hexdigest()
    columns = checkpoint_registry.columns_of(described, attempt=replica.attempt, sha256=digest)
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=replica.job_id)
        row, _ = Checkpoint.objects.update_or_create(
            job=job, name=described.name, defaults=columns | {"usable": True, "place": ""}
        )
        place = checkpoint_registry.folder_of(row)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(place, ignore_errors=True)
        folder.rename(place)
        live.announce(live.job_group(job.pk), [live.checkpoints_changed()])
        checkpoint_registry.drop_unkept(job)
        if job.status == JobStatus.SUBMITTED:  # it may be the one that its next launch waits for
            enqueue.ask_to_dispatch()
    return row


def _read(marker: bytes, replica: Replica) -> Marker:
    try:
        described = msgspec.json.decode(marker, type=Marker)
        problem = problem_of(described)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid([FieldError("", f"This is not the marker of a checkpoint: {error}")]) from error
    if not problem and order_of(described.name) != (replica.attempt, described.step):
        problem = "its name does not say its attempt and step"
    if not problem and not 0 <= described.epoch <= checkpoint_registry.COUNT_MAX:
        problem = "its epoch is out of range"
    if problem:
        raise Invalid([FieldError("", f"This marker is not one of a checkpoint: {problem}.")])
    return described


def _incoming(replica: Replica, name: str) -> Path:
    return artifacts.incoming_folder(Path(settings.CHECKPOINT_ROOT)) / f"{replica.pk}-{name}"


def _has(path: Path, size_bytes: int) -> bool:
    """A file gets its name only when its digest was right."""
    with suppress(OSError):
        return path.stat().st_size == size_bytes
    return False


def _tar(folder: Path) -> Iterator[bytes]:
    """The folder as an uncompressed tar file, a piece at a time."""
    for path in sorted(folder.iterdir()):
        info = tarfile.TarInfo(f"{folder.name}/{path.name}")
        with path.open("rb") as file:
            stat = path.stat()
            info.size, info.mtime = stat.st_size, int(stat.st_mtime)
            yield info.tobuf(format=tarfile.PAX_FORMAT)
            while piece := file.read(PIECE_BYTES):
                yield piece
            yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
