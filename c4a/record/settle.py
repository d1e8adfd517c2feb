"""Settle: what the holder of a claim says about its own attempt. Every verb carries the token and may be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from c4a.errors import ClaimLost, LedgerError, RecordDamaged
from c4a.keys import token_hash
from c4a.record.dialects import Executor, Result, Statement
from c4a.record.doubt import doubt_if_twice
from c4a.record.entries import ADVANCE_SETTLED, APPEND_SETTLED, ENTRIES_AGREE, MOVED_AT, entry_params, moved, payload_text, plain_text

_MINE: Final = "token_hash = :token_hash"
_CLEAR: Final = "reason = NULL, error = NULL, asker_hash = NULL, asker_until = NULL"
_DONE: Final = f"state = 'done', settled_by = 'agent', note = CAST(:note AS TEXT), done_at = {MOVED_AT}, result_seq = seq + 1, {_CLEAR}"
_MINE_RUNNING: Final = f"{_MINE} AND state = 'running'"


def complete(executor: Executor, organization: str, run: str, key: str, token: str, *, result: str | None, note: str | None = None) -> str:
    """Settle as done; one trip. See `c4a.record.types.Record.complete`.

    Returns `done`, or `late` (it overruled a doubt or a judgement), `repeated` (said before), `happened_twice` (a newer attempt had begun).
    """
    payload: dict[str, Any] = {"by": "agent", "result": result}
    if note is not None:
        payload["note"] = note
    params = _params(organization, run, key, token, "effect.done", payload) | {"note": note}
    if _moves(executor, _DONE, _MINE_RUNNING, params):
        return "done"
    # Not running any more: its own late outcome settles while no newer attempt has taken the token's place, and overrules a judgement.
    late = _params(organization, run, key, token, "effect.done", payload | {"late": True}) | {"note": note}
    where = f"{_MINE} AND (state IN ('in_doubt', 'not_done') OR (state = 'done' AND settled_by <> 'agent'))"
    if _moves(executor, _DONE, where, late):
        return "late"
    return _after_all(executor, organization, run, key, token, done=payload)


def fail(
    executor: Executor,
    organization: str,
    run: str,
    key: str,
    token: str,
    *,
    error: str,
    nothing_happened: bool = False,
    reason: str = "raised",
) -> str:
    """The body raised: in doubt, or not_done if it is proved that nothing happened. One trip.

    Returns `in_doubt`, `not_done` or `repeated`. A late failure counts too: it may put a judged not-done back in doubt,
    because whoever judged did so while the body was still running. For the same reason the answer of whoever asks outside
    at that moment no longer counts.
    """
    error = plain_text(error)
    if nothing_happened:
        state = "not_done"
        payload: dict[str, Any] = {"by": "agent", "error": error}
        assignments = "state = 'not_done', settled_by = 'agent', reason = NULL, error = :error, asker_hash = NULL, asker_until = NULL"
        where = f"{_MINE} AND state IN ('running', 'in_doubt') AND {ENTRIES_AGREE}"
    else:
        state = "in_doubt"
        payload = {"by": "agent", "error": error, "reason": reason}
        assignments = "state = 'in_doubt', settled_by = NULL, reason = :reason, error = :error, asker_hash = NULL, asker_until = NULL"
        still_open = "state = 'running' OR (state = 'in_doubt' AND reason <> 'raised')"
        where = f"{_MINE} AND ({still_open} OR (state = 'not_done' AND settled_by <> 'agent'))"
    params = _params(organization, run, key, token, f"effect.{state}", payload) | {"error": error, "reason": reason}
    if _moves(executor, assignments, where, params, *(doubt_if_twice(organization, run, key) if nothing_happened else [])):
        return state
    return _after_all(executor, organization, run, key, token)


def release(executor: Executor, organization: str, run: str, key: str, token: str) -> str:
    """The body never began: not_done, and the yes is kept. One trip. Returns `not_done` or `repeated`."""
    params = _params(organization, run, key, token, "effect.not_done", {"by": "release"})
    assignments = f"state = 'not_done', settled_by = 'agent', {_CLEAR}"
    where = f"{_MINE} AND state IN ('running', 'in_doubt') AND {ENTRIES_AGREE}"
    if _moves(executor, assignments, where, params, *doubt_if_twice(organization, run, key)):
        return "not_done"
    return _after_all(executor, organization, run, key, token)


def heartbeat(executor: Executor, organization: str, claims: Sequence[tuple[str, str, str]], lease_seconds: float) -> list[str]:
    """Extend the lease of (run, key, token) claims; one trip for all. Returns the keys that are no longer held.

    A body that still runs though its caller gave up, or its process stalled past the lease, stays in doubt, but is known
    to be running: nobody may ask outside or send again beside it.
    """
    lease = int(lease_seconds * 1_000_000)
    statements = [
        Statement(_EXTEND, {"organization": organization, "run": run, "key": key, "token_hash": token_hash(token), "lease": lease})
        for run, key, token in claims
    ]
    if not statements:
        return []
    return [key for (_, key, _), result in zip(claims, executor.trip(statements), strict=True) if not result.count]


_EXTEND: Final = """
UPDATE c4a_effect SET lease_until = {now} + :lease
WHERE organization = :organization AND run = :run AND key = :key AND token_hash = :token_hash
    AND (state = 'running' OR (state = 'in_doubt' AND reason IN ('cancelled', 'lapsed')))"""

_WHO: Final = """
SELECT state, token_hash, attempt, settled_by FROM c4a_effect WHERE organization = :organization AND run = :run AND key = :key"""

_INTENTS: Final = """
SELECT attempt, payload, actor FROM c4a_entry
WHERE organization = :organization AND run = :run AND key = :key AND kind = 'effect.running' ORDER BY seq"""


def _after_all(executor: Executor, organization: str, run: str, key: str, token: str, *, done: dict[str, Any] | None = None) -> str:
    """The guarded write changed nothing: said before, fenced off, or (an older attempt's done) the finding `happened_twice`.

    The finding keeps the older attempt's own result, since whoever reverses one of the two needs it.
    """
    who = {"organization": organization, "run": run, "key": key}
    head, intents = executor.read([Statement(_WHO, who), Statement(_INTENTS, who)])
    if head.rows and head.rows[0][1] == token_hash(token):
        if head.rows[0][0] == "running":
            raise LedgerError("the outcome was not written, because the heads were being folded anew at that moment: try again", key=key)
        return "repeated"
    begun = _begun_with(intents, token_hash(token))
    if begun is not None and not head.rows:
        raise RecordDamaged("an entry says that this action began, but it has no head: run `c4a verify`, then `c4a rebuild`", key=key)
    if begun is None or done is None:
        state = head.rows[0][0] if head.rows else "unknown"
        raise ClaimLost(
            f"this token does not hold the action (it is {state}"
            + (f", attempt {head.rows[0][2]}" if head.rows else "")
            + "): another attempt began or it was never claimed with it; nothing was written",
            key=key,
            state=state,
        )
    attempt, actor = begun
    payload = done | {"attempt": attempt, "token_hash": token_hash(token)}
    params = _params(organization, run, key, token, "effect.happened_twice", payload)
    params |= {"actor": actor, "told": f'%"token_hash":"{token_hash(token)}"%'}
    executor.trip([*moved("c4a_effect", "happened_twice = 1", _NOT_TOLD, params), *doubt_if_twice(organization, run, key)])
    return "happened_twice"


_NOT_TOLD: Final = """NOT EXISTS (
    SELECT 1 FROM c4a_entry AS e
    WHERE e.organization = :organization AND e.run = :run AND e.key = :key AND e.kind = 'effect.happened_twice' AND e.payload LIKE :told
)"""
"""SQL: this very attempt has not been found out before. Another older attempt may have been: each has a result of its own."""


def _begun_with(intents: Result, token_hash: str) -> tuple[int, str] | None:
    """Attempt and actor of the intent that was claimed with this token."""
    for attempt, payload, actor in intents.rows:
        if payload and f'"token_hash":"{token_hash}"' in payload:
            return int(attempt), str(actor)
    return None


def _moves(executor: Executor, assignments: str, where: str, params: dict[str, Any], *then: Statement) -> bool:
    return executor.trip([*_moved(assignments, where, params), *then])[0].count > 0


def _moved(assignments: str, where: str, params: dict[str, Any]) -> list[Statement]:
    # The actor of a settlement is whoever claimed the attempt: the head knows, and the token proves it.
    return moved("c4a_effect", assignments, where, params, advance_by=ADVANCE_SETTLED, append_by=APPEND_SETTLED)


def _params(organization: str, run: str, key: str, token: str, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return entry_params(kind, payload_text(payload), "") | {
        "organization": organization,
        "run": run,
        "key": key,
        "token_hash": token_hash(token),
    }
