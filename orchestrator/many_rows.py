"""Many rows in one statement, for what ingest does dozens of times a second. Columns are named as in models, foreign
keys with `_id`.

`QuerySet.bulk_update` says the same with a CASE per column, `bulk_create` prepares each value of each row by its field:
that costs milliseconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from django.db import connection
from django.db.models import CharField, Field, FloatField, ForeignKey, IntegerField, JSONField, Model

K = TypeVar("K", bound=int | str)


def update_rows(
    model: type[Model],
    rows: Mapping[K, Sequence[object]],
    *,
    columns: Sequence[str],
    same: Mapping[str, object] | None = None,
    guard: str = "",
    counter: str = "",
) -> dict[K, int]:
    """Set `columns` of the rows with these primary keys to the values given in that order, and those of `same` in all.

    With `guard`, the last value of each is what that column must hold, else the row is left alone. With `counter`, that
    column grows by one; its new value is returned by primary key.
    """
    if not rows:
        return {}
    concrete = _fields_of(model)
    fields = [concrete[name] for name in columns]
    known = [model._meta.pk, *fields, *([concrete[guard]] if guard else [])]
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    line = ", ".join(_placeholder(field) for field in known)
    columns_of = zip(*((pk, *row) for pk, row in rows.items()), strict=True)
    prepared = [_prepared(field, column) for field, column in zip(known, columns_of, strict=True)]
    values = [value for row in zip(*prepared, strict=True) for value in row]
    names = ", ".join(f"v{place}" for place in range(len(known)))
    changes = [f"{quote(str(field.column))} = v{place}" for place, field in enumerate(fields, 1)]
    for name, value in (same or {}).items():
        changes.append(f"{quote(str(concrete[name].column))} = %s")
        values += _prepared(concrete[name], [value])
    if counter:
        changes.append(f"{quote(counter)} = {quote(counter)} + 1")
    pk_column = f"{table}.{quote(str(known[0].column))}"
    where = f"{pk_column} = v0" + (f" AND {table}.{quote(str(known[-1].column))} = v{len(known) - 1}" if guard else "")
    returned = f"{pk_column}, {table}.{quote(counter)}" if counter else f"{pk_column}, 0"
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH news({names}) AS (VALUES {', '.join([f'({line})'] * len(rows))}) "
            f"UPDATE {table} SET {', '.join(changes)} FROM news WHERE {where} RETURNING {returned}",
            values,
        )
        return dict(cursor.fetchall())


def insert_rows(model: type[Model], rows: Sequence[Sequence[object]], *, columns: Sequence[str]) -> None:
    """Add rows with these values of `columns`; the others must have a default in the database."""
    if not rows:
        return
    concrete = _fields_of(model)
    fields = [concrete[name] for name in columns]
    quote = connection.ops.quote_name
    prepared = [_prepared(field, column) for field, column in zip(fields, zip(*rows, strict=True), strict=True)]
    line = f"({', '.join(['%s'] * len(fields))})"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(model._meta.db_table)} ({', '.join(quote(str(field.column)) for field in fields)}) "
            f"VALUES {', '.join([line] * len(rows))}",
            [value for row in zip(*prepared, strict=True) for value in row],
        )


def _fields_of(model: type[Model]) -> "dict[str, Field[Any, Any]]":
    return {field.attname: field for field in model._meta.concrete_fields}


def _prepared(field: "Field[Any, Any]", column: Sequence[object]) -> Sequence[object]:
    """The values as the database takes them: numbers and texts as they are, JSON as text."""
    if isinstance(field, IntegerField | FloatField | CharField | ForeignKey):
        return column
    if isinstance(field, JSONField):
        return [msgspec.json.encode(value).decode() for value in column]
    return [field.get_db_prep_save(value, connection) for value in column]


def _placeholder(field: "Field[Any, Any]") -> str:
    """PostgreSQL takes a bare parameter in VALUES for text; SQLite has no types to tell."""
    if connection.vendor != "postgresql":
        return "%s"
    return f"CAST(%s AS {field.rel_db_type(connection) if field.primary_key else field.db_type(connection)})"
