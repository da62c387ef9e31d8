"""The signed envelope around every command and report: who, until when, once, unchanged.

The signature covers sender, expiry, nonce and body (HMAC-SHA256, RFC 2104) with the node's own key, given once when
the agent joined. Celery's and Redis' own protections are not relied upon: with write access to Redis and no key,
nothing can be made to run.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict

import msgspec


class BadEnvelope(Exception):
    """The envelope cannot be trusted: wrong node, bad signature, expired, or seen before."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """`node_id` whose key signed it, `expires_at` (unix s), random `nonce`, encoded `body`, `mac` over all."""

    node_id: str
    expires_at: float
    nonce: bytes
    body: bytes
    mac: bytes = b""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def seal(body: bytes, *, node_id: str, key: bytes, expires_at: float) -> bytes:
    """Wrap and sign `body` for (or from) a node."""
    bare = Envelope(node_id=node_id, expires_at=expires_at, nonce=secrets.token_bytes(12), body=body)
    return _encoder.encode(msgspec.structs.replace(bare, mac=_mac(bare, key)))


def read_envelope(data: bytes) -> Envelope:
    """An envelope as it is written, to find the key to `verify` it with: it proves nothing by itself. Raises
    `BadEnvelope`."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadEnvelope("it is not an envelope") from error


def open_envelope(data: bytes, *, node_id: str, key: bytes, now: float) -> tuple[bytes, bytes]:
    """The body and nonce of a genuine envelope of `node_id`; raises `BadEnvelope`."""
    envelope = read_envelope(data)
    if envelope.node_id != node_id:
        raise BadEnvelope("it is addressed to another node")
    verify(envelope, key=key, now=now)
    return envelope.body, envelope.nonce


def verify(envelope: Envelope, *, key: bytes, now: float) -> None:
    """Raises `BadEnvelope` unless it was signed with the key of its node and has not expired."""
    if not hmac.compare_digest(envelope.mac, _mac(envelope, key)):
        raise BadEnvelope("its signature does not match this node's key")
    if envelope.expires_at < now:
        raise BadEnvelope("it has expired")


class SeenNonces:
    """Remembers the latest nonces, so that a replayed envelope is refused. Bounded: `limit` entries."""

    def __init__(self, limit: int = 10_000) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._limit = limit

    def __contains__(self, nonce: bytes) -> bool:
        return nonce in self._seen

    def claim(self, nonce: bytes) -> None:
        """Take a nonce; raises `BadEnvelope` if it was taken before."""
        if nonce in self._seen:
            raise BadEnvelope("it has been used before")
        self._seen[nonce] = None
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)


def sign_request(*, method: str, path: str, at: int, key: bytes) -> str:
    """The hex signature of an agent's HTTP request (code download, artifact upload)."""
    return hmac.new(key, f"{method}\n{path}\n{at}".encode(), hashlib.sha256).hexdigest()


def _mac(envelope: Envelope, key: bytes) -> bytes:
    head = f"{envelope.node_id}\n{envelope.expires_at!r}\n".encode()
    return hmac.new(key, head + envelope.nonce + envelope.body, hashlib.sha256).digest()
