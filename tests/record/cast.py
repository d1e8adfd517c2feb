"""A small cast for the record's tests: actions, callers, and a record whose clock and tables a test can touch."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from c4a.keys import call_digest, effect_key, new_token
from c4a.record.dialects import POSTGRESQL, SQLITE, Executor, Result, Statement
from c4a.record.postgres import DatabaseRecord
from c4a.record.sqlite import FileRecord, prepare_connection
from c4a.record.types import Call, Claimant, Effect, Grant
from c4a.record.verify import _COLUMNS as HEAD_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

SECRET: Final = b"a secret of the record's tests, 40 bytes"
RUN: Final = "run-1"
AGENT: Final = "agent:billing"
PERSON: Final = "person:ann"


def micros(seconds: float) -> int:
    """Seconds as the record counts time."""
    return int(seconds * 1_000_000)


def call(
    amount: int | str = 10,
    *,
    run: str = RUN,
    tool: str = "pay",
    key: str | None = None,
    gated: bool = False,
    organization: str = "",
    arguments: str | None = None,
    note: str | None = None,
    parent: str | None = None,
) -> Call:
    """`pay(amount, to="alice")`, keyed by its arguments or by `key`. A `note` is left out of the key, as `exclude=` does."""
    keyed = arguments or f'{{"amount":{amount},"to":"alice"}}'
    full = keyed if note is None else keyed[:-1] + f',"zz_note":"{note}"}}'
    return Call(
        run=run,
        tool=tool,
        arguments=full,
        arguments_codec=full,
        call_digest=call_digest(tool, full),
        args_digest=call_digest(tool, keyed),
        key=effect_key(organization or "org", run, tool, arguments=None if key else keyed, explicit_key=key),
        explicit_key=key,
        gated=gated,
        parent=parent,
        exclude=() if note is None else ("zz_note",),
    )


def claimant(*, actor: str = AGENT, holder: str = "", lease_seconds: float = 15.0, token: str | None = None) -> Claimant:
    """A caller with a fresh token."""
    return Claimant(token=token or new_token(), actor=actor, holder=holder, lease_seconds=lease_seconds)


def approve(
    record: FileRecord | DatabaseRecord, one: Call, *, by: str = PERSON, expires_in: float | None = None, key: str | None = None
) -> str:
    """A yes for exactly this call; under any key unless one is named."""
    return record.approve(
        run=one.run, tool=one.tool, arguments=one.arguments, call_digest=one.call_digest, explicit_key=key, by=by, expires_in=expires_in
    )


def deny(record: FileRecord | DatabaseRecord, one: Call, *, by: str = PERSON, reason: str = "wrong IBAN") -> None:
    """A no for this call."""
    record.deny(run=one.run, tool=one.tool, arguments=one.arguments, call_digest=one.call_digest, by=by, reason=reason)


@dataclass
class Kept:
    """A record of the test's own. `advance` moves the database's clock, `sql` goes around every guard of the verbs."""

    kind: str
    address: str
    record: FileRecord | DatabaseRecord
    offset: int = 0
    _more: list[FileRecord | DatabaseRecord] = field(default_factory=list)

    def open(self, *, secret: bytes = SECRET, old_secrets: Sequence[bytes] = ()) -> FileRecord | DatabaseRecord:
        """Another handle on the same record, as another process would have."""
        opened = record_open(self.address, secret=secret, old_secrets=old_secrets)
        self._more.append(opened)
        return opened

    def close(self) -> None:
        """Close every handle."""
        for one in (self.record, *self._more):
            one.close()

    def now(self) -> int:
        """The clock the record believes in, in µs."""
        return time.time_ns() // 1000 + self.offset

    def advance(self, seconds: float) -> None:
        """Move the record's clock (backwards too), whatever the caller's own says."""
        self.offset += micros(seconds)
        if self.kind == "database":
            self.sql(clock_sql(self.offset))

    def sql(self, text: str, **params: Any) -> list[tuple[Any, ...]]:
        """Run one statement as somebody with a database client would; `:name` parameters."""
        return raw_sql(self.address, text, params)

    def head(self, one: Call) -> dict[str, Any]:
        """The effect's head, every column that is folded from entries."""
        names = HEAD_COLUMNS["c4a_effect"]
        (row,) = self.sql(f"SELECT {names} FROM c4a_effect WHERE key = :key", key=one.key)
        return dict(zip(names.split(", "), row, strict=True))

    def heads(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every head of the record, lease columns aside, in a stable order."""
        found = {table: self.sql(f"SELECT run, key, {names} FROM {table} ORDER BY run, key") for table, names in HEAD_COLUMNS.items()}
        columns = "run, approval, key, tool, explicit_key, state, approved_by, approved_at, expires_at, mac, key_id, gate_seq, spent_by"
        found["c4a_approval"] = self.sql(f"SELECT {columns} FROM c4a_approval ORDER BY approval")
        return found

    def effect(self, one: Call) -> Effect:
        """The effect as the record shows it."""
        found = self.record.effect(one.key, one.run)
        assert found is not None
        return found

    def kinds(self, one: Call) -> list[str]:
        """What the entries of one effect say, in order, without the `effect.` before it."""
        return [entry.kind.removeprefix("effect.") for entry in self.record.entries(run=one.run, key=one.key)]

    def executor(self) -> Any:
        """What the verbs run on."""
        return self.record.executor()

    def count(self, table: str = "c4a_entry") -> int:
        """How many rows a table has."""
        return int(self.sql(f"SELECT COUNT(*) FROM {table}")[0][0])


class Counting:
    """An executor that counts its trips and statements on the way."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.trips = 0
        self.statements = 0

    @property
    def dialect(self) -> Any:
        """That of the executor inside."""
        return self.inner.dialect

    def trip(self, statements: Sequence[Statement]) -> list[Result]:
        """Count, then pass on."""
        self.trips += 1
        self.statements += len(statements)
        return self.inner.trip(statements)

    def read(self, statements: Sequence[Statement]) -> list[Result]:
        """Count, then pass on."""
        self.trips += 1
        self.statements += len(statements)
        return self.inner.read(statements)

    def clock(self) -> int:
        """Count, then pass on."""
        self.trips += 1
        return self.inner.clock()


def clock_sql(offset: int) -> str:
    """Makes the database's clock differ from its machine's by so many µs."""
    return (
        "CREATE OR REPLACE FUNCTION c4a_now() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS "
        f"$$ SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint + {offset} $$"
    )


def record_open(address: str, *, secret: bytes = SECRET, old_secrets: Sequence[bytes] = ()) -> FileRecord | DatabaseRecord:
    """A handle on the record at a path or a database address."""
    if "://" in address:
        return DatabaseRecord(address, secret=secret, old_secrets=old_secrets)
    return FileRecord(address, secret=secret, old_secrets=old_secrets)


def raw_sql(address: str, text: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """One statement with the driver alone, committed; rows if it has any."""
    if "://" in address:
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(POSTGRESQL.render(text), params or None)
            return cursor.fetchall() if cursor.description else []
    lite = sqlite3.connect(Path(address), timeout=10, isolation_level=None)
    try:
        prepare_connection(lite)
        return lite.execute(SQLITE.render(text), params or {}).fetchall()
    finally:
        lite.close()


def begun(kept: Kept, one: Call, **options: Any) -> tuple[Claimant, Grant]:
    """A claim that must succeed."""
    who = claimant(**options)
    grant = kept.record.claim(one, who)
    assert isinstance(grant, Grant)
    return who, grant


def in_doubt(kept: Kept, one: Call, *, reason: str = "raised") -> tuple[Claimant, Grant]:
    """An effect whose attempt ended in doubt: its body raised, was cancelled, or its lease lapsed."""
    who, grant = begun(kept, one)
    if reason == "lapsed":
        kept.advance(16)
        assert kept.record.sweep() == 1
    else:
        kept.record.fail(one.run, one.key, who.token, error="TimeoutError: no answer", reason=reason)
    return who, grant
