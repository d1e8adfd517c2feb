"""Claim: the right to run one attempt of one effect.

A first claim is one INSERT under the unique index on (organization, run, key) and its intent entry. A gated one also spends
a yes, under the action lock. An attempt after the first moves a head that is `not_done`, or (reclaim) `in_doubt`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from c4a.errors import (
    AgentFrozen,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalRequired,
    C4AError,
    EffectInDoubt,
    EffectRunning,
    EffectUndone,
    KeyConflict,
    LedgerError,
    RecordDamaged,
)
from c4a.record.dialects import LOCK_ACTION, LOCK_RUN_SHARED, Executor, Result, Statement, action_lock, run_lock
from c4a.record.doubt import BODY_ENDED, mark_lapsed, refuse_damage
from c4a.record.entries import APPEND_INTENT, advance, entry_params, payload_text
from c4a.record.keyring import Keyring
from c4a.record.types import DEFAULT_GRACE_SECONDS, Call, Claimant, Grant, Recorded

MAX_ROUNDS: Final = 50
"""How often a claim looks again after losing a race; each round somebody else got further."""
APPROVAL_DOMAIN: Final = "c4a/approval/v1"
CANDIDATES: Final = 8

_THIS: Final = "organization = :organization AND run = :run AND key = :key"

_NOT_FROZEN: Final = """
    NOT EXISTS (SELECT 1 FROM c4a_run AS f WHERE f.organization = :organization AND f.run = :run AND f.frozen_at IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM c4a_subject AS f WHERE f.organization = :organization AND f.key = :actor AND f.frozen_at IS NOT NULL)"""

_START_RUN: Final = """
INSERT INTO c4a_run (
    organization, run, key, started_by, started_at, seq, last_at, prev_digest, last_digest, last_payload_digest
)
VALUES (:organization, :run, 'run', :actor, {now}, 0, 0, '', '', '')
ON CONFLICT (organization, run) DO NOTHING"""

_FIRST_HEAD: Final = """
INSERT INTO c4a_effect (
    organization, run, key, tool, state, attempt, epoch, call_digest, args_digest, explicit_key, parent, approval,
    actor, token_hash, holder, lease_until, waited, first_at, happened_twice, intent_seq,
    seq, last_at, prev_digest, last_digest, last_payload_digest
)
SELECT :organization, :run, :key, :tool, 'running', 1, 0, :call_digest, :args_digest, :explicit_key, :parent, CAST(:approval AS TEXT),
    :actor, :token_hash, :holder, {now} + :lease, 0, {now}, 0, 1,
    1, {now}, '',
    c4a_entry_digest(:organization, :run, :key, 1, :kind, 1, CAST(:approval AS TEXT), :payload_digest, :actor, {now}, ''),
    :payload_digest
