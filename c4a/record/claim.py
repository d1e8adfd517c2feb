"""Claim: the right to run one attempt of one effect.

A first claim is one INSERT under the unique index on (organization, run, key) and its intent entry. A gated one also spends
a yes, under the action lock. An attempt after the first moves a head that is `not_done`, or (reclaim) `in_doubt`.
"""

from __future__ import annotations

from typing import Any, Final

from c4a import keys
from c4a.errors import ApprovalRequired, EffectInDoubt, LedgerError
from c4a.record import memory
from c4a.record.dialects import LOCK_ACTION, LOCK_RUN_SHARED, Executor, Statement, action_lock, run_lock
from c4a.record.doubt import BODY_ENDED, refuse_damage
from c4a.record.entries import APPEND_INTENT, advance, entry_params, payload_text
from c4a.record.head import SEE, THIS, Seen, doubt_fields, frozen_error, granted, look, refuse_conflict, seen_from, settled
from c4a.record.keyring import Keyring
from c4a.record.types import DEFAULT_GRACE_SECONDS, Call, Claimant, Grant, Recorded
from c4a.record.yes import OWN_YES_STANDS, SPEND, UNSPENT, YES_UNSPENT, find_yes, no_yes, signed_yes

MAX_ROUNDS: Final = 50
"""How often a claim looks again after losing a race; each round somebody else got further."""

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

_FIRST_GATED: Final = _FIRST_HEAD + YES_UNSPENT + "\n    AND " + _NOT_FROZEN + "\nON CONFLICT (organization, run, key) DO NOTHING"

# Attempt n+1. The last entry must agree with the head, so a head set to not_done by hand starts nothing.
_AGAIN: Final = (
    """
UPDATE c4a_effect SET
    state = 'running', attempt = attempt + 1, reason = NULL, error = NULL, note = NULL, settled_by = NULL, actor = :actor,
    token_hash = :token_hash, holder = :holder, lease_until = {now} + :lease, asker_hash = NULL, asker_until = NULL,
    approval = COALESCE(CAST(:approval AS TEXT), approval), intent_seq = seq + 1,"""
    + advance(attempt="attempt + 1", approval="CAST(:spending AS TEXT)")
    + f"""
WHERE {THIS} AND state = :was AND attempt = :attempt
    AND EXISTS (
        SELECT 1 FROM c4a_entry AS e
        WHERE e.organization = :organization AND e.run = :run AND e.key = :key AND e.seq = c4a_effect.seq
            AND e.digest = c4a_effect.last_digest AND e.kind = :was_kind
    )
    AND """
    + _NOT_FROZEN
)

_IN_WINDOW: Final = f"""
    AND first_at > {{now}} - :window
    AND (asker_until IS NULL OR asker_until < {{now}})
    AND {BODY_ENDED}"""

_AGAIN_PLAIN: Final = _AGAIN
_AGAIN_OWN_YES: Final = _AGAIN + OWN_YES_STANDS
_AGAIN_NEW_YES: Final = _AGAIN + "\n    AND " + YES_UNSPENT
_RECLAIM_PLAIN: Final = _AGAIN + _IN_WINDOW
_RECLAIM_OWN_YES: Final = _AGAIN + _IN_WINDOW + OWN_YES_STANDS
APPEND_AGAIN: Final = APPEND_INTENT.replace(":approval", ":spending")


def claim(executor: Executor, organization: str, call: Call, claimant: Claimant, keyring: Keyring) -> Grant | Recorded:
    """Give one attempt to this caller, or the recorded result. See `c4a.record.types.Record.claim`.

    One trip for a plain action; two for one that needs a yes (its signature is checked between them).
    """
    if not call.gated and memory.is_repeat(organization, call.run, call.key, unknown=executor.dialect.reads_are_cheap):
        # A repeat ends here, without the salt and the intent's text that only a new attempt needs.
        named = {
            "organization": organization,
            "run": call.run,
            "key": call.key,
            "tool": call.tool,
            "token_hash": keys.token_hash(claimant.token),
        }
        seen = look(executor, named)
        if seen is not None and seen.state != "not_done":
            return settled(executor, seen, call, named)
    params = claim_params(organization, call, claimant)
    for _ in range(MAX_ROUNDS):
        begun = _begin_gated(executor, call, params, keyring) if call.gated else _begin_plain(executor, call, params)
        if isinstance(begun, Seen) and begun.state == "not_done":
            begun = _begin_again(executor, begun, call, params, keyring)
        if isinstance(begun, Grant):
            return begun
        seen = begun
        if seen.state is None:
            frozen = frozen_error(executor, params)
            if frozen is not None:
                raise frozen
        if seen.state in (None, "not_done"):
            continue  # lost to another caller: its yes, or the attempt; look again
        return settled(executor, seen, call, params)
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
    seen = seen_from(executor.read([Statement(SEE, params)])[0])
    refuse_conflict(executor, seen, call, params)
    text = _RECLAIM_PLAIN
    if call.gated:
        yes = find_yes(executor, call, params, keyring, own_only=True)
        params = params | {"approval": yes.approval, "mac": yes.mac}
        text = _RECLAIM_OWN_YES
    results = executor.trip(
        [
            *_locks(executor, call, params),
            Statement(text, params),
            Statement(APPEND_AGAIN, params, after_change=True),
            Statement(SEE, params),
        ]
    )
    seen = seen_from(results[-1])
    if results[-2].count:
        return granted(seen, call)
    if seen.state == "in_doubt" and seen.attempt == attempt:
        frozen = frozen_error(executor, params)
        if frozen is not None:
            raise frozen
    answer = settled(executor, seen, call, params)
    if isinstance(answer, Grant):
        return answer
    raise EffectInDoubt(f"{call.tool} was settled by another caller: call again", **doubt_fields(seen, call), body_ended=True)


