"""The head of an effect as a claim reads it, and what it means for whoever asks: a grant, the recorded result, or why not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from c4a.errors import AgentFrozen, C4AError, EffectInDoubt, EffectRunning, EffectUndone, KeyConflict, RecordDamaged, RequestRefused
from c4a.record.dialects import Executor, Result, Statement
from c4a.record.doubt import mark_lapsed, refuse_damage
from c4a.record.types import Call, Grant, Recorded

THIS: Final = "organization = :organization AND run = :run AND key = :key"
"""SQL: the head that the parameters name."""

_COLUMNS: Final = (
    "h.state, h.attempt, h.epoch, h.token_hash, h.lease_until, h.holder, h.reason, h.error, h.note, h.actor, h.tool, h.last_at, h.done_at, "
    "h.args_digest, h.explicit_key, h.approval, r.payload, h.result_seq"
)

# One row always: the head if there is one, and what a claim must also know.
SEE: Final = f"""
SELECT {{now}} AS read_at, {_COLUMNS}
FROM (SELECT 1 AS one) AS always
LEFT JOIN c4a_effect AS h ON h.organization = :organization AND h.run = :run AND h.key = :key
LEFT JOIN c4a_entry AS r ON r.organization = h.organization AND r.run = h.run AND r.key = h.key AND r.seq = h.result_seq
    AND r.kind = 'effect.done'"""

_LOOK: Final = f"""
SELECT {{now}} AS read_at, {_COLUMNS}
FROM c4a_effect AS h
LEFT JOIN c4a_entry AS r ON r.organization = h.organization AND r.run = h.run AND r.key = h.key AND r.seq = h.result_seq
    AND r.kind = 'effect.done'
WHERE h.organization = :organization AND h.run = :run AND h.key = :key"""

FROZEN: Final = """
SELECT 'run', f.frozen_by, f.frozen_at, f.frozen_note FROM c4a_run AS f
WHERE f.organization = :organization AND f.run = :run AND f.frozen_at IS NOT NULL
UNION ALL
SELECT 'agent', f.frozen_by, f.frozen_at, f.frozen_note FROM c4a_subject AS f
WHERE f.organization = :organization AND f.key = :actor AND f.frozen_at IS NOT NULL"""

_FIRST_INTENT: Final = f"SELECT payload FROM c4a_entry WHERE {THIS} AND kind = 'effect.running' ORDER BY seq LIMIT 1"


_LAST: Final = f"""
SELECT kind, payload FROM c4a_entry WHERE {THIS} AND kind <> 'effect.happened_twice' ORDER BY seq DESC LIMIT 1"""


@dataclass(frozen=True)
class Seen:
    """The head as read, None for `state` if there is none; `read_at` is the database's clock."""

    read_at: int
    state: str | None
    attempt: int
    epoch: int
    token_hash: str
    lease_until: int
    holder: str
    reason: str | None
    error: str | None
    note: str | None
    actor: str
    tool: str
    last_at: int
    done_at: int | None
    args_digest: str
    explicit_key: str | None
    approval: str | None
    payload: str | None
    result_seq: int | None


def look(executor: Executor, params: dict[str, Any]) -> Seen | None:
    """The head if there is one, by the shortest query: what a repeat costs where a read is cheap."""
    rows = executor.read([Statement(_LOOK, params)])[0].rows
    return Seen(*rows[0]) if rows else None


def seen_from(result: Result) -> Seen:
    """The one row of `SEE`."""
    row = result.rows[0]
    if row[1] is None:
        return Seen(row[0], None, 0, 0, "", 0, "", None, None, None, "", "", 0, None, "", None, None, None, None)
    return Seen(*row)


def settled(executor: Executor, seen: Seen, call: Call, params: dict[str, Any]) -> Grant | Recorded:
    """What a head that exists means for this caller: a grant, the recorded result, or the error that says why not."""
    refuse_conflict(executor, seen, call, params)
    if seen.token_hash == params["token_hash"] and seen.state == "running":
        refuse_other_grant(executor, call, params)
        return granted(seen, call)
    if seen.state == "done":
        return _recorded(seen, call)
    if seen.state in ("undoing", "undone"):
        raise EffectUndone(
            f"{call.tool} was done and then reversed: use another c4a_key for a new one", run=call.run, key=call.key, tool=call.tool
        )
    if seen.state == "running" and seen.lease_until >= seen.read_at:
        raise EffectRunning(
            f"{call.tool} is being run by {seen.actor} since {_ago(seen)}: wait, then call again",
            **doubt_fields(seen, call),
            body_ended=False,
            holder=seen.holder,
            lease_until=seen.lease_until,
            actor=seen.actor,
        )
    if seen.state == "running":
        if not mark_lapsed(executor, params["organization"], call.run, call.key, attempt=seen.attempt):
            refuse_damage(executor, params, call.tool)
        seen = seen_from(executor.read([Statement(SEE, params)])[0])
        return settled(executor, seen, call, params)
    raise in_doubt_error(seen, call)