WHERE """

_FIRST_PLAIN: Final = _FIRST_HEAD + _NOT_FROZEN + "\nON CONFLICT (organization, run, key) DO NOTHING"

# A yes counts while its own entry stands in the gate's chain and nothing later in it takes it back. The row's state is only
# a hint: set back by hand it buys nothing, because of this and because the spending intent is unique on the entries.
_YES_STANDS: Final = """
    (a.expires_at IS NULL OR a.expires_at > {now})
    AND EXISTS (
        SELECT 1 FROM c4a_entry AS y
        WHERE y.organization = a.organization AND y.run = a.run AND y.key = a.key AND y.seq = a.gate_seq
            AND y.kind = 'gate.approved' AND y.approval = a.approval
    )
    AND NOT EXISTS (
        SELECT 1 FROM c4a_entry AS n
        WHERE n.organization = a.organization AND n.run = a.run AND n.key = a.key AND n.seq > a.gate_seq
            AND (n.kind = 'gate.denied' OR (n.kind = 'gate.withdrawn' AND n.approval = a.approval))
    )"""

_NEVER_SPENT: Final = """
    NOT EXISTS (
        SELECT 1 FROM c4a_entry AS s
        WHERE s.organization = a.organization AND s.run = a.run AND s.approval = a.approval AND s.kind = 'effect.running'
            AND s.approval IS NOT NULL
    )"""

_SPENT_BY_THIS: Final = """
    EXISTS (
        SELECT 1 FROM c4a_entry AS s
        WHERE s.organization = a.organization AND s.run = a.run AND s.approval = a.approval AND s.kind = 'effect.running'
            AND s.approval IS NOT NULL AND s.key = :key
    )"""

_YES_UNSPENT: Final = f"""
    EXISTS (
        SELECT 1 FROM c4a_approval AS a
        WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval AND a.key = :call_digest AND a.state = 'unspent'
            AND a.mac = :mac AND {_YES_STANDS}
            AND {_NEVER_SPENT}
    )"""

_FIRST_GATED: Final = _FIRST_HEAD + _YES_UNSPENT + "\n    AND " + _NOT_FROZEN + "\nON CONFLICT (organization, run, key) DO NOTHING"

# Only after the head is this claim's own: whoever loses the effect to a call under another action lock (other arguments under
# one explicit key, or arguments that the key leaves out) must not lose its yes too.
_SPEND: Final = """
UPDATE c4a_approval SET state = 'spent', spent_by = :key
WHERE organization = :organization AND run = :run AND approval = :approval AND state = 'unspent' AND EXISTS (
    SELECT 1 FROM c4a_effect AS h
    WHERE h.organization = :organization AND h.run = :run AND h.key = :key AND h.token_hash = :token_hash AND h.state = 'running'
        AND h.approval = :approval
)"""

_SEEN_COLUMNS: Final = (
    "h.state, h.attempt, h.epoch, h.token_hash, h.lease_until, h.holder, h.reason, h.error, h.note, h.actor, h.tool, h.last_at, h.done_at, "
    "h.args_digest, h.explicit_key, h.approval, r.payload, h.result_seq"
)

# One row always: the head if there is one, and what a claim must also know.
_SEE: Final = f"""
SELECT {{now}} AS read_at, {_SEEN_COLUMNS}
FROM (SELECT 1 AS one) AS always
LEFT JOIN c4a_effect AS h ON h.organization = :organization AND h.run = :run AND h.key = :key
LEFT JOIN c4a_entry AS r ON r.organization = h.organization AND r.run = h.run AND r.key = h.key AND r.seq = h.result_seq
    AND r.kind = 'effect.done'"""

_LOOK: Final = f"""
SELECT {{now}} AS read_at, {_SEEN_COLUMNS}
FROM c4a_effect AS h
LEFT JOIN c4a_entry AS r ON r.organization = h.organization AND r.run = h.run AND r.key = h.key AND r.seq = h.result_seq
    AND r.kind = 'effect.done'
WHERE h.organization = :organization AND h.run = :run AND h.key = :key"""

_SEE_FROZEN: Final = """
SELECT 'run', f.frozen_by, f.frozen_at, f.frozen_note FROM c4a_run AS f
WHERE f.organization = :organization AND f.run = :run AND f.frozen_at IS NOT NULL
UNION ALL
SELECT 'agent', f.frozen_by, f.frozen_at, f.frozen_note FROM c4a_subject AS f
WHERE f.organization = :organization AND f.key = :actor AND f.frozen_at IS NOT NULL"""

_SEE_GATE: Final = """
SELECT answer, reason, answered_by, answered_at FROM c4a_gate WHERE organization = :organization AND run = :run AND key = :call_digest"""

_APPROVAL_COLUMNS: Final = "approval, tool, explicit_key, approved_by, approved_at, expires_at, mac, key_id"

_SEE_UNSPENT: Final = f"""
SELECT {_APPROVAL_COLUMNS} FROM c4a_approval AS a
WHERE a.organization = :organization AND a.run = :run AND a.key = :call_digest AND a.state = 'unspent'
    AND (a.explicit_key IS NULL OR a.explicit_key = :explicit_key)
    AND {_YES_STANDS}
    AND {_NEVER_SPENT}
ORDER BY a.explicit_key IS NULL, a.id LIMIT {CANDIDATES}"""

_SEE_OWN: Final = f"""
SELECT {_APPROVAL_COLUMNS} FROM c4a_approval AS a
WHERE a.organization = :organization AND a.run = :run AND a.key = :call_digest
    AND a.approval = (SELECT h.approval FROM c4a_effect AS h WHERE h.organization = :organization AND h.run = :run AND h.key = :key)
    AND {_YES_STANDS}
    AND {_SPENT_BY_THIS}"""

_SEE_EXPIRED: Final = """
SELECT 1 FROM c4a_approval AS a
WHERE a.organization = :organization AND a.run = :run AND a.key = :call_digest AND a.expires_at <= {now}
    AND (a.state = 'unspent' OR a.spent_by = :key)
LIMIT 1"""

# Attempt n+1. The last entry must agree with the head, so a head set to not_done by hand starts nothing.
_AGAIN: Final = (
    """
