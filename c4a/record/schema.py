"""The schema: numbered SQL files per step and dialect, and the one runner that applies them."""

from __future__ import annotations

import secrets
import sqlite3
from importlib import resources
from typing import Any, Final

from c4a.errors import LedgerError

SCHEMA_VERSION: Final = 2
"""The newest step this code knows."""


def sql_text(step: int, dialect: str) -> str:
    """The text of one step, e.g. `sql_text(1, "sqlite")`."""
    prefix = f"{step:04d}_"
    folder = resources.files("c4a.record").joinpath("sql")
    for entry in folder.iterdir():
        if entry.name.startswith(prefix) and entry.name.endswith(f".{dialect}.sql"):
            return entry.read_text(encoding="utf-8")
    raise LedgerError(f"no schema step {step} for {dialect}: the installation is incomplete, install C4A again")


def upgrade(connection: Any, *, to: int = SCHEMA_VERSION) -> int:
    """Bring the tables up to step `to`; returns how many steps were applied. Idempotent.

    `connection` is a DB-API connection (sqlite3 or psycopg). The caller owns the transaction: nothing is committed here.

    Raises:
        LedgerError: the record is newer than this code.
    """
    dialect = dialect_of(connection)
    have = version_of(connection)
    refuse_newer(have)
    for step in range(have + 1, to + 1):
        _apply(connection, dialect, sql_text(step, dialect))
        _write_version(connection, dialect, step)
    return max(0, to - have)


def refuse_newer(version: int) -> None:
    """Raise `LedgerError` if a record's schema is newer than this code."""
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"the record has schema version {version}, this C4A knows up to {SCHEMA_VERSION}: upgrade C4A before you open it",
            version=version,
        )


def dialect_of(connection: Any) -> str:
    """`sqlite` or `postgresql`."""
    return "sqlite" if isinstance(connection, sqlite3.Connection) else "postgresql"


def version_of(connection: Any) -> int:
    """The step this database is at; 0 if it has no record."""
    if dialect_of(connection) == "sqlite":
        exists = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'c4a_meta'").fetchone()
    else:
        exists = connection.execute("SELECT 1 WHERE to_regclass('c4a_meta') IS NOT NULL").fetchone()
    if not exists:
        return 0
    row = connection.execute("SELECT value FROM c4a_meta WHERE name = 'schema_version'").fetchone()
    return int(row[0]) if row else 0


def new_organization_id() -> str:
    """A random organization id: `org_` and 96 bits as 24 hex characters. Never changed once made."""
    return "org_" + secrets.token_hex(12)


def _apply(connection: Any, dialect: str, text: str) -> None:
    if dialect == "postgresql":
        # One simple-protocol call; `%` in the text is only text because no parameters are given.
        connection.execute(text)
        return
    # executescript() commits an open transaction, so the statements go one by one.
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            connection.execute(pending)
            pending = ""


def _write_version(connection: Any, dialect: str, step: int) -> None:
    mark = "?" if dialect == "sqlite" else "%s"
    connection.execute(
        f"INSERT INTO c4a_meta (name, value) VALUES ('schema_version', {mark}) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (str(step),),
    )
