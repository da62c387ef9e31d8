"""The agent's HTTP side: joining, code down, artifacts up; signed with the node's key.

The little that does not go through Redis. Called by `__main__` (join) and in `transfer/`.
"""

import contextlib
import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from worker_agent.protocol.envelope import sign_request
from worker_agent.protocol.job.archive import PROGRAM_BYTES_MAX
from worker_agent.protocol.joining import Grant, JoinRequest, Network
from worker_agent.replica.checkpoint_folder import open_plain

PATIENCE_S = 60.0

_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_SHORT_TIMEOUT = httpx.Timeout(5.0)
_PREFIX = "/agent/v1"

T = TypeVar("T")


class Unreachable(Exception):
    """The control plane did not answer, or is in trouble itself: worth trying again."""


class Rejected(Exception):
    """The control plane answered no. `status` is the HTTP status, the message what it said. `may_pass`: a clock that is
    off will be right again (signatures are bound to the time)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.may_pass = status == httpx.codes.UNAUTHORIZED


def join(url: str, request: JoinRequest) -> Grant:
    """Exchange a one-time token for a node's identity; raises `Unreachable` or `Rejected`."""
    body = msgspec.json.encode(request)
    with httpx.Client(timeout=_TIMEOUT, trust_env=False) as client, _as_our_errors():
        answer = client.post(
            f"{url.rstrip('/')}{_PREFIX}/join", content=body, headers={"Content-Type": "application/json"}
        )
    _raise_for_status(answer)
    return _decoded(answer, Grant)


class Missing(msgspec.Struct, frozen=True):
    """What the store answers to a checkpoint that it is offered."""

    missing: list[str]


