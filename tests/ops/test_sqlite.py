"""Who waits to write to SQLite looks for its turn often, however long it has waited, and gives up in the end."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import OperationalError
from django.db.backends.sqlite3.base import SQLiteCursorWrapper

from dashboard.config.sqlite.base import DatabaseWrapper

pytestmark = pytest.mark.django_db

PATIENCE_S = 0.4


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[DatabaseWrapper]:
    """A connection as the settings have it, to a file of its own."""
    common = {"ATOMIC_REQUESTS": False, "AUTOCOMMIT": True, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False}
    options = settings.SQLITE["OPTIONS"] | {"timeout": PATIENCE_S}
    mine = {"NAME": tmp_path / "db", "OPTIONS": options, "TIME_ZONE": None, "TEST": {}}
    wrapper = DatabaseWrapper(settings.SQLITE | common | mine, alias="waiting")
    wrapper.inc_thread_sharing()
    with wrapper.cursor() as cursor:
        cursor.execute("CREATE TABLE words (word)")
    yield wrapper
    wrapper.close()


@pytest.fixture
def holder(tmp_path: Path, waiting: DatabaseWrapper) -> Iterator[sqlite3.Connection]:
    """Somebody who is writing."""
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_a_waiting_writer_looks_often_and_gives_up(waiting, holder, monkeypatch):
    looks = []
    execute = SQLiteCursorWrapper.execute
    monkeypatch.setattr(SQLiteCursorWrapper, "execute", lambda *call: looks.append(call) or execute(*call))
    with waiting.cursor() as cursor, pytest.raises(OperationalError, match="locked"):
        cursor.execute("INSERT INTO words VALUES (%s)", ["late"])
    assert len(looks) > PATIENCE_S / 0.05


def test_it_writes_when_its_turn_comes(waiting, holder, monkeypatch):
    execute = SQLiteCursorWrapper.execute

    def release(*call: object) -> object:
        if "INSERT" in str(call) and holder.in_transaction:
            try:
                return execute(*call)
            finally:
                holder.execute("COMMIT")
        return execute(*call)

    monkeypatch.setattr(SQLiteCursorWrapper, "execute", release)
    with waiting.cursor() as cursor:
        cursor.execute("INSERT INTO words VALUES (%s)", ["late"])
        assert cursor.execute("SELECT word FROM words").fetchall() == [("late",)]


def test_another_error_is_told_at_once(waiting):
    with waiting.cursor() as cursor, pytest.raises(OperationalError, match="no such table"):
        cursor.execute("SELECT * FROM nowhere")
