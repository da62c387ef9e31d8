"""How the control plane's processes write their own log: one line per event, for people or (JSON) for machines."""

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def without_needless_traceback(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Django logs refusals (403, 404, 400) with the traceback of the refusal, which says nothing about a fault."""
    if event.get("level") == "warning" and str(event.get("logger", "")).startswith("django."):
        event.pop("exc_info", None)
    return event


SHARED: list[structlog.typing.Processor] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
    without_needless_traceback,
]


class StandardError(logging.Handler):
    """Writes to standard error as it is at that moment, also where it has been exchanged or closed since the start."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line, or nothing where nobody can read it."""
        with contextlib.suppress(ValueError):
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


def logging_config(*, as_json: bool, debug: bool) -> dict[str, Any]:
    """Django's LOGGING: everything goes to standard error through structlog."""
    tail: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": SHARED,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail],
            },
        },
        "handlers": {"stderr": {"()": StandardError, "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": "INFO"},
        "loggers": {
            # Set up by uvicorn and Django with handlers of their own: lines of another form, and every line twice.
            "uvicorn": {"handlers": [], "propagate": True},
            # Not every request: to configure its parent would undo `--no-access-log`.
            "uvicorn.access": {"handlers": [], "propagate": False},
            "django": {"handlers": [], "level": "DEBUG" if debug else "INFO", "propagate": True},
            "django.server": {"handlers": [], "propagate": True},
            "django.db.backends": {"level": "INFO"},
            "axes": {"level": "WARNING"},
        },
    }


def configure_structlog() -> None:
    """Let `structlog.get_logger()` and Python's warnings end in the same lines as the standard library's loggers."""
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