class ControlPlane:
    """Signed requests of one node. Used by several threads."""

    def __init__(self, url: str, *, node_id: str, key: bytes) -> None:
        self._url = url.rstrip("/")
        self._base_path = urlsplit(self._url).path
        self._node_id = node_id
        self._key = key
        self._client = httpx.Client(timeout=_TIMEOUT, trust_env=False)

    def network(self) -> Network:
        """What the node's cluster asks of addresses now; raises `Unreachable` or `Rejected`."""
        path = f"{_PREFIX}/network"
        with _as_our_errors():
            answer = self._client.get(self._url + path, headers=self._signed("GET", path), timeout=_SHORT_TIMEOUT)
        _raise_for_status(answer)
        return _decoded(answer, Network)

    def download_code(self, sha256: str, target: Path) -> None:
        """Write the program with this digest to `target`, whole or not at all; raises `Unreachable` or `Rejected`."""
        self._download(f"{_PREFIX}/code/{sha256}", target, sha256=sha256, what="code", size_max=PROGRAM_BYTES_MAX)

    def download_checkpoint(self, checkpoint_id: int, name: str, target: Path, *, sha256: str, size_max: int) -> None:
        """Write one file of a stored checkpoint to `target`, whole or not at all; raises as `download_code` does."""
        path = f"{_PREFIX}/checkpoints/{checkpoint_id}/{name}"
        self._download(path, target, sha256=sha256, what="checkpoint", size_max=size_max)

    def upload_artifact(self, file: Path, *, name: str, replica_id: int, attempt: int, metrics: str) -> None:
        """Deliver one file; doing it again is harmless. Raises `Unreachable` or `Rejected`."""
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            content.seek(0)
            headers = {"X-Trainyard-Sha256": sha256} | ({"X-Trainyard-Metrics": metrics} if metrics else {})
            self._put_file(f"replicas/{replica_id}/artifacts/{name}", content, attempt=attempt, headers=headers)

    def offer_checkpoint(self, marker: bytes, *, name: str, replica_id: int, attempt: int) -> list[str]:
        """The files of this checkpoint that the store has not; none when it is there. Raises as `upload_artifact`."""
        headers = {"Content-Type": "application/json"}
        path = f"replicas/{replica_id}/checkpoints/{name}"
        return _decoded(self._put(path, marker, attempt=attempt, headers=headers), Missing).missing

    def upload_checkpoint(self, file: Path, *, replica_id: int, attempt: int) -> None:
        """Deliver one file of a checkpoint that was offered. Raises as `upload_artifact`."""
        path = f"replicas/{replica_id}/checkpoints/{file.parent.name}/{file.name}"
        with open_plain(file) as content:
            self._put_file(path, content, attempt=attempt, headers={})

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _put_file(self, path: str, file: BinaryIO, *, attempt: int, headers: dict[str, str]) -> None:
        described = {"Content-Length": str(os.fstat(file.fileno()).st_size), "Content-Type": "application/octet-stream"}
        self._put(path, file, attempt=attempt, headers=described | headers)

    def _put(self, path: str, content: bytes | BinaryIO, *, attempt: int, headers: dict[str, str]) -> httpx.Response:
        path = f"{_PREFIX}/{path}"
        with _as_our_errors():
            answer = self._client.put(
                self._url + quote(path),
                params={"attempt": attempt},
                content=content,
                headers=self._signed("PUT", path) | headers,
            )
        _raise_for_status(answer)
        return answer

    def _download(self, path: str, target: Path, *, sha256: str, what: str, size_max: int) -> None:
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        digest = hashlib.sha256()
        size_bytes = 0
        try:
            headers = self._signed("GET", path)
            with _as_our_errors(), self._client.stream("GET", self._url + path, headers=headers) as answer:
                if answer.status_code != httpx.codes.OK:
                    answer.read()
                _raise_for_status(answer)
                with partial.open("wb") as file:
                    for chunk in answer.iter_bytes():
                        size_bytes += len(chunk)
                        if size_bytes > size_max:
                            raise Rejected(413, f"The {what} is larger than {size_max // 1_000_000} MB.")
                        digest.update(chunk)
                        file.write(chunk)
            if digest.hexdigest() != sha256:
                raise Rejected(
                    200, f"The {what} that arrived is not the {what} that was submitted (its digest differs)."
                )
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def _signed(self, method: str, path: str) -> dict[str, str]:
        at = int(time.time())
        mac = sign_request(method=method, path=self._base_path + path, at=at, key=self._key)
        return {"Authorization": f"Trainyard node={self._node_id}, at={at}, mac={mac}"}


def patiently(fetch: Callable[[], None], *, wait: Callable[[float], bool]) -> None:
    """Fetch, again and again while the control plane does not answer; raises `Unreachable` after `PATIENCE_S`, or when
    nobody waits any more. `wait(s)` pauses, and says so."""
    pause_s, waited_s = 0.1, 0.0
    while True:
        try:
            return fetch()
        except Unreachable:
            if waited_s >= PATIENCE_S or wait(pause_s):
                raise
            waited_s += pause_s
            pause_s = min(5.0, pause_s * 2) * random.uniform(0.8, 1.2)


@contextlib.contextmanager
def _as_our_errors() -> Iterator[None]:
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise Rejected(0, f"This is not a web address: {error}") from error
    except httpx.HTTPError as error:
        raise Unreachable(str(error) or type(error).__name__) from error


def _decoded(answer: httpx.Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(
            answer.status_code, f"{answer.url.host} does not answer like a Trainyard control plane."
        ) from error


def _raise_for_status(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    if answer.status_code >= 500 or answer.status_code in (408, 429):
        raise Unreachable(f"it answered {answer.status_code}")
    raise Rejected(answer.status_code, _detail(answer))


def _detail(answer: httpx.Response) -> str:
    """The sentence in an error answer."""
    try:
        detail = msgspec.json.decode(answer.content)["detail"]
    except (msgspec.DecodeError, KeyError, TypeError):
        detail = ""
    return str(detail)[:1000] if detail else f"It answered {answer.status_code} {answer.reason_phrase}."
