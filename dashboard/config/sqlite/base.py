"""Django's SQLite, where all who wait to write look for their turn equally often. `DATABASES["default"]["ENGINE"]`.

SQLite itself looks less and less often, in the end every 100 ms: on a busy database, where each turn is taken within a
millisecond, who came last is served first and others wait for seconds. Here each waits for a few milliseconds, and
begins again until the `timeout` of the settings is over.
"""

import sqlite3
import time
from functools import partial
from typing import Any

from django.db.backends.sqlite3 import base

# SQLite looks after 1, 3 and 8 ms.
LOOKS_S = 0.008


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that gives up after `timeout` seconds, as Django's own does."""

    def get_connection_params(self) -> dict[str, Any]:
        """With a short `timeout` for SQLite itself."""
        params: dict[str, Any] = super().get_connection_params()
        self._patience_s = float(params.get("timeout", 5.0))
        return params | {"timeout": min(LOOKS_S, self._patience_s)}

    def create_cursor(self, name: str | None = None) -> "Cursor":
        """One that waits for its turn."""
        cursor: Cursor = self.connection.cursor(factory=partial(Cursor, patience_s=self._patience_s))
        return cursor


class Cursor(base.SQLiteCursorWrapper):
    """Begins again while others write."""

    def __init__(self, connection: sqlite3.Connection, *, patience_s: float) -> None:
        super().__init__(connection)
        self._patience_s = patience_s

    def execute(self, query: str, params: Any = None) -> Any:
        """As Django's; a statement that found the database busy has done nothing yet."""
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                return super().execute(query, params)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up_at:
                    raise
