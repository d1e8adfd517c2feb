"""One SQL text for two databases: what differs is listed here, and every text of the record is understood by both."""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import psycopg
import pytest

import c4a.record
from c4a.record.dialects import POSTGRESQL, SQLITE, Dialect, Result, Statement
from c4a.record.postgres import migrate, prepare_connection
from c4a.record.schema import sql_text
from c4a.record.sqlite import SqliteExecutor
from tests.record.cast import Kept, record_open
from tests.record.test_rebuild import Walk

ROOT = Path(__file__).resolve().parents[2]
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE)\s")
NAMED = re.compile(r"%\((\w+)\)s")
STEPS = 500

DIFFERENCES = {
    "name": "what it is called",
    "substitutions": "the clock and the locks",
    "parameter": "how a parameter is written",
    "reads_are_cheap": "whether a look costs a trip",
    "writers_take_turns": "whether a writer excludes every other",
}
SUBSTITUTIONS = {"now", "lock_run_shared", "lock_run", "lock_action"}
# Who may know which database it is: what opens one, what reads its schema file, and the claim, which looks first where looks are cheap.
MAY_ASK = {"dialects.py", "schema.py", "sqlite.py", "postgres.py", "claim.py"}


def texts_in_modules() -> dict[str, str]:
    """Every whole SQL text among the constants of `c4a.record`, by where it stands."""
    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(c4a.record.__path__):
        loaded = importlib.import_module(f"c4a.record.{module.name}")
        for name, value in vars(loaded).items():
            if isinstance(value, str) and SQL.match(value) and value.count("(") == value.count(")") and "{head}" not in value:
                found[f"{module.name}.{name}"] = value
    return {name: text for name, text in found.items() if _is_whole(text)}


def _is_whole(text: str) -> bool:
    return not text.rstrip().endswith(("WHERE", "AND", ","))


