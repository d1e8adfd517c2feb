"""A second Django connection for tests that need a database of their own, whichever database the run uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connections

from c4a.record import schema
from c4a_project import settings as project
from ledger.executor import DjangoExecutor

ALIAS = "probe"


@contextmanager
def probe(database: dict[str, Any], *, upgraded: bool = True) -> Iterator[DjangoExecutor]:
    """An executor over this database, with the record's schema in it."""
    connections.settings[ALIAS] = {**connections.settings["default"], **database}
    try:
        executor = DjangoExecutor(ALIAS)
        if upgraded:
            from django.db import transaction

            executor.connection.ensure_connection()
            with transaction.atomic(using=ALIAS):
                schema.upgrade(executor.connection.connection)
        yield executor
    finally:
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.settings[ALIAS]


def sqlite_database(folder: Path) -> dict[str, Any]:
    """A SQLite file as the settings make one."""
    return project.sqlite_database(folder / "probe.sqlite")


def postgresql_database(url: str) -> dict[str, Any]:
    """A PostgreSQL database as the settings read one."""
    return project.postgresql_database(url)
