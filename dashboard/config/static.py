"""Static files through WhiteNoise, which compresses them and lets browsers keep what is named by its content."""

from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import FileResponse, HttpRequest
from whitenoise.middleware import WhiteNoiseMiddleware

from dashboard.downloads import by_threads
from dashboard.static_files import STATIC_FILES


class StaticFilesMiddleware(WhiteNoiseMiddleware):
    """Stands where WhiteNoise's own would stand in `MIDDLEWARE`. Files are read in pieces by a thread: its own file
    response would be read whole by Django under ASGI, with a warning for each."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> FileResponse:
        """The file, or that it has not changed."""
        response: FileResponse = WhiteNoiseMiddleware.serve(static_file, request)
        if isinstance(request, ASGIRequest):
            response.streaming_content = by_threads(response.file_to_stream or BytesIO())
        return response

    def add_files_from_finders(self) -> None:
        """Only where nothing was prepared."""
        if not STATIC_FILES.hashed_files:
            super().add_files_from_finders()