def texts_at_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every text that verbs put together while they run, from a long random walk over all of them."""
    seen: set[str] = set()
    run = SqliteExecutor._run

    def noting(executor: SqliteExecutor, statements: Sequence[Statement]) -> list[Result]:
        seen.update(statement.sql for statement in statements)
        return run(executor, statements)

    monkeypatch.setattr(SqliteExecutor, "_run", noting)
    address = str(folder / "ledger.sqlite")
    kept = Kept("file", address, record_open(address))
    walk = Walk(kept, random.Random(5))
    for _ in range(STEPS):
        walk.step()
    kept.record.verify()
    kept.record.rebuild()
    kept.record.effects(run="run-1")
    kept.record.effects(state="done")
    kept.record.entries(run="run-1", key="x")
    kept.close()
    return seen


@contextmanager
def sqlite_open() -> Iterator[sqlite3.Connection]:
    """An empty record in memory."""
    from c4a.record import schema
    from c4a.record.sqlite import prepare_connection as prepare_sqlite

    connection = sqlite3.connect(":memory:", isolation_level=None)
    prepare_sqlite(connection)
    schema.upgrade(connection)
    try:
        yield connection
    finally:
        connection.close()


def prepare_on_sqlite(connection: sqlite3.Connection, text: str) -> None:
    """Have SQLite compile it, without running it."""
    rendered = SQLITE.render(text)
    if rendered:
        names = set(re.findall(r"(?<![:\w]):([a-z_]+)", rendered))
        connection.execute(f"EXPLAIN {rendered}", dict.fromkeys(names, 1)).fetchall()


def prepare_on_postgresql(connection: psycopg.Connection[Any], text: str) -> None:
    """Have PostgreSQL parse and analyse it, as the executor sends it."""
    rendered = POSTGRESQL.render(text)
    names = list(dict.fromkeys(NAMED.findall(rendered)))
    numbered = NAMED.sub(lambda found: f"${names.index(found.group(1)) + 1}", rendered)
    answer = connection.pgconn.prepare(b"", numbered.encode())
    assert answer.status == 1, f"{answer.error_message.decode()}\n{numbered}"


def test_dialects_differ_in_what_is_listed_and_in_nothing_else() -> None:
    assert {one.name for one in fields(Dialect) if not one.name.startswith("_")} == set(DIFFERENCES)
    assert set(SQLITE.substitutions) == set(POSTGRESQL.substitutions) == SUBSTITUTIONS


def test_nothing_else_in_the_record_asks_which_database_it_is() -> None:
    asking = {
        path.name
        for path in (ROOT / "c4a" / "record").glob("*.py")
        if re.search(r"\.dialect\.|\bSQLITE\b|\bPOSTGRESQL\b|dialect_of\(", path.read_text())
    }

    assert asking <= MAY_ASK


def test_every_text_is_understood_by_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_postgres_url: str) -> None:
    texts = set(texts_in_modules().values()) | texts_at_work(tmp_path, monkeypatch)
    migrate(record_postgres_url)

    assert len(texts) > 60
    with sqlite_open() as lite, psycopg.connect(record_postgres_url, autocommit=True) as postgres:
        prepare_connection(postgres)
        for text in texts:
            prepare_on_sqlite(lite, text)
            prepare_on_postgresql(postgres, text)


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL], ids=lambda one: one.name)
def test_nothing_is_left_to_render(dialect: Dialect) -> None:
    for where, text in texts_in_modules().items():
        rendered = dialect.render(text)
        assert not re.search(r"\{\w*\}", rendered), where
        if dialect is POSTGRESQL:
            assert not re.search(r"(?<![:\w]):[a-z_]+", rendered), where
        assert set(re.findall(r"%\((\w+)\)s", rendered)) == (
            set(re.findall(r"(?<![:\w]):([a-z_]+)", text)) if dialect is POSTGRESQL else set()
        ), where


def test_both_schemas_have_the_same_tables_columns_and_promises(record_postgres_url: str) -> None:
    migrate(record_postgres_url)
    with sqlite_open() as lite, psycopg.connect(record_postgres_url) as postgres:
        tables = {row[0] for row in lite.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'c4a%'")}
        assert tables == {row[0] for row in postgres.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'c4a%'")}
        for table in tables:
            assert _sqlite_columns(lite, table) == _postgres_columns(postgres, table), table
            assert _sqlite_promises(lite, table) == _postgres_promises(postgres, table), table


def _sqlite_columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, bool]]:
    return [(row[1], bool(row[3])) for row in connection.execute(f"PRAGMA table_info({table})") if row[1] not in ("id", "name")]


def _postgres_columns(connection: psycopg.Connection[Any], table: str) -> list[tuple[str, bool]]:
    rows = connection.execute(
        "SELECT column_name, is_nullable FROM information_schema.columns WHERE table_name = %s ORDER BY ordinal_position", [table]
    )
    return [(name, nullable == "NO") for name, nullable in rows if name not in ("id", "name")]


def _sqlite_promises(connection: sqlite3.Connection, table: str) -> set[tuple[str, ...]]:
    """The columns of every unique index; a partial one ends in `WHERE`."""
    found = set()
    for _, name, unique, _, partial in connection.execute(f"PRAGMA index_list({table})"):
        if unique:
            columns = [row[2] for row in connection.execute(f"PRAGMA index_info({name})")]
            found.add((*columns, "WHERE") if partial else tuple(columns))
    return found


def _postgres_promises(connection: psycopg.Connection[Any], table: str) -> set[tuple[str, ...]]:
    rows = connection.execute(
        """
        SELECT array_agg(a.attname::text ORDER BY k.place), i.indpred IS NOT NULL
        FROM pg_index AS i, unnest(i.indkey) WITH ORDINALITY AS k (number, place), pg_attribute AS a
        WHERE i.indrelid = %s::regclass AND i.indisunique AND a.attrelid = i.indrelid AND a.attnum = k.number
        GROUP BY i.indexrelid, i.indpred IS NOT NULL
        """,
        [table],
    )
    return {(*columns, "WHERE") if partial else tuple(columns) for columns, partial in rows}


def test_both_files_of_a_step_are_there() -> None:
    assert "CREATE TABLE c4a_entry" in sql_text(1, "sqlite")
    assert "CREATE TABLE c4a_entry" in sql_text(1, "postgresql")
