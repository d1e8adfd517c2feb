"""One SQL text for two databases, and the executor that runs it.

A text is written with `:name` parameters, `{now}` for the database's clock and one of the `LOCK_…` texts as a statement
of its own. Nothing else differs between SQLite and PostgreSQL outside the DDL files; `tests/walls/test_dialects.py` lists it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)")

LOCK_RUN_SHARED: Final = "{lock_run_shared}"
"""Held by every claim, so that freeze and archive, which take it exclusively, see no claim half-way."""
LOCK_RUN: Final = "{lock_run}"
LOCK_ACTION: Final = "{lock_action}"
"""First statement of everything that answers or spends an answer: yes, no and intent get one order."""


class Statement(NamedTuple):
    """One guarded statement; the list is right if all of it runs. A database that can look saves the work of one that is
    marked `after_change` when the write before it changed no row.
    """

    sql: str
    params: Mapping[str, Any]
    after_change: bool = False


class Result(NamedTuple):
    """Rows changed (for SELECT: rows read) and the rows read."""

    count: int  # type: ignore[assignment]  # rows, which is what everybody asks for; nobody counts values in a result
    rows: list[tuple[Any, ...]]


NOTHING: Final = Result(0, [])


@dataclass(frozen=True)
class Dialect:
    """What differs between the databases, by substitution in the text."""

    name: str
    substitutions: Mapping[str, str]
    parameter: str
    """Replacement pattern for a `:name` parameter."""
    reads_are_cheap: bool
    """True where a read costs no network trip, so that a verb may look before it takes the write lock."""
    writers_take_turns: bool
    """True where a write transaction excludes every other, so that no lock of its own is needed."""
    _rendered: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def render(self, sql: str) -> str:
        """The text for this database; an empty text means the statement is not needed here."""
        try:
            return self._rendered[sql]
        except KeyError:
            text = _PARAMETER.sub(self.parameter, sql)
            for name, value in self.substitutions.items():
                text = text.replace("{" + name + "}", value)
            self._rendered[sql] = text
            return text


SQLITE: Final = Dialect(
    name="sqlite",
    substitutions={"now": ":now", "lock_run_shared": "", "lock_run": "", "lock_action": ""},
    parameter=r":\1",
    reads_are_cheap=True,
    writers_take_turns=True,
)
POSTGRESQL: Final = Dialect(
    name="postgresql",
    substitutions={
        "now": "c4a_now()",
        "lock_run_shared": "SELECT pg_advisory_xact_lock_shared(%(run_lock)s)",
        "lock_run": "SELECT pg_advisory_xact_lock(%(run_lock)s)",
        "lock_action": "SELECT pg_advisory_xact_lock(%(action_lock)s)",
    },
    parameter=r"%(\1)s",
    reads_are_cheap=False,
    writers_take_turns=False,
)


class Executor(Protocol):
    """Runs statements. A verb never begins or commits: the executor does, or joins the transaction it was given."""

    @property
    def dialect(self) -> Dialect:
        """Which database this is."""

    def trip(self, statements: Sequence[Statement]) -> list[Result]:
        """Run all statements in one transaction and, where the database is away, one round trip."""

    def read(self, statements: Sequence[Statement]) -> list[Result]:
        """Run SELECTs without taking a write lock; one round trip."""

    def clock(self) -> int:
        """The database's clock in µs since 1970."""


def lock_number(*parts: str) -> int:
    """A signed 64-bit number for an advisory lock, the same on every machine.

    Two different names may share a number; that costs a wait, never a wrong answer.
    """
    text = "\x1f".join(parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "big", signed=True)


def run_lock(organization: str, run: str) -> Mapping[str, int]:
    """The parameters of `LOCK_RUN` and `LOCK_RUN_SHARED`."""
    return {"run_lock": lock_number(organization, run)}


def action_lock(organization: str, run: str, call_digest: str) -> Mapping[str, int]:
    """The parameters of `LOCK_ACTION`: one lock for each call of each run."""
    return {"action_lock": lock_number(organization, run, call_digest)}