def claim_params(organization: str, call: Call, claimant: Claimant, *, resend: bool = False) -> dict[str, Any]:
    """Everything the claim's statements need, the intent's payload included."""
    token_hash = keys.token_hash(claimant.token)
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


def _locks(executor: Executor, call: Call, params: dict[str, Any]) -> list[Statement]:
    if executor.dialect.writers_take_turns:
        return []
    locks = [Statement(LOCK_RUN_SHARED, run_lock(params["organization"], call.run))]
    if call.gated:
        locks.append(Statement(LOCK_ACTION, action_lock(params["organization"], call.run, call.call_digest)))
    return locks


def _begin_plain(executor: Executor, call: Call, params: dict[str, Any]) -> Seen | Grant:
    """The grant if this very claim wrote its intent, else the head after the attempt to write it.

    Reading the head along in the same trip would cost every new action a tenth of its time; who lost reads it in a second trip.
    """
    starting = _start_run(params)
    results = executor.trip(
        [
            *_locks(executor, call, params),
            Statement(_FIRST_PLAIN, params),
            Statement(APPEND_INTENT, params, after_change=True),
            *starting,
        ]
    )
    written = results[-1 - len(starting)].count > 0
    memory.remember(params["organization"], call.run, call.key, new=written or (bool(starting) and results[-1].count > 0))
    if written:
        return Grant(run=call.run, key=call.key, attempt=1, epoch=0)
    return seen_from(executor.read([Statement(SEE, params)])[0])


def _start_run(params: dict[str, Any]) -> list[Statement]:
    # Last, so that a run's first action tells from its count whether the run is new.
    return [] if memory.has_row(params["organization"], params["run"]) else [Statement(_START_RUN, params)]


def _begin_gated(executor: Executor, call: Call, params: dict[str, Any], keyring: Keyring) -> Seen | Grant:
    # The head last: whoever spends the yes between the two reads has written a head by then, and that is the answer.
    unspent, see = executor.read([Statement(UNSPENT, params), Statement(SEE, params)])
    seen = seen_from(see)
    if seen.state is not None:
        return seen
    yes = signed_yes(unspent.rows, call, params, keyring, own=False)
    if yes is None:
        raise no_yes(executor, call, params)
    params.update(approval=yes.approval, mac=yes.mac)
    starting = _start_run(params)
    results = executor.trip(
        [
            *_locks(executor, call, params),
            Statement(_FIRST_GATED, params),
            Statement(SPEND, params, after_change=True),
            Statement(APPEND_INTENT, params, after_change=True),
            *starting,
            Statement(SEE, params),
        ]
    )
    memory.remember(params["organization"], call.run, call.key, new=True)
    seen = seen_from(results[-1])
    return granted(seen, call) if results[-2 - len(starting)].count else seen


def _begin_again(executor: Executor, seen: Seen, call: Call, params: dict[str, Any], keyring: Keyring) -> Seen | Grant:
    refuse_conflict(executor, seen, call, params)
    again = params | {"attempt": seen.attempt, "was": "not_done", "was_kind": "effect.not_done", "spending": None, "approval": None}
    spend: list[Statement] = []
    text = _AGAIN_PLAIN
    if call.gated:
        try:
            yes = find_yes(executor, call, params, keyring, own_only=False)
        except ApprovalRequired:
            now = seen_from(executor.read([Statement(SEE, params)])[0])
            if (now.state, now.attempt) != (seen.state, seen.attempt):
                return now  # another caller spent the yes meanwhile
            raise
        again |= {"approval": yes.approval, "mac": yes.mac}
        text = _AGAIN_OWN_YES if yes.own else _AGAIN_NEW_YES
        if not yes.own:
            again["spending"] = yes.approval
            spend = [Statement(SPEND, again, after_change=True)]
    results = executor.trip(
        [
            *_locks(executor, call, params),
            Statement(text, again),
            *spend,
            Statement(APPEND_AGAIN, again, after_change=True),
            Statement(SEE, again),
        ]
    )
    after = seen_from(results[-1])
    if results[-2].count:
        return granted(after, call)
    if after.state == "not_done" and after.attempt == seen.attempt:
        frozen = frozen_error(executor, params)
        if frozen:
            raise frozen
        refuse_damage(executor, params, call.tool)
    return after