UPDATE c4a_effect SET
    state = 'running', attempt = attempt + 1, reason = NULL, error = NULL, note = NULL, settled_by = NULL, actor = :actor,
    token_hash = :token_hash, holder = :holder, lease_until = {now} + :lease, asker_hash = NULL, asker_until = NULL,
    approval = COALESCE(CAST(:approval AS TEXT), approval), intent_seq = seq + 1,"""
    + advance(attempt="attempt + 1", approval="CAST(:spending AS TEXT)")
    + f"""
WHERE {_THIS} AND state = :was AND attempt = :attempt
    AND EXISTS (
        SELECT 1 FROM c4a_entry AS e
        WHERE e.organization = :organization AND e.run = :run AND e.key = :key AND e.seq = c4a_effect.seq
            AND e.digest = c4a_effect.last_digest AND e.kind = :was_kind
    )
    AND """
    + _NOT_FROZEN
)

# The yes this effect spent before covers its retry: the entry that spent it must be this effect's own.
_OWN_YES_STANDS: Final = f"""
    AND EXISTS (
        SELECT 1 FROM c4a_approval AS a
        WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval AND a.mac = :mac
            AND {_YES_STANDS}
            AND {_SPENT_BY_THIS}
    )"""

_IN_WINDOW: Final = f"""
    AND first_at > {{now}} - :window
    AND (asker_until IS NULL OR asker_until < {{now}})
    AND {BODY_ENDED}"""

_AGAIN_PLAIN: Final = _AGAIN
_AGAIN_OWN_YES: Final = _AGAIN + _OWN_YES_STANDS
_AGAIN_NEW_YES: Final = _AGAIN + "\n    AND " + _YES_UNSPENT
_RECLAIM_PLAIN: Final = _AGAIN + _IN_WINDOW
_RECLAIM_OWN_YES: Final = _AGAIN + _IN_WINDOW + _OWN_YES_STANDS
APPEND_AGAIN: Final = APPEND_INTENT.replace(":approval", ":spending")


@dataclass(frozen=True)
class _Seen:
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


@dataclass(frozen=True)
class _Yes:
    """One approval row, its signature already checked."""

    approval: str
    mac: str
    own: bool
    """True if this effect spent it before: a retry reuses it."""


def claim(executor: Executor, organization: str, call: Call, claimant: Claimant, keyring: Keyring) -> Grant | Recorded:
    """Give one attempt to this caller, or the recorded result. See `c4a.record.types.Record.claim`.

    One trip for a plain action; two for one that needs a yes (its signature is checked between them).
    """
    if executor.dialect.reads_are_cheap or (organization, call.key) in _keys_seen:
        # A repeat ends here, without the salt and the intent's text that only a new attempt needs.
        named = {
            "organization": organization,
            "run": call.run,
            "key": call.key,
            "tool": call.tool,
            "token_hash": hashlib.sha256(claimant.token.encode()).hexdigest(),
        }
        seen = _look(executor, named)
        if seen is not None and seen.state != "not_done":
            return _settled(executor, seen, call, named)
    params = claim_params(organization, call, claimant)
    for _ in range(MAX_ROUNDS):
        begun = _begin_gated(executor, call, params, keyring) if call.gated else _begin_plain(executor, call, params)
        _remember(_keys_seen, (organization, call.key))
        if begun is None:
            return Grant(run=call.run, key=call.key, attempt=1, epoch=0)
        seen = begun
        if seen.state == "not_done":
            seen = _begin_again(executor, seen, call, params, keyring)
        if seen.state is None:
            frozen = _frozen(executor, params)
            if frozen is not None:
                raise frozen
        if seen.state in (None, "not_done"):
            continue  # lost to another caller: its yes, or the attempt; look again
        return _settled(executor, seen, call, params)
    raise LedgerError(f"{call.tool} changed hands {MAX_ROUNDS} times while it was being claimed: try again")


def reclaim(
    executor: Executor,
    organization: str,
    call: Call,
    claimant: Claimant,
    keyring: Keyring,
    *,
    attempt: int,
    window_seconds: float,
    grace_seconds: float = DEFAULT_GRACE_SECONDS,
) -> Grant:
    """Start attempt n+1 under the same outside key. See `c4a.record.types.Record.reclaim`."""
    params = claim_params(organization, call, claimant, resend=True) | {
        "attempt": attempt,
        "was": "in_doubt",
        "was_kind": "effect.in_doubt",
        "spending": None,
        "window": int(window_seconds * 1_000_000),
        "grace": int(grace_seconds * 1_000_000),
    }
    seen = _seen(executor.read([Statement(_SEE, params)])[0])
    _refuse_conflict(executor, seen, call, params)
    text = _RECLAIM_PLAIN
    if call.gated:
        yes = _find_yes(executor, call, params, keyring, own_only=True)
        params = params | {"approval": yes.approval, "mac": yes.mac}
        text = _RECLAIM_OWN_YES
    results = executor.trip(
        [
            *_locks(executor, call, params),
            Statement(text, params),
            Statement(APPEND_AGAIN, params, after_change=True),
            Statement(_SEE, params),
        ]
    )
    seen = _seen(results[-1])
    if seen.state == "in_doubt" and seen.attempt == attempt:
        frozen = _frozen(executor, params)
        if frozen is not None:
            raise frozen
    answer = _settled(executor, seen, call, params)
    if isinstance(answer, Grant):
        return answer
    raise EffectInDoubt(f"{call.tool} was settled by another caller: call again", **_doubt_fields(seen, call), body_ended=True)


def claim_params(organization: str, call: Call, claimant: Claimant, *, resend: bool = False) -> dict[str, Any]:
    """Everything the claim's statements need, the intent's payload included."""
    token_hash = hashlib.sha256(claimant.token.encode()).hexdigest()
    payload: dict[str, Any] = {
        "args_digest": call.args_digest,
        "arguments": call.arguments,
        "call_digest": call.call_digest,
        "token_hash": token_hash,
        "tool": call.tool,
    }
    if call.arguments_codec != call.arguments:
        payload["codec"] = call.arguments_codec
    if call.explicit_key is not None:
        payload["explicit_key"] = call.explicit_key
    if call.parent is not None:
        payload["parent"] = call.parent
    if call.has_undo:
        payload["undo"] = True
    if resend:
        payload["resend"] = True
    return {
        **entry_params("effect.running", payload_text(payload), claimant.actor),
        "organization": organization,
        "run": call.run,
        "key": call.key,
        "tool": call.tool,
        "call_digest": call.call_digest,
        "args_digest": call.args_digest,
        "explicit_key": call.explicit_key,
        "parent": call.parent,
        "approval": None,
        "token_hash": token_hash,
        "holder": claimant.holder,
        "lease": int(claimant.lease_seconds * 1_000_000),
    }


def approval_fields(
    organization: str,
    run: str,
    tool: str,
    call_digest: str,
    explicit_key: str | None,
    approval: str,
    by: str,
    at: int,
    expires_at: int | None,
) -> list[str]:
    """What an approval's signature binds, in order."""
    key = "-" if explicit_key is None else "=" + explicit_key
    return [organization, run, tool, call_digest, key, approval, by, str(at), "-" if expires_at is None else str(expires_at)]


