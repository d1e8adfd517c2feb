"""One test, two records: a file and a PostgreSQL database, each empty, of the test's own, with a clock that can be moved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from c4a.record import sqlite
from c4a.record.schema import new_organization_id
from tests import services
from tests.record.cast import Kept, clock_sql, record_open

TABLES = ("c4a_entry", "c4a_effect", "c4a_gate", "c4a_approval", "c4a_ticket", "c4a_run", "c4a_subject")


@pytest.fixture(params=["file", "database"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """An empty record, over each of its two homes."""
    yield from _kept(request.param, request, tmp_path, monkeypatch)


@pytest.fixture
def kept_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """An empty record in a file."""
    yield from _kept("file", request, tmp_path, monkeypatch)


@pytest.fixture
def kept_database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """An empty record in a PostgreSQL database."""
    yield from _kept("database", request, tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def shared_database(postgres_server: str, record_template: str) -> Iterator[str]:
    """One database a worker, emptied for each test: that costs 5 ms, a database of its own some 300."""
    url = services.database_create(postgres_server, template=record_template)
    yield url
    if not services.postgres_is_ours():
        services.database_drop(url)


def _kept(kind: str, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    clock: list[Kept] = []
    if kind == "file":
        address = str(folder / ".c4a" / "ledger.sqlite")
        # A file has no clock but the machine's; PostgreSQL's is moved by replacing c4a_now().
        monkeypatch.setattr(sqlite, "now_micros", lambda: time.time_ns() // 1000 + (clock[0].offset if clock else 0))
    else:
        address = request.getfixturevalue("shared_database")
        _empty(address)
    kept = Kept(kind, address, record_open(address))
    clock.append(kept)
    yield kept
    kept.close()


def _empty(address: str) -> None:
    """As good as new. The organization is a new one, as a process remembers which runs of an organization have their row."""
    deletes = "; ".join(f"DELETE FROM {table}" for table in TABLES)
    with psycopg.connect(address) as connection:
        connection.execute(f"SET session_replication_role = replica; {deletes}; {clock_sql(0)}")
        connection.execute("DELETE FROM c4a_meta WHERE name <> 'schema_version'")
        connection.execute("INSERT INTO c4a_meta (name, value) VALUES ('organization', %s)", [new_organization_id()])