def granted(seen: Seen, call: Call) -> Grant:
    """The grant of a head that is this caller's own."""
    return Grant(run=call.run, key=call.key, attempt=seen.attempt, epoch=seen.epoch, approval=seen.approval)


def refuse_other_grant(executor: Executor, call: Call, params: dict[str, Any]) -> None:
    """Let a token have its grant again only for the call it was granted for, and only if the last entry says so. One trip.

    Raises:
        RecordDamaged: the head says that it runs under this token, its entries don't.
        RequestRefused: the token holds another call of the same action, one with other excluded arguments, which no yes may have shown.
    """
    rows = executor.read([Statement(_LAST, params)])[0].rows
    kind, payload = rows[0] if rows else ("", None)
    said = json.loads(payload) if payload else {}
    if kind != "effect.running" or said.get("token_hash") != params["token_hash"]:
        raise RecordDamaged(
            f"the head of {call.tool} says that it runs, but no entry says so: run `c4a verify`, then `c4a rebuild`",
            run=call.run,
            key=call.key,
        )
    if said.get("call_digest") != call.call_digest:
        raise RequestRefused(
            f"this token holds {call.tool} with other arguments: make a new token for each claim",
            errors=[{"field": "token", "problem": "in use"}],
        )


def refuse_conflict(executor: Executor, seen: Seen, call: Call, params: dict[str, Any]) -> None:
    """Raise `KeyConflict` if the effect was claimed with arguments that mean something else."""
    if seen.state is None or seen.args_digest == call.args_digest:
        return
    rows = executor.read([Statement(_FIRST_INTENT, params)])[0].rows
    recorded = json.loads(rows[0][0]).get("arguments") if rows and rows[0][0] else None
    raise KeyConflict(
        f"the key {call.explicit_key!r} of {call.tool} already names another action: recorded {recorded}, given {call.arguments}. "
        "Nothing ran; use a new key for a different action",
        run=call.run, key=call.key, tool=call.tool, explicit_key=call.explicit_key,
        recorded_arguments=recorded, given_arguments=call.arguments,
    )  # fmt: skip


def frozen_error(executor: Executor, params: dict[str, Any]) -> C4AError | None:
    """`AgentFrozen` if a person stopped this run or this agent, else None."""
    return frozen_from(executor.read([Statement(FROZEN, params)])[0], params)


def frozen_from(result: Result, params: dict[str, Any]) -> AgentFrozen | None:
    """The error of what `FROZEN` found, None if nobody stopped anything."""
    if not result.rows:
        return None
    what, by, at, note = result.rows[0]
    named = params["run"] if what == "run" else params["actor"]
    because = f": {note}" if note else ""
    return AgentFrozen(
        f"the {what} {named} was stopped by {by}{because}; nothing ran", subject=f"{what}:{named}", by=by, at=at, note=note or ""
    )


def in_doubt_error(seen: Seen, call: Call) -> EffectInDoubt:
    """The error for an effect in doubt, saying what is known."""
    named = f": {seen.error}" if seen.error else ""
    return EffectInDoubt(
        f"{call.tool} may or may not have happened ({seen.reason}{named}); it will not be repeated blindly. "
        f"Check outside, then `c4a resolve` {call.key[:12]} done or not-done",
        **doubt_fields(seen, call),
        body_ended=seen.reason in ("raised", "dead", "unknown"),
        lease_until=seen.lease_until,
        holder=seen.holder,
        actor=seen.actor,
    )


def doubt_fields(seen: Seen, call: Call) -> dict[str, Any]:
    """What every error about an attempt carries."""
    return {
        "run": call.run, "key": call.key, "tool": call.tool, "attempt": seen.attempt, "reason": seen.reason, "error": seen.error,
        "since": seen.last_at,
    }  # fmt: skip


def _recorded(seen: Seen, call: Call) -> Recorded:
    if seen.payload is None and seen.note != "erased":
        raise RecordDamaged(
            f"the head of {call.tool} says done, but no entry says so: run `c4a verify`, then `c4a rebuild`", run=call.run, key=call.key
        )
    payload = json.loads(seen.payload) if seen.payload else {}
    return Recorded(
        run=call.run, key=call.key, attempt=seen.attempt, result=payload.get("result"), done_at=seen.done_at or seen.last_at, note=seen.note
    )


def _ago(seen: Seen) -> str:
    return f"{max(0.0, (seen.read_at - seen.last_at) / 1_000_000):.1f} s"