def _locks(executor: Executor, call: Call, params: dict[str, Any]) -> list[Statement]:
    if executor.dialect.writers_take_turns:
        return []
    locks = [Statement(LOCK_RUN_SHARED, run_lock(params["organization"], call.run))]
    if call.gated:
        locks.append(Statement(LOCK_ACTION, action_lock(params["organization"], call.run, call.call_digest)))
    return locks


def _begin_plain(executor: Executor, call: Call, params: dict[str, Any]) -> _Seen | None:
    """The head after the attempt to write it; None if this very claim wrote it and the database could tell at once."""
    results = executor.trip(
        [
            *_locks(executor, call, params),
            *_start_run(params),
            Statement(_FIRST_PLAIN, params),
            Statement(APPEND_INTENT, params, after_change=True),
            Statement(_SEE, params, after_none=True),
        ]
    )
    _remember(_runs_started, (params["organization"], params["run"]))
    return _seen(results[-1]) if results[-1].rows else None


REMEMBERED: Final = 10_000
_runs_started: dict[tuple[str, str], None] = {}
"""Runs whose row this process has written: it is the same statement every time, so it goes along once a run."""
_keys_seen: dict[tuple[str, str], None] = {}
"""Effects this process has claimed: asked for again they are likely done, so a read goes first. Only a guess; the record decides."""


def _remember(memory: dict[tuple[str, str], None], what: tuple[str, str]) -> None:
    if len(memory) >= REMEMBERED:
        memory.clear()
    memory[what] = None


def _start_run(params: dict[str, Any]) -> list[Statement]:
    run = (params["organization"], params["run"])
    return [] if run in _runs_started else [Statement(_START_RUN, params)]


