"""Files that jobs leave: taken from agents, checked, kept on disk, and handed out to people who may see the job.

A file streams to `<artifact root>/.incoming` first and is renamed to `<artifact root>/<id>/<name>` when its digest is
right, so that a half of one is never seen. Nothing here looks into a file: what it holds is the user's affair. The
files of a script are offered before they come, because its job has room for so many; files of earlier attempts make
room for those of later ones.
"""

import hashlib
import hmac
import os
import re
import secrets
import shutil
import time
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import RawIOBase
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, ClassVar

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from orchestrator import live
from orchestrator.models import Artifact, Job, Node, Replica
from orchestrator.queries import jobs as job_queries
from orchestrator.queries.errors import NotFound
from orchestrator.services import fencing, transitions
from orchestrator.services.errors import Conflict, FieldError, Invalid
from worker_agent.protocol.codec import plain
from worker_agent.protocol.files import FILES_MAX, NAMED_MAX, LeftFile, LeftFiles, NotKept, Offer, name_problem
from worker_agent.protocol.states import Kind

FREE_BYTES_KEPT = 200_000_000
SPACE_CHECKED_EVERY_BYTES = 64_000_000
INCOMING_KEPT_S = 86_400
PIECE_BYTES = 1 << 20
METRICS_KEPT = 100
ANNOUNCED_EVERY_S = 1.0
MB = 1_000_000
SHA256 = re.compile(r"[0-9a-f]{64}")


class _Announced:
    """When pages were last told of a file of this job: in memory, because an offer follows the last file."""

    at: ClassVar[dict[int, float]] = {}


class NoSpace(Conflict):
    """The control plane's disk has no room for the file at this time."""


