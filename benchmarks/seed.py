"""A record with a million entries, written by the verbs' own digests but in bulk."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from typing import Any, Final

from c4a.keys import payload_digest
from c4a.record.entries import entry_digest, payload_text

EFFECTS: Final = 500_000
_ENTRY_COLUMNS: Final = (
    "organization", "run", "key", "seq", "kind", "attempt", "payload", "salt", "payload_digest", "actor", "recorded_at", "prev", "digest",
)  # fmt: skip
_EFFECT_COLUMNS: Final = (
    "organization", "run", "key", "tool", "state", "attempt", "epoch", "call_digest", "args_digest", "settled_by", "actor", "token_hash",
    "holder", "lease_until", "waited", "first_at", "done_at", "happened_twice", "intent_seq", "result_seq", "seq", "last_at", "prev_digest",
    "last_digest", "last_payload_digest",
)  # fmt: skip


def seed_million(address: str, effects: int = EFFECTS, *, first: int = 0) -> None:
    """Add `effects` finished actions, two entries each, in runs of 50, to a file or a PostgreSQL database; numbered from `first`."""
    if address.startswith("postgresql://"):
        _into_postgres(address, range(first, first + effects))
    else:
        _into_sqlite(address, range(first, first + effects))


def _into_sqlite(path: str, numbers: range) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    organization = str(connection.execute("SELECT value FROM c4a_meta WHERE name = 'organization'").fetchone()[0])
    connection.execute("BEGIN IMMEDIATE")
    for entries, head in _actions(organization, numbers):
        connection.executemany(_insert("c4a_entry", _ENTRY_COLUMNS), entries)
        connection.execute(_insert("c4a_effect", _EFFECT_COLUMNS), head)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _into_postgres(url: str, numbers: range) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT value FROM c4a_meta WHERE name = 'organization'").fetchone()
        organization = str(row[0]) if row else ""
        heads: list[tuple[Any, ...]] = []
        with connection.cursor().copy(f"COPY c4a_entry ({', '.join(_ENTRY_COLUMNS)}) FROM STDIN") as copy:
            for entries, head in _actions(organization, numbers):
                for entry in entries:
                    copy.write_row(entry)
                heads.append(head)
        with connection.cursor().copy(f"COPY c4a_effect ({', '.join(_EFFECT_COLUMNS)}) FROM STDIN") as copy:
            for head in heads:
                copy.write_row(head)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE c4a_entry")
        connection.execute("VACUUM ANALYZE c4a_effect")
        connection.execute("CHECKPOINT")


def _insert(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _actions(organization: str, numbers: range) -> Iterator[tuple[list[tuple[Any, ...]], tuple[Any, ...]]]:
    at = time.time_ns() // 1000 - 86_400_000_000
    for number in numbers:
        run = f"seeded-{number // 50}"
        key = hashlib.sha256(f"{run}/{number}".encode()).hexdigest()
        arguments = f'{{"amount":{number},"to":"alice"}}'
        texts = [
            payload_text({"args_digest": key, "arguments": arguments, "call_digest": key, "token_hash": key, "tool": "pay"}),
            payload_text({"by": "agent", "result": '"paid"'}),
        ]
        entries: list[tuple[Any, ...]] = []
        prev = before = told = ""
        for seq, (kind, text) in enumerate(zip(("effect.running", "effect.done"), texts, strict=True), start=1):
            before, told = prev, payload_digest(key[:32], text)
            prev = entry_digest(organization, run, key, seq, kind, 1, None, told, "local:seed", at + number, before)
            entries.append((organization, run, key, seq, kind, 1, text, key[:32], told, "local:seed", at + number, before, prev))
        yield entries, (
            organization, run, key, "pay", "done", 1, 0, key, key, "agent", "local:seed", key, "", at, 0, at + number, at + number, 0, 1, 2,
            2, at + number, before, prev, told,
        )  # fmt: skip