def _begin_gated(executor: Executor, call: Call, params: dict[str, Any], keyring: Keyring) -> _Seen:
    see, unspent = executor.read([Statement(_SEE, params), Statement(_SEE_UNSPENT, params)])
    seen = _seen(see)
    if seen.state is not None:
        return seen
    yes = _signed(unspent.rows, call, params, keyring, own=False)
    if yes is None:
        raise _no_yes(executor, call, params)
    params.update(approval=yes.approval, mac=yes.mac)
    results = executor.trip(
        [
            *_locks(executor, call, params),
            *_start_run(params),
            Statement(_FIRST_GATED, params),
            Statement(_SPEND, params, after_change=True),
            Statement(APPEND_INTENT, params, after_change=True),
            Statement(_SEE, params),
        ]
    )
    return _seen(results[-1])


def _begin_again(executor: Executor, seen: _Seen, call: Call, params: dict[str, Any], keyring: Keyring) -> _Seen:
    _refuse_conflict(executor, seen, call, params)
    again = params | {"attempt": seen.attempt, "was": "not_done", "was_kind": "effect.not_done", "spending": None, "approval": None}
    spend: list[Statement] = []
    text = _AGAIN_PLAIN
    if call.gated:
        yes = _find_yes(executor, call, params, keyring, own_only=False)
        again |= {"approval": yes.approval, "mac": yes.mac}
        text = _AGAIN_OWN_YES if yes.own else _AGAIN_NEW_YES
        if not yes.own:
            again["spending"] = yes.approval
            spend = [Statement(_SPEND, again, after_change=True)]
    results = executor.trip(
        [
            *_locks(executor, call, params),
            Statement(text, again),
            *spend,
            Statement(APPEND_AGAIN, again, after_change=True),
            Statement(_SEE, again),
        ]
    )
    after = _seen(results[-1])
    if after.state == "not_done" and after.attempt == seen.attempt:
        frozen = _frozen(executor, params)
        if frozen:
            raise frozen
        refuse_damage(executor, params, call.tool)
    return after


def _settled(executor: Executor, seen: _Seen, call: Call, params: dict[str, Any]) -> Grant | Recorded:
    """What a head that exists means for this caller: a grant, the recorded result, or the error that says why not."""
    if seen.token_hash == params["token_hash"] and seen.state == "running":
        return Grant(run=call.run, key=call.key, attempt=seen.attempt, epoch=seen.epoch, approval=seen.approval)
    _refuse_conflict(executor, seen, call, params)
    if seen.state == "done":
        return _recorded(seen, call)
    if seen.state in ("undoing", "undone"):
        raise EffectUndone(
            f"{call.tool} was done and then reversed: use another c4a_key for a new one", run=call.run, key=call.key, tool=call.tool
        )
    if seen.state == "running" and seen.lease_until >= seen.read_at:
        raise EffectRunning(
            f"{call.tool} is being run by {seen.actor} since {_ago(seen)}: wait, then call again",
            **_doubt_fields(seen, call),
            body_ended=False,
            holder=seen.holder,
            lease_until=seen.lease_until,
            actor=seen.actor,
        )
    if seen.state == "running":
        if not mark_lapsed(executor, params["organization"], call.run, call.key, attempt=seen.attempt):
            refuse_damage(executor, params, call.tool)
        seen = _seen(executor.read([Statement(_SEE, params)])[0])
        return _settled(executor, seen, call, params)
    raise in_doubt_error(seen, call)


def in_doubt_error(seen: _Seen, call: Call) -> EffectInDoubt:
    """The error for an effect in doubt, saying what is known."""
    named = f": {seen.error}" if seen.error else ""
    return EffectInDoubt(
        f"{call.tool} may or may not have happened ({seen.reason}{named}); it will not be repeated blindly. "
        f"Check outside, then `c4a resolve` {call.key[:12]} done or not-done",
        **_doubt_fields(seen, call),
        body_ended=seen.reason in ("raised", "dead", "unknown"),
        lease_until=seen.lease_until,
        holder=seen.holder,
        actor=seen.actor,
    )


def _recorded(seen: _Seen, call: Call) -> Recorded:
    if seen.payload is None and seen.note != "erased":
        raise RecordDamaged(
            f"the head of {call.tool} says done, but no entry says so: run `c4a verify`, then `c4a rebuild`", run=call.run, key=call.key
        )
    payload = json.loads(seen.payload) if seen.payload else {}
    return Recorded(
        run=call.run, key=call.key, attempt=seen.attempt, result=payload.get("result"), done_at=seen.done_at or seen.last_at, note=seen.note
    )


