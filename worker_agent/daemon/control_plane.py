"""The agent's HTTP side: joining, code down, artifacts up; signed with the node's key.

The little that does not go through Redis. Called by `__main__` (join) and in `transfer/`.
"""

import contextlib
import hashlib
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from worker_agent.machine.files import sync_folder
from worker_agent.protocol.envelope import sign_request
from worker_agent.protocol.files import Offer, Wanted
from worker_agent.protocol.job.archive import PROGRAM_BYTES_MAX
from worker_agent.protocol.joining import Grant, JoinRequest, Network
from worker_agent.replica.checkpoint_folder import open_plain

PATIENCE_S = 60.0

_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_SHORT_TIMEOUT = httpx.Timeout(5.0)
_JSON = {"Content-Type": "application/json"}
_FILE = {"Content-Type": "application/octet-stream"}

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


class NotFetched(Exception):
    """What a replica begins with cannot be had: the message says why."""


def join(url: str, request: JoinRequest) -> Grant:
    """Exchange a one-time token for a node's identity; raises `Unreachable` or `Rejected`."""
    with _client() as client, _as_our_errors():
        return _decoded(client.post(f"{_base(url)}/join", content=msgspec.json.encode(request), headers=_JSON), Grant)


class Missing(msgspec.Struct, frozen=True):
    """What the store answers to a checkpoint that it is offered."""

    missing: list[str]


class ControlPlane:
    """Signed requests of one node. Used by several threads."""

    def __init__(self, url: str, *, node_id: str, key: bytes) -> None:
        self._base = _base(url)
        self._node_id = node_id
        self._key = key
        self._client = _client()

    def network(self) -> Network:
        """What the node's cluster asks of addresses now; raises `Unreachable` or `Rejected`."""
        return _decoded(self._answer("GET", "network", headers={}, timeout=_SHORT_TIMEOUT), Network)

    def download_code(self, sha256: str, target: Path) -> None:
        """Write the program with this digest to `target`, whole or not at all; raises `Unreachable` or `Rejected`."""
        self._download(f"code/{sha256}", target, sha256=sha256, what="code", size_max=PROGRAM_BYTES_MAX)

    def download_checkpoint(self, checkpoint_id: int, name: str, target: Path, *, sha256: str, size_max: int) -> None:
        """Write one file of a stored checkpoint to `target`, whole or not at all; raises as `download_code` does."""
        path = f"checkpoints/{checkpoint_id}/{name}"
        self._download(path, target, sha256=sha256, what="checkpoint", size_max=size_max)

    def offer_files(self, offer: Offer, *, replica_id: int, attempt: int) -> list[str]:
        """Tell what a replica has left and was not delivered; the names to send. Raises as `upload_artifact`."""
        path = f"replicas/{replica_id}/files"
        return _decoded(self._put(path, msgspec.json.encode(offer), attempt=attempt, headers=_JSON), Wanted).names

    def upload_artifact(
        self,
        pieces: Iterable[bytes],
        *,
        name: str,
        size_bytes: int,
        sha256: str,
        replica_id: int,
        attempt: int,
        metrics: str,
    ) -> None:
        """Deliver one file; doing it again is harmless. Raises `Unreachable`, `Rejected`, and what `pieces` raise."""
        headers = _FILE | {"Content-Length": str(size_bytes), "X-Trainyard-Sha256": sha256}
        headers |= {"X-Trainyard-Metrics": metrics} if metrics else {}
        self._put(f"replicas/{replica_id}/artifacts/{name}", pieces, attempt=attempt, headers=headers)

    def offer_checkpoint(self, marker: bytes, *, name: str, replica_id: int, attempt: int) -> list[str]:
        """The files of this checkpoint that the store has not; none when it is there. Raises as `upload_artifact`."""
        path = f"replicas/{replica_id}/checkpoints/{name}"
        return _decoded(self._put(path, marker, attempt=attempt, headers=_JSON), Missing).missing

    def upload_checkpoint(self, file: Path, *, replica_id: int, attempt: int) -> None:
        """Deliver one file of a checkpoint that was offered. Raises as `upload_artifact`."""
        path = f"replicas/{replica_id}/checkpoints/{file.parent.name}/{file.name}"
        with open_plain(file) as content:
            self._put(path, content, attempt=attempt, headers=_FILE)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _put(
        self, path: str, content: bytes | BinaryIO | Iterable[bytes], *, attempt: int, headers: dict[str, str]
    ) -> httpx.Response:
        return self._answer("PUT", path, params={"attempt": attempt}, content=content, headers=headers)

    def _answer(self, method: str, path: str, *, headers: dict[str, str], **request: Any) -> httpx.Response:
        headers = self._signed(method, path) | headers
        with _as_our_errors():
            return self._client.request(method, f"{self._base}/{quote(path)}", headers=headers, **request)

    def _download(self, path: str, target: Path, *, sha256: str, what: str, size_max: int) -> None:
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        digest = hashlib.sha256()
        size_bytes = 0
        try:
            with (
                _as_our_errors(),
                self._client.stream("GET", f"{self._base}/{path}", headers=self._signed("GET", path)) as answer,
                partial.open("wb") as file,
            ):
                for chunk in answer.iter_bytes():
                    size_bytes += len(chunk)
                    if size_bytes > size_max:
                        raise Rejected(413, f"The {what} is larger than {size_max // 1_000_000} MB.")
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())  # what has its name is whole, also after a power cut
            if digest.hexdigest() != sha256:
                raise Rejected(
                    200, f"The {what} that arrived is not the {what} that was submitted (its digest differs)."
                )
            partial.replace(target)
            sync_folder(target.parent)
        finally:
            partial.unlink(missing_ok=True)

    def _signed(self, method: str, path: str) -> dict[str, str]:
        at = int(time.time())
        mac = sign_request(method=method, path=f"{urlsplit(self._base).path}/{path}", at=at, key=self._key)
        return {"Authorization": f"Trainyard node={self._node_id}, at={at}, mac={mac}"}


def patiently(fetch: Callable[[], None], *, what: str, wait: Callable[[float], bool]) -> None:
    """Fetch, again and again while the control plane does not answer, for `PATIENCE_S` at the longest; raises
    `NotFetched`. `wait(s)` pauses, and is true when nobody waits any more."""
    pause_s, waited_s = 0.1, 0.0
    while True:
        try:
            return fetch()
        except Rejected as error:
            raise NotFetched(f"The control plane did not give the {what}: {error}") from error
        except Unreachable as error:
            if waited_s >= PATIENCE_S or wait(pause_s):
                raise NotFetched(f"The {what} could not be fetched from the control plane: {error}.") from error
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


def _base(url: str) -> str:
    return f"{url.rstrip('/')}/agent/v1"


def _client() -> httpx.Client:
    """Its requests raise `Unreachable` or `Rejected` for every answer that says so."""
    return httpx.Client(timeout=_TIMEOUT, trust_env=False, event_hooks={"response": [_raise_for_status]})


def _raise_for_status(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    if answer.status_code >= 500 or answer.status_code in (408, 429):
        raise Unreachable(f"it answered {answer.status_code}")
    answer.read()
    raise Rejected(answer.status_code, _detail(answer))


def _detail(answer: httpx.Response) -> str:
    """The sentence in an error answer."""
    try:
        detail = msgspec.json.decode(answer.content)["detail"]
    except (msgspec.DecodeError, KeyError, TypeError):
        detail = ""
    return str(detail)[:1000] if detail else f"It answered {answer.status_code} {answer.reason_phrase}."
