"""Reads: heads and entries as frozen values. Every query goes through an index; nothing here writes."""

from __future__ import annotations

import json
from typing import Any, Final

from c4a.record.dialects import Executor, Statement
from c4a.record.types import Effect, Entry, State

_EFFECT: Final = """
SELECT h.id, h.run, h.key, h.tool, h.state, h.attempt, h.epoch, h.explicit_key, h.call_digest, h.parent, h.approval, h.reason, h.error,
    h.actor, h.holder, h.lease_until, h.first_at, h.last_at, h.done_at, h.happened_twice, h.note, i.payload, r.payload
FROM c4a_effect AS h
LEFT JOIN c4a_entry AS i ON i.organization = h.organization AND i.run = h.run AND i.key = h.key AND i.seq = h.intent_seq
LEFT JOIN c4a_entry AS r ON r.organization = h.organization AND r.run = h.run AND r.key = h.key AND r.seq = h.result_seq
WHERE h.organization = :organization"""

_OPEN: Final = "h.organization || '' = :organization AND h.state IN ('running', 'in_doubt')"
"""SQL: the open effects, through their own small index: SQLite wants its condition to the letter, and no tie with the promise's."""

_KEYS_OF_RUN: Final = "SELECT e.key FROM c4a_entry AS e WHERE e.organization = :organization AND e.run = :run AND e.seq = 1"

_ENTRY: Final = """
SELECT id, run, kind, key, seq, attempt, approval, payload, actor, recorded_at, prev, digest
FROM c4a_entry WHERE organization = :organization"""


def effect(executor: Executor, organization: str, key: str, run: str | None = None) -> Effect | None:
    """One effect by its key, None if this organization has no such effect. One trip."""
    text = _EFFECT + " AND h.key = :key" + (" AND h.run = :run" if run is not None else "")
    rows = executor.read([Statement(text, {"organization": organization, "key": key, "run": run})])[0].rows
    return effect_from_row(rows[0]) if rows else None


def effects(
    executor: Executor, organization: str, *, run: str | None = None, state: State | None = None, after: int = 0, limit: int = 100
) -> list[Effect]:
    """Effects in the order of their first claim, `after` the given row id; one trip, at most `limit` rows."""
    return [found for _, found in effect_rows(executor, organization, run=run, state=state, after=after, limit=limit)]


def effect_rows(
    executor: Executor, organization: str, *, run: str | None = None, state: State | None = None, after: int = 0, limit: int = 100
) -> list[tuple[int, Effect]]:
    """As `effects`, each with its row id, the cursor of the next page."""
    if state in ("running", "in_doubt") and run is None:
        text = (
            _EFFECT.replace("h.organization = :organization", _OPEN) + f" AND h.state = '{state}' AND h.id + 0 > :after ORDER BY h.id + 0"
        )
    elif run is not None:
        # `+ 0` keeps the planner from walking all effects in the order of their ids.
        text = _EFFECT + f" AND h.run = :run AND h.key IN ({_KEYS_OF_RUN}) AND h.id + 0 > :after"
        text += (" AND h.state = :state" if state is not None else "") + " ORDER BY h.id + 0"
    else:
        text = _EFFECT + (" AND h.state = :state" if state is not None else "") + " AND h.id > :after ORDER BY h.id"
    text += " LIMIT :limit"
    params = {"organization": organization, "run": run, "state": state, "after": after, "limit": limit}
    return [(int(row[0]), effect_from_row(row)) for row in executor.read([Statement(text, params)])[0].rows]


def entries(
    executor: Executor, organization: str, *, run: str | None = None, key: str | None = None, after: int = 0, limit: int = 1000
) -> list[Entry]:
    """Entries in the order they were added, of one run or one chain if named; one trip."""
    text = _ENTRY + " AND id > :after"
    if run is not None:
        text += " AND run = :run"
    if key is not None:
        text += " AND key = :key"
    text += " ORDER BY id LIMIT :limit"
    params = {"organization": organization, "run": run, "key": key, "after": after, "limit": limit}
    return [entry_from_row(row) for row in executor.read([Statement(text, params)])[0].rows]


def keys_starting(executor: Executor, organization: str, prefix: str, *, limit: int = 10) -> list[str]:
    """Effect keys that begin with a few hex characters, for people who type them; one trip."""
    text = "SELECT key FROM c4a_effect WHERE organization = :organization AND key >= :low AND key < :high ORDER BY key LIMIT :limit"
    params = {"organization": organization, "low": prefix, "high": prefix + "g", "limit": limit}
    return [str(row[0]) for row in executor.read([Statement(text, params)])[0].rows]


def counts(executor: Executor, organization: str) -> dict[str, int]:
    """How many effects are in each open state and how many entries there are at most; one trip, by index."""
    texts = (
        f"SELECT COUNT(*) FROM c4a_effect AS h WHERE {_OPEN} AND h.state = 'running'",
        f"SELECT COUNT(*) FROM c4a_effect AS h WHERE {_OPEN} AND h.state = 'in_doubt'",
    )
    results = executor.read([Statement(text, {"organization": organization}) for text in texts])
    return {"running": int(results[0].rows[0][0]), "in_doubt": int(results[1].rows[0][0])}


def effect_from_row(row: tuple[Any, ...]) -> Effect:
    """A frozen effect from a row of `_EFFECT`."""
    intent = json.loads(row[21]) if row[21] else {}
    outcome = json.loads(row[22]) if row[22] else {}
    arguments = intent.get("arguments")
    return Effect(
        run=row[1], key=row[2], tool=row[3], state=row[4], attempt=row[5], epoch=row[6], explicit_key=row[7], call_digest=row[8],
        parent=row[9], approval=row[10], reason=row[11], error=row[12], actor=row[13], holder=row[14], lease_until=row[15],
        first_at=row[16], last_at=row[17], done_at=row[18], happened_twice=bool(row[19]), note=row[20],
        arguments=arguments, arguments_codec=intent.get("codec", arguments), result=outcome.get("result"),
    )  # fmt: skip


def entry_from_row(row: tuple[Any, ...]) -> Entry:
    """A frozen entry from a row of `_ENTRY`."""
    return Entry(
        id=row[0], run=row[1], kind=row[2], key=row[3], seq=row[4], attempt=row[5], approval=row[6],
        payload=json.loads(row[7]) if row[7] else None, actor=row[8], recorded_at=row[9], prev=row[10], digest=row[11],
    )  # fmt: skip
