"""Tests that really commit: the one place that may empty the append-only tables.

Django's own flush knows nothing of the record's tables (they belong to the library, not to Django's models), and the
record's triggers would refuse it. So after a test that commits, `record_empty` lifts the triggers of the record's tables,
deletes their rows and puts the triggers back, whatever they are called.
"""

from __future__ import annotations

from typing import Final, cast

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.test import TransactionTestCase

# What a fresh record holds; everything else in c4a_meta was written by a test.
KEPT_META: Final = ("schema_version",)


class CommittingTestCase(TransactionTestCase):
    """A test whose transactions are real; the record is empty again after it."""

    def _fixture_teardown(self) -> None:
        super()._fixture_teardown()  # type: ignore[misc]
        record_empty()


def record_empty() -> None:
    """Delete every row of the record in the tests' database."""
    with transaction.atomic(), connection.cursor() as cursor:
        tables = _record_tables(cursor)
        empty = _empty_postgresql if connection.vendor == "postgresql" else _empty_sqlite
        empty(cursor, [table for table in tables if table != "c4a_meta"])
        marks = ", ".join(["%s"] * len(KEPT_META))
        cursor.execute(f"DELETE FROM c4a_meta WHERE name NOT IN ({marks})", KEPT_META)


def _record_tables(cursor: CursorWrapper) -> list[str]:
    return [name for name in connection.introspection.table_names(cursor) if name.startswith("c4a_")]


def _empty_postgresql(cursor: CursorWrapper, tables: list[str]) -> None:
    for table in tables:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(f"DELETE FROM {table}")
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def _empty_sqlite(cursor: CursorWrapper, tables: list[str]) -> None:
    cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE 'c4a\\_%%' ESCAPE '\\'")
    triggers = cast("list[tuple[str, str]]", cursor.fetchall())
    for name, _ in triggers:
        cursor.execute(f"DROP TRIGGER {name}")
    for table in tables:
        cursor.execute(f"DELETE FROM {table}")
    for _, text in triggers:
        cursor.execute(text.replace("%", "%%"))
