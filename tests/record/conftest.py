"""One test, two records: a file and a PostgreSQL database, each empty, of the test's own, with a clock that can be moved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from c4a.record import sqlite
from c4a.record.postgres import migrate
from c4a.record.schema import new_organization_id
from tests.record.cast import Kept, raw_sql, record_open


@pytest.fixture(params=["file", "database"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """An empty record, over each of its two homes; `verify` finds nothing wrong unless the test says so."""
    yield from _kept(request.param, request, tmp_path, monkeypatch)


@pytest.fixture
def kept_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """An empty record in a file."""
    yield from _kept("file", request, tmp_path, monkeypatch)


@pytest.fixture
def kept_database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """An empty record in a PostgreSQL database."""
    yield from _kept("database", request, tmp_path, monkeypatch)


def _kept(kind: str, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    clock: list[Kept] = []
    if kind == "file":
        address = str(folder / ".c4a" / "ledger.sqlite")
        # A file has no clock but the machine's; PostgreSQL's is moved by replacing c4a_now().
        monkeypatch.setattr(sqlite, "now_micros", lambda: time.time_ns() // 1000 + (clock[0].offset if clock else 0))
    else:
        address = request.getfixturevalue("record_postgres_url")
        migrate(address)
        # Copies of one template share its organization, and a process remembers which runs of an organization have their row.
        raw_sql(address, "UPDATE c4a_meta SET value = :id WHERE name = 'organization'", {"id": new_organization_id()})
    kept = Kept(kind, address, record_open(address))
    clock.append(kept)
    yield kept
    kept.close()