def _find_yes(executor: Executor, call: Call, params: dict[str, Any], keyring: Keyring, *, own_only: bool) -> _Yes:
    """The yes this call may run under, or the error that says why there is none.

    The entries were asked by the query; here the signature is checked. One trip; a second one only to word a refusal.
    """
    own, unspent = executor.read([Statement(_SEE_OWN, params), Statement(_SEE_UNSPENT, params)])
    yes = _signed(own.rows, call, params, keyring, own=True)
    if yes is None and not own_only:
        yes = _signed(unspent.rows, call, params, keyring, own=False)
    if yes is None:
        raise _no_yes(executor, call, params)
    return yes


def _signed(rows: list[tuple[Any, ...]], call: Call, params: dict[str, Any], keyring: Keyring, *, own: bool) -> _Yes | None:
    """The first approval whose signature binds exactly this organization, run, tool and call."""
    for approval, tool, explicit_key, by, at, expires_at, mac, key_id in rows:
        fields = approval_fields(params["organization"], call.run, call.tool, call.call_digest, explicit_key, approval, by, at, expires_at)
        if tool == call.tool and keyring.verifies(mac, key_id, APPROVAL_DOMAIN, fields):
            return _Yes(approval=approval, mac=mac, own=own)
    return None


def _no_yes(executor: Executor, call: Call, params: dict[str, Any]) -> ApprovalRequired:
    gate, ran_out = executor.read([Statement(_SEE_GATE, params), Statement(_SEE_EXPIRED, params)])
    answer = gate.rows[0] if gate.rows else (None, None, None, None)
    expired = ran_out.count > 0
    fields: dict[str, Any] = {
        "run": call.run, "tool": call.tool, "arguments": call.arguments, "call_digest": call.call_digest, "key": call.key,
        "explicit_key": call.explicit_key,
    }  # fmt: skip
    shown = call.arguments if len(call.arguments) <= 2000 else call.arguments[:2000] + f"… ({len(call.arguments)} characters)"
    if answer[0] == "denied":
        because = f": {answer[1]}" if answer[1] else ""
        return ApprovalDenied(
            f"{call.tool} was denied by {answer[2]}{because}; not executed", **fields, reason=answer[1] or "", by=answer[2], at=answer[3]
        )
    if expired:
        return ApprovalExpired(f"the yes for {call.tool} {shown} ran out before it was used; not executed: ask again", **fields)
    return ApprovalRequired(f"{call.tool} needs approval for exactly {shown}", **fields)


def _refuse_conflict(executor: Executor, seen: _Seen, call: Call, params: dict[str, Any]) -> None:
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


_FIRST_INTENT: Final = f"SELECT payload FROM c4a_entry WHERE {_THIS} AND kind = 'effect.running' ORDER BY seq LIMIT 1"


def _frozen(executor: Executor, params: dict[str, Any]) -> C4AError | None:
    rows = executor.read([Statement(_SEE_FROZEN, params)])[0].rows
    if not rows:
        return None
    what, by, at, note = rows[0]
    named = params["run"] if what == "run" else params["actor"]
    because = f": {note}" if note else ""
    return AgentFrozen(
        f"the {what} {named} was stopped by {by}{because}; nothing ran", subject=f"{what}:{named}", by=by, at=at, note=note or ""
    )


def _doubt_fields(seen: _Seen, call: Call) -> dict[str, Any]:
    return {
        "run": call.run, "key": call.key, "tool": call.tool, "attempt": seen.attempt, "reason": seen.reason, "error": seen.error,
        "since": seen.last_at,
    }  # fmt: skip


def _ago(seen: _Seen) -> str:
    return f"{max(0.0, (seen.read_at - seen.last_at) / 1_000_000):.1f} s"


def _look(executor: Executor, params: dict[str, Any]) -> _Seen | None:
    """The head if there is one, by the shortest query: what a repeat costs where a read is cheap."""
    rows = executor.read([Statement(_LOOK, params)])[0].rows
    return _Seen(*rows[0]) if rows else None


def _seen(result: Result) -> _Seen:
    row = result.rows[0]
    if row[1] is None:
        return _Seen(row[0], None, 0, 0, "", 0, "", None, None, None, "", "", 0, None, "", None, None, None, None)
    return _Seen(*row)
