"""Files as downloads: always attachments that no browser opens by itself, streamed in pieces whatever their size.

Called by views, REST and `config/static.py`. Django would read a file response whole into memory under ASGI, hence the
asynchronous reader.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import BinaryIO

from channels.db import database_sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header

PIECE_BYTES = 256 * 1024


def attachment(request: HttpRequest, file: BinaryIO, *, name: str, size_bytes: int) -> StreamingHttpResponse:
    """The open `file` as a download called `name`; closed when it was sent or the peer went away."""
    content = by_threads(file) if isinstance(request, ASGIRequest) else _pieces(file)
    response = _attachment(content, name, "application/octet-stream")
    response.headers["Content-Length"] = str(size_bytes)
    return response


def bytes_attachment(request: HttpRequest, pieces: Iterable[bytes], *, name: str, kind: str) -> StreamingHttpResponse:
    """Bytes that are read or made piece by piece, such as a log or an archive, as a download of unknown length."""
    content = _each_by_threads(iter(pieces)) if isinstance(request, ASGIRequest) else pieces
    return _attachment(content, name, kind)


def _attachment(content: Iterable[bytes] | AsyncIterator[bytes], name: str, kind: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(content, content_type=kind)
    response.headers["Content-Disposition"] = content_disposition_header(as_attachment=True, filename=name)
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


async def by_threads(file: BinaryIO) -> AsyncIterator[bytes]:
    """The file piece by piece, each read by a thread; closed at the end."""
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


async def _each_by_threads(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    # The pieces are read from the database, whose connection has to be closed in the thread that opened it.
    take = database_sync_to_async(next, thread_sensitive=False)
    while (piece := await take(pieces, None)) is not None:
        yield piece