def offer(*, node: Node, replica_id: int, attempt: int, offer: bytes) -> list[str]:
    """An agent tells what a replica of `node` has left and was not delivered; the names of what it is to send. What is
    not kept is noted with its reason. Raises as `store` does."""
    replica = fencing.sender(node=node, replica_id=replica_id, attempt=attempt)
    try:
        offered = msgspec.json.decode(offer, type=Offer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid([FieldError("", f"This is not an offer of files: {error}")]) from error
    for name in (*offered.files, *(file.name for file in offered.left)):
        _check_name(name)
    room = _room(replica, besides=offered.files)
    wanted, left = [], offered.left[:NAMED_MAX]
    for name, size_bytes in offered.files.items():
        if size_bytes > settings.MAX_ARTIFACT_BYTES:
            left.append(LeftFile(name=name, size_bytes=size_bytes, why=NotKept.TOO_LARGE))
        elif room is not None and size_bytes > room:
            left.append(LeftFile(name=name, size_bytes=size_bytes, why=NotKept.LIMIT))
        else:
            wanted.append(name)
            room = None if room is None else room - size_bytes
    named = LeftFiles(left=left[:NAMED_MAX], more=offered.more + len(left[NAMED_MAX:]))
    with transaction.atomic():
        Replica.objects.filter(pk=replica.pk).update(files_left=live.jsonable(plain(named)))
        live.announce(live.job_group(replica.job_id), [live.files_changed()])
    return wanted


def store(
    *,
    node: Node,
    replica_id: int,
    attempt: int,
    name: str,
    chunks: Iterable[bytes],
    sha256: str,
    metrics: Mapping[str, object],
) -> Artifact:
    """Keep a file of a replica that runs on `node`. The same file again changes nothing; other content replaces it.

    Raises `NotFound` (no such replica on this node), `Conflict` (another attempt), `Invalid` (name, size or digest)
    and `NoSpace`.
    """
    replica = fencing.sender(node=node, replica_id=replica_id, attempt=attempt)
    _check_name(name)
    if not SHA256.fullmatch(sha256):
        raise Invalid([FieldError("sha256", "The SHA-256 of the file: 64 hexadecimal digits in lower case.")])
    known = Artifact.objects.filter(replica=replica, attempt=attempt, name=name).first()
    if known is not None and hmac.compare_digest(known.sha256, sha256) and path_of(known).is_file():
        return known
    incoming = incoming_folder(Path(settings.ARTIFACT_ROOT)) / secrets.token_hex(16)
    try:
        room = _room(replica, besides=[name])
        size_bytes = receive(chunks, incoming, sha256, size_max=room)
        return _keep(replica, name=name, incoming=incoming, size_bytes=size_bytes, sha256=sha256, metrics=metrics)
    finally:
        incoming.unlink(missing_ok=True)


def open_file(*, user: job_queries.Person, job_id: int, artifact_id: int) -> tuple[Artifact, BinaryIO]:
    """A file of a job that this person may see, and its row; raises `NotFound`."""
    artifact = (
        Artifact.objects.select_related("replica").filter(pk=artifact_id, job=job_queries.get(user, job_id)).first()
    )
    if artifact is None:
        raise NotFound("This job has no such file.")
    try:
        return artifact, path_of(artifact).open("rb")
    except OSError as error:
        raise NotFound(f"The file {artifact.name} is no longer on the control plane's disk.") from error


def path_of(artifact: Artifact) -> Path:
    """Where a file lies."""
    return Path(settings.ARTIFACT_ROOT) / str(artifact.pk) / PurePosixPath(artifact.name).name


def download_name(artifact: Artifact) -> str:
    """What a file is called where people save it: with its process, where another one has left a file of that name."""
    name = PurePosixPath(artifact.name).name
    others = Artifact.objects.filter(job=artifact.job_id, attempt=artifact.attempt, name=artifact.name)
    if artifact.replica is None or not others.exclude(pk=artifact.pk).exists():
        return name
    return f"{artifact.replica.role}-{artifact.replica.index}-{name}"


def archive(*, user: job_queries.Person, job_id: int, attempt: int, folder: str = "") -> Iterator[bytes]:
    """The files of an attempt, all or those below a folder, as the pieces of a zip file; raises `NotFound`. Where
    several processes have left files, each has a folder of its own."""
    job = job_queries.get(user, job_id)
    rows = [row for row in job_queries.artifacts(job) if row.attempt == attempt]
    rows = [row for row in rows if not folder or row.name.startswith(f"{folder}/")]
    if not rows:
        raise NotFound("This attempt has left no such files.")
    several = len({row.replica_id for row in rows}) > 1
    names = {
        row.pk: f"{row.replica.role}-{row.replica.index}/{row.name}" if several and row.replica else row.name
        for row in rows
    }
    return _zip([(names[row.pk], row) for row in reversed(rows)])


def receive(chunks: Iterable[bytes], path: Path, sha256: str, *, size_max: int | None = None) -> int:
    """Write a new file as it arrives, to the platter; its size. Raises `Invalid` (size, digest) and `NoSpace`."""
    digest, size, checked = hashlib.sha256(), 0, -SPACE_CHECKED_EVERY_BYTES
    largest = settings.MAX_ARTIFACT_BYTES if size_max is None else min(size_max, settings.MAX_ARTIFACT_BYTES)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > largest:
                raise Invalid([FieldError("file", f"This file may have {largest:,} bytes at most.")])
            if size - checked >= SPACE_CHECKED_EVERY_BYTES:
                if shutil.disk_usage(path.parent).free - len(chunk) < FREE_BYTES_KEPT:
                    raise NoSpace("The disk of the control plane is full; the file stays on its node.")
                checked = size
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if not hmac.compare_digest(digest.hexdigest(), sha256):
        raise Invalid([FieldError("file", "What arrived does not have the SHA-256 that was announced.")])
    return size


def incoming_folder(root: Path) -> Path:
    """The folder for what is on its way to `root`, emptied of what uploads that were given up have left."""
    folder = root / ".incoming"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in folder.iterdir():
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - INCOMING_KEPT_S:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    return folder


def _check_name(name: str) -> None:
    if problem := name_problem(name):
        raise Invalid([FieldError("name", f"A path below the program's folder: {problem}.")])


def _room(replica: Replica, *, besides: Collection[str]) -> int | None:
    """How many bytes the job of a script has left for this replica's files of these names; None: it has no limit."""
    spec = replica.job.typed_spec
    if spec.kind is not Kind.SCRIPT:
        return None
    present = Artifact.objects.filter(job=replica.job_id, attempt__gte=replica.attempt)
    sizes = present.values_list("replica_id", "name", "size_bytes")
    used = sum(size for pk, name, size in sizes if pk != replica.pk or name not in besides)
    return max(spec.files_limit_mb * MB - used, 0)


def _keep(
    replica: Replica, *, name: str, incoming: Path, size_bytes: int, sha256: str, metrics: Mapping[str, object]
) -> Artifact:
    """Row and file together: if the rename fails, there is no row."""
    values = dict(list(metrics.items())[:METRICS_KEPT]) or replica.job.metrics
    columns = {"kind": _kind(name), "size_bytes": size_bytes, "sha256": sha256, "metrics": live.jsonable(values)}
    with transaction.atomic():
        if replica.job.typed_spec.kind is Kind.SCRIPT:
            _make_room(replica, name=name, size_bytes=size_bytes)
        artifact, _ = Artifact.objects.update_or_create(
            job=replica.job, replica=replica, attempt=replica.attempt, name=name, defaults=columns
        )
        path = path_of(artifact)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        incoming.replace(path)
        _tell(replica, artifact)
    return artifact


def _make_room(replica: Replica, *, name: str, size_bytes: int) -> None:
    """Of earlier attempts, the oldest files go where there is no room for this one; raises `Conflict` where that is not
    enough. One file of a job after the other."""
    Job.objects.select_for_update(no_key=True).get(pk=replica.job_id)
    room = _room(replica, besides=[name])
    own = Artifact.objects.filter(replica=replica)
    if (room is not None and size_bytes > room) or (not own.filter(name=name).exists() and own.count() >= FILES_MAX):
        raise Conflict("The job has no room left for this file.")
    earlier = Artifact.objects.filter(job=replica.job_id, attempt__lt=replica.attempt)
    over = size_bytes + (earlier.aggregate(all=Sum("size_bytes"))["all"] or 0) - (room or 0)
    for row in earlier.order_by("pk"):
        if over <= 0:
            break
        over -= row.size_bytes
        transaction.on_commit(partial(shutil.rmtree, path_of(row).parent, ignore_errors=True))
        row.delete()


def _tell(replica: Replica, artifact: Artifact) -> None:
    """A recipe's file is a line of its history. Of a script's, which may be many, pages hear once a second."""
    if replica.job.typed_spec.kind is Kind.RECIPE:
        text = f"{replica.words} wrote the file {artifact.name}."
        transitions.record(kind="artifact_stored", text=text, replica=replica)
        live.announce(live.job_group(replica.job_id), [live.artifact_stored(artifact)])
        return
    now = time.monotonic()
    if now - _Announced.at.get(replica.job_id, 0.0) >= ANNOUNCED_EVERY_S:
        _Announced.at = {replica.job_id: now} | {job: at for job, at in _Announced.at.items() if at > now - 60}
        live.announce(live.job_group(replica.job_id), [live.files_changed()])


class _Pieces(RawIOBase):
    """What a zip file is written to: kept until it is taken."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._kept.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        kept, self._kept = b"".join(self._kept), []
        return kept


def _zip(files: Sequence[tuple[str, Artifact]]) -> Iterator[bytes]:
    """The files, not compressed, a piece at a time; those that have gone from the disk are left out."""
    pieces = _Pieces()
    with zipfile.ZipFile(pieces, "w") as content:
        for name, artifact in files:
            written = zipfile.ZipInfo(name, artifact.created_at.timetuple()[:6])
            with (
                suppress(FileNotFoundError),
                path_of(artifact).open("rb") as file,
                content.open(written, "w", force_zip64=True) as member,
            ):
                while piece := file.read(PIECE_BYTES):
                    member.write(piece)
                    yield pieces.take()
            yield pieces.take()
    yield pieces.take()


def _kind(name: str) -> str:
    if name.endswith(".keras"):
        return "model"
    return "metrics" if name == "metrics.json" else "file"
