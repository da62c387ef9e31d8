"""Files that jobs leave: taken from agents, checked, kept on disk, and handed out to people who may see the job.

A file streams to `<artifact root>/.incoming` first and is renamed to `<artifact root>/<id>/<name>` when its digest is
right, so that a half of one is never seen. Nothing here looks into a file: what it holds is the user's affair.
"""

import hashlib
import hmac
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.db import transaction

from orchestrator import live
from orchestrator.models import Artifact, Node, Replica
from orchestrator.queries import jobs as job_queries
from orchestrator.queries.errors import NotFound
from orchestrator.services import fencing, transitions
from orchestrator.services.errors import Conflict, FieldError, Invalid

NAME_BYTES = 200
FREE_BYTES_KEPT = 200_000_000
SPACE_CHECKED_EVERY_BYTES = 64_000_000
INCOMING_KEPT_S = 86_400
METRICS_KEPT = 100
SHA256 = re.compile(r"[0-9a-f]{64}")


class NoSpace(Conflict):
    """The control plane's disk has no room for the file at this time."""


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
    known = Artifact.objects.filter(job=replica.job, attempt=attempt, name=name).first()
    if known is not None and hmac.compare_digest(known.sha256, sha256) and path_of(known).is_file():
        return known
    incoming = incoming_folder(Path(settings.ARTIFACT_ROOT)) / secrets.token_hex(16)
    try:
        size_bytes = receive(chunks, incoming, sha256)
        return _keep(replica, name=name, incoming=incoming, size_bytes=size_bytes, sha256=sha256, metrics=metrics)
    finally:
        incoming.unlink(missing_ok=True)


def open_file(*, user: job_queries.Person, job_id: int, artifact_id: int) -> tuple[Artifact, BinaryIO]:
    """A file of a job that this person may see, and its row; raises `NotFound`."""
    artifact = Artifact.objects.filter(pk=artifact_id, job=job_queries.get(user, job_id)).first()
    if artifact is None:
        raise NotFound("This job has no such file.")
    try:
        return artifact, path_of(artifact).open("rb")
    except OSError as error:
        raise NotFound(f"The file {artifact.name} is no longer on the control plane's disk.") from error


def path_of(artifact: Artifact) -> Path:
    """Where a file lies."""
    return Path(settings.ARTIFACT_ROOT) / str(artifact.pk) / artifact.name


def receive(chunks: Iterable[bytes], path: Path, sha256: str) -> int:
    """Write a new file as it arrives, to the platter; its size. Raises `Invalid` (size, digest) and `NoSpace`."""
    digest, size, checked = hashlib.sha256(), 0, -SPACE_CHECKED_EVERY_BYTES
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > settings.MAX_ARTIFACT_BYTES:
                raise Invalid([FieldError("file", f"Files may have {settings.MAX_ARTIFACT_BYTES:,} bytes at most.")])
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
    is_long = len(name.encode()) > NAME_BYTES
    if not name or is_long or name.startswith(".") or not name.isprintable() or set(name) & set("/\\"):
        raise Invalid([FieldError("name", "A file name: printable, without slashes, not hidden, at most 200 bytes.")])


def _keep(
    replica: Replica, *, name: str, incoming: Path, size_bytes: int, sha256: str, metrics: Mapping[str, object]
) -> Artifact:
    """Row and file together: if the rename fails, there is no row."""
    values = dict(list(metrics.items())[:METRICS_KEPT]) or replica.job.metrics
    columns = {"kind": _kind(name), "size_bytes": size_bytes, "sha256": sha256, "metrics": live.jsonable(values)}
    with transaction.atomic():
        artifact, _ = Artifact.objects.update_or_create(
            job=replica.job, attempt=replica.attempt, name=name, defaults=columns
        )
        path = path_of(artifact)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        incoming.replace(path)
        text = f"{replica.words} wrote the file {name}."
        transitions.record(kind="artifact_stored", text=text, replica=replica)
        live.announce(live.job_group(replica.job_id), [live.artifact_stored(artifact)])
    return artifact


def _kind(name: str) -> str:
    if name.endswith(".keras"):
        return "model"
    return "metrics" if name == "metrics.json" else "file"
