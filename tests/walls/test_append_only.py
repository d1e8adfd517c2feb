"""The record against somebody with SQL in hand: nothing is changed, deleted, replaced or spent twice."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import c4a
from c4a.errors import ApprovalRequired
from c4a.record.types import Record

SECRET = "0123456789abcdef" * 4
Refused = (sqlite3.IntegrityError, psycopg.IntegrityError)


@dataclass(frozen=True)
class Opened:
    """A record with one action done under a yes, and a connection that goes past the library."""

    kind: str
    record: Record
    sql: Callable[[str], list[tuple[Any, ...]]]


def _pay(amount: int) -> str:
    return f"paid {amount}"


pay: Any = c4a.effect(name="pay", approval=True)(_pay)
"""The action of every test here."""


@pytest.fixture(params=["file", "database"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    monkeypatch.chdir(tmp_path)
    address = str(tmp_path / ".c4a" / "ledger.sqlite")
    if request.param == "database":
        address = request.getfixturevalue("record_postgres_url")
    c4a.init(address, secret=SECRET)
    with contextlib.closing(_connection(request.param, address)) as connection:

        def sql(text: str) -> list[tuple[Any, ...]]:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

        with c4a.run("r"):
            c4a.approve(pay, amount=10)
            pay(10)
        yield Opened(request.param, c4a.current_record(), sql)
    c4a.current_record().close()


def _connection(kind: str, address: str) -> Any:
    if kind == "file":
        return sqlite3.connect(address, isolation_level=None)
    return psycopg.connect(address, autocommit=True)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE c4a_entry SET actor = 'somebody else'",
        "UPDATE c4a_entry SET payload = NULL, salt = NULL",
        "UPDATE c4a_entry SET recorded_at = recorded_at + 1",
        "DELETE FROM c4a_entry",
    ],
)
def test_an_entry_is_never_changed_or_deleted(opened: Opened, statement: str) -> None:
    before = opened.sql("SELECT * FROM c4a_entry ORDER BY id")

    with pytest.raises(Refused):
        opened.sql(statement)

    assert opened.sql("SELECT * FROM c4a_entry ORDER BY id") == before


def test_the_entries_are_never_emptied_or_replaced(opened: Opened) -> None:
    statement = "TRUNCATE c4a_entry" if opened.kind == "database" else "INSERT OR REPLACE INTO c4a_entry SELECT * FROM c4a_entry"
    before = opened.sql("SELECT * FROM c4a_entry ORDER BY id")

    with pytest.raises(Refused):
        opened.sql(statement)

    assert opened.sql("SELECT * FROM c4a_entry ORDER BY id") == before


COPY = """
INSERT INTO c4a_entry (
    organization, run, key, seq, kind, attempt, approval, payload, salt, payload_digest, actor, recorded_at, prev, digest
)
SELECT organization, run, {key}, {seq}, kind, attempt, approval, payload, salt, payload_digest, actor, recorded_at, prev, digest
FROM c4a_entry WHERE kind = '{kind}'"""


def test_a_chain_cannot_fork(opened: Opened) -> None:
    with pytest.raises(Refused):
        opened.sql(COPY.format(key="key", seq="seq", kind="effect.done"))


def test_a_yes_is_spent_by_one_intent_whatever_the_heads_say(opened: Opened) -> None:
    with pytest.raises(Refused):
        opened.sql(COPY.format(key="'another effect'", seq="1", kind="effect.running"))


def test_a_yes_set_back_to_unspent_buys_nothing(opened: Opened) -> None:
    opened.sql("UPDATE c4a_approval SET state = 'unspent', spent_by = NULL")

    with c4a.run("r"), pytest.raises(ApprovalRequired):
        pay(10, c4a_key="once more")


@pytest.mark.parametrize(
    "change",
    [
        "explicit_key = 'once more'",
        "expires_at = 9999999999999999",
        "approved_by = 'the boss'",
        "run = 'other'",
    ],
)
def test_a_yes_changed_by_hand_buys_nothing(opened: Opened, change: str) -> None:
    with c4a.run("r"):
        c4a.approve(pay, amount=20, c4a_by="ann", c4a_expires_in=60)
    opened.sql(f"UPDATE c4a_approval SET {change} WHERE state = 'unspent'")

    for run in ("r", "other"):
        with c4a.run(run), pytest.raises(ApprovalRequired):
            pay(20, c4a_key="once more")


def test_a_head_deleted_by_hand_does_not_run_the_action_again(opened: Opened) -> None:
    opened.sql("DELETE FROM c4a_effect")

    with c4a.run("r"):
        c4a.approve(pay, amount=10)
        with pytest.raises(c4a.LedgerError):
            pay(10)

    assert opened.sql("SELECT count(*) FROM c4a_entry WHERE kind = 'effect.running'") == [(1,)]


@pytest.mark.parametrize(
    "change",
    ["state = 'done'", "actor = 'somebody else'", "attempt = 2", "done_at = done_at + 1", "tool = 'refund'", "call_digest = 'x'"],
)
def test_verify_finds_a_head_changed_by_hand(opened: Opened, change: str) -> None:
    with c4a.run("r2"), contextlib.suppress(c4a.C4AError):
        c4a.approve(pay, amount=10)
        pay(10)
    assert opened.record.verify() == []
    table = "c4a_effect" if change != "state = 'done'" else "c4a_approval"
    opened.sql(f"UPDATE {table} SET {change}")

    assert opened.record.verify() != []


def test_rebuild_folds_dropped_heads_anew(opened: Opened) -> None:
    before = opened.sql("SELECT organization, run, key, state, attempt, last_digest FROM c4a_effect")
    for table in ("c4a_effect", "c4a_gate", "c4a_approval", "c4a_run"):
        opened.sql(f"DELETE FROM {table}")

    opened.record.rebuild()

    assert opened.sql("SELECT organization, run, key, state, attempt, last_digest FROM c4a_effect") == before
    assert opened.record.verify() == []
