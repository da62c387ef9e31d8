"""Static files through WhiteNoise, read in pieces by a thread: its own file response would be read whole by Django
under ASGI, with a warning for each.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, BinaryIO

from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest
from whitenoise.middleware import WhiteNoiseMiddleware

PIECE_BYTES = 256 * 1024


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    """Stands where WhiteNoise's own would stand in `MIDDLEWARE`."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> FileResponse:
        """The file, or that it has not changed."""
        response: FileResponse = WhiteNoiseMiddleware.serve(static_file, request)
        if isinstance(request, ASGIRequest):
            response.streaming_content = _pieces(response.file_to_stream)
        return response


async def _pieces(file: BinaryIO | None) -> AsyncIterator[bytes]:
    while file and (piece := await asyncio.to_thread(file.read, PIECE_BYTES)):
        yield piece
