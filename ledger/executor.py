"""The record's statements over Django's connection: one transaction, and on PostgreSQL one round trip.

Inside an open `atomic` block the statements join it, so that a verb of the record and rows of Django's own tables
(a role and its entry) are one commit. Outside one, each trip is its own durable transaction.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import Error as DjangoError

from c4a.errors import RecordUnreachable
from c4a.record import sqlite
from c4a.record.dialects import POSTGRESQL, SQLITE, Dialect, Executor, Result, Statement
from c4a.record.keyring import Keyring

if TYPE_CHECKING:
    import psycopg

    from c4a.record.postgres import PostgresExecutor

logger = logging.getLogger(__name__)

PAUSES_SECONDS: Final = (0.0, 0.02, 0.1, 0.5)
"""A trip is run again if the database asks for it (40001, 40P01) or the connection is lost: each statement is guarded,
so a trip whose COMMIT was lost may run twice."""
_executors: WeakKeyDictionary[psycopg.Connection[Any], PostgresExecutor] = WeakKeyDictionary()
"""The library's executor of each connection: it knows which statements the connection has prepared."""
REPEATED_STATES: Final = frozenset({"40001", "40P01"})


class DjangoExecutor:
    """Implements `c4a.record.dialects.Executor` over one of Django's connections of the current thread."""

    def __init__(self, alias: str = DEFAULT_DB_ALIAS) -> None:
        self.alias = alias

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """Django's connection of this thread."""
        return connections[self.alias]

    @property
    def dialect(self) -> Dialect:
        """Which database this is."""
        return SQLITE if self.connection.vendor == "sqlite" else POSTGRESQL

    def trip(self, statements: Sequence[Statement]) -> list[Result]:
        """Run all statements in one transaction; on PostgreSQL in one round trip.

        Raises:
            RecordUnreachable: the database could not be reached.
            RecordDamaged, LedgerError: the database refused a statement.
        """
        return self._run(statements, write=True)

    def read(self, statements: Sequence[Statement]) -> list[Result]:
        """Run SELECTs without taking a write lock; on PostgreSQL in one round trip. Raises as `trip`."""
        return self._run(statements, write=False)

    def clock(self) -> int:
        """The database's clock in µs since 1970."""
        if self.connection.vendor == "sqlite":
            return sqlite.now_micros()
        return int(self.read([Statement("SELECT {now}", {})])[0].rows[0][0])

    def _run(self, statements: Sequence[Statement], *, write: bool) -> list[Result]:
        connection = self.connection
        run = _run_sqlite if connection.vendor == "sqlite" else _run_postgresql
        if not connection.in_atomic_block:
            return run(connection, statements, own=write)
        try:
            return run(connection, statements, own=False)
        except Exception:
            connection.needs_rollback = True
            raise


_DEFAULT: Final = DjangoExecutor()


def executor_default() -> Executor:
    """The executor over the default database; it holds nothing of its own, so every thread may share it."""
    return _DEFAULT


@cache
def keyring_default() -> Keyring:
    """The secrets that sign this server's approvals."""
    return Keyring(settings.RECORD_SECRET.encode(), [secret.encode() for secret in settings.OLD_RECORD_SECRETS])


def connection_prepare(sender: object, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Give a new connection what the statements need: on SQLite the digest function. PostgreSQL has it in its schema."""
    if connection.vendor == "sqlite":
        sqlite.prepare_connection(connection.connection)


def _run_sqlite(connection: BaseDatabaseWrapper, statements: Sequence[Statement], *, own: bool) -> list[Result]:
    connection.ensure_connection()
    raw: sqlite3.Connection = connection.connection
    if not own:
        return sqlite.SqliteExecutor(raw).read(statements)
    with _queue(connection) as queue:
        return sqlite.SqliteExecutor(raw, queue).trip(statements)


@contextmanager
def _queue(connection: BaseDatabaseWrapper) -> Iterator[int | None]:
    """The file whose lock makes writers take turns, the same one a local record uses; none for a database in memory."""
    name = str(connection.settings_dict["NAME"])
    if not os.path.isabs(name):
        yield None
        return
    # Opened anew, since a lock belongs to one opening: threads that shared it would not wait for each other.
    queue = os.open(f"{name}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield queue
    finally:
        os.close(queue)


def _run_postgresql(connection: BaseDatabaseWrapper, statements: Sequence[Statement], *, own: bool) -> list[Result]:
    import psycopg

    from c4a.record.postgres import explained

    joined = connection.in_atomic_block
    lost: Exception | None = None
    for pause in PAUSES_SECONDS[:1] if joined else PAUSES_SECONDS:
        if pause:
            # Not sleep(0), which gives the processor away.
            time.sleep(pause)
        try:
            connection.ensure_connection()
            return _pipeline(connection.connection, statements)
        except psycopg.Error as error:
            lost = error
            if not _is_lost(connection.connection) and (joined or error.sqlstate not in REPEATED_STATES):
                raise explained(error) from error
        except DjangoError as error:
            # Django's own wrapping of a connection that could not be opened.
            lost = error
        if not joined and (connection.connection is None or _is_lost(connection.connection)):
            connection.close()
    said = str(lost).strip().splitlines()[0] if str(lost).strip() else type(lost).__name__
    # Only logged: callers without a key get this error too, and the driver names host, port and user.
    logger.warning("The database did not answer: %s", said)
    raise RecordUnreachable("The database did not answer: a repeat with the same token is safe.") from lost


def _pipeline(raw: psycopg.Connection[Any], statements: Sequence[Statement]) -> list[Result]:
    """One pipeline: between two syncs the server runs the statements as one transaction, so no BEGIN or COMMIT is sent.

    Inside `atomic` the connection has begun one, or the library begins it.
    """
    from c4a.record.postgres import PostgresExecutor

    executor = _executors.get(raw)
    if executor is None:
        executor = _executors[raw] = PostgresExecutor(raw)
    return executor.trip(statements)


def _is_lost(raw: psycopg.Connection[Any] | None) -> bool:
    return raw is not None and (raw.closed or raw.broken)
