"""Doubt: how an attempt comes to be in doubt, and who may say what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from c4a.errors import EffectInDoubt, EffectRunning, EffectUnknown, RecordDamaged, RequestRefused, StaleVerdict
from c4a.keys import identifier, token_hash
from c4a.record.dialects import LOCK_RUN_SHARED, Executor, Statement, run_lock
from c4a.record.entries import ENTRIES_AGREE, MOVED_AT, entry_params, moved, payload_text, was_written
from c4a.record.reads import effect as read_effect
from c4a.record.types import DEFAULT_GRACE_SECONDS, Effect, Verdict

BODY_ENDED: Final = "(reason IN ('raised', 'dead', 'unknown') OR lease_until < {now} - :grace)"
"""SQL: the in-doubt attempt can't still be running. A cancelled or lapsed one is given `grace` after its lease."""

SWEEP_BATCH: Final = 200


def mark_lapsed(executor: Executor, organization: str, run: str, key: str, *, attempt: int) -> bool:
    """Put a running attempt whose lease ran out in doubt; False if it was settled or extended meanwhile."""
    params = _params(organization, run, key, "effect.in_doubt", {"reason": "lapsed"}, "c4a") | {"attempt": attempt}
    where = f"state = 'running' AND attempt = :attempt AND lease_until < {{now}} AND {ENTRIES_AGREE}"
    return executor.trip(moved("c4a_effect", "state = 'in_doubt', reason = 'lapsed'", where, params))[0].count > 0


def declare_dead(executor: Executor, organization: str, run: str, key: str, *, attempt: int, holder: str, actor: str) -> None:
    """In doubt at once: the caller proved that the process named by `holder` is gone. Harmless if that is no longer so."""
    params = _params(organization, run, key, "effect.in_doubt", {"reason": "dead", "holder": holder}, actor)
    params |= {"attempt": attempt, "holder": holder}
    open_states = "(state = 'running' OR (state = 'in_doubt' AND reason IN ('lapsed', 'cancelled')))"
    where = f"attempt = :attempt AND holder = :holder AND {open_states} AND {ENTRIES_AGREE}"
    executor.trip(moved("c4a_effect", "state = 'in_doubt', reason = 'dead'", where, params))


def doubt_if_twice(organization: str, run: str, key: str) -> list[Statement]:
    """Statements that put a not-done effect in doubt if an older attempt of it reported done: else a third attempt would begin."""
    params = _params(organization, run, key, "effect.in_doubt", {"reason": "unknown"}, "c4a")
    return moved(
        "c4a_effect", "state = 'in_doubt', reason = 'unknown', settled_by = NULL", "state = 'not_done' AND happened_twice = 1", params
    )


def sweep(executor: Executor, *, limit: int = SWEEP_BATCH) -> int:
    """Put every running effect whose lease ran out in doubt, in all organizations; returns how many. Safe twice at once."""
    found = executor.read([Statement(_LAPSED, {"limit": limit})])[0].rows
    return sum(_marked(executor, organization, run, key, attempt) for organization, run, key, attempt in found)


def _marked(executor: Executor, organization: str, run: str, key: str, attempt: int) -> bool:
    try:
        return mark_lapsed(executor, organization, run, key, attempt=attempt)
    except RecordDamaged:
        return False  # its next claim and `c4a verify` say so; the others, of other organizations too, must not wait for it


# The first condition is the partial index's own, to the letter: SQLite uses it for nothing else.
_LAPSED: Final = """
SELECT organization, run, key, attempt FROM c4a_effect
WHERE state IN ('running', 'in_doubt') AND state = 'running' AND lease_until < {now} ORDER BY lease_until LIMIT :limit"""


def ask(
    executor: Executor,
    organization: str,
    run: str,
    key: str,
    *,
    attempt: int,
    token: str,
    actor: str,
    after_seconds: float,
    lease_seconds: float,
    grace_seconds: float = DEFAULT_GRACE_SECONDS,
) -> None:
    """Take the sole right to ask the outside. See `c4a.record.types.Record.ask`."""
    del actor  # named in the answer's entry; asking itself changes nothing that must last
    params: dict[str, Any] = {
        "organization": organization,
        "run": run,
        "key": key,
        "attempt": attempt,
        "asker": token_hash(token),
        "lease": _micros(lease_seconds),
        "after": _micros(after_seconds),
        "grace": _micros(grace_seconds),
    }
    if executor.trip([Statement(_ASK, params)])[0].count:
        return
    found = read_effect(executor, organization, key, run)
    if found is None or found.state != "in_doubt" or found.attempt != attempt:
        raise _stale(key, attempt, found)
    refuse_damage(executor, params, found.tool)
    raise EffectInDoubt(
        f"{found.tool} may or may not have happened; somebody is asking outside, it is too early to ask, "
        "or it may still be running: try later",
        run=run, key=key, tool=found.tool, attempt=attempt, reason=found.reason, error=found.error, since=found.last_at, body_ended=False,
    )  # fmt: skip


_ASK: Final = f"""
UPDATE c4a_effect SET asker_hash = :asker, asker_until = {{now}} + :lease
WHERE organization = :organization AND run = :run AND key = :key AND state = 'in_doubt' AND attempt = :attempt
    AND (asker_until IS NULL OR asker_until < {{now}} OR asker_hash = :asker)
    AND last_at <= {{now}} - :after
    AND {BODY_ENDED}
    AND {ENTRIES_AGREE}"""


def answer(
    executor: Executor,
    organization: str,
    run: str,
    key: str,
    token: str,
    *,
    verdict: Verdict | Literal["unknown"],
    result: str | None = None,
    actor: str,
) -> None:
    """What the outside said. See `c4a.record.types.Record.answer`.

    Raises:
        StaleVerdict: somebody else took over the asking, or the effect was settled meanwhile.
    """
    if verdict == "done":
        kind, payload = "effect.done", {"by": "reconcile", "result": result}
        assignments = (
            "state = 'done', settled_by = 'reconcile', reason = NULL, error = NULL, note = NULL, "
            f"done_at = {MOVED_AT}, result_seq = seq + 1"
        )
    elif verdict == "not_done":
        kind, payload = "effect.not_done", {"by": "reconcile"}
        assignments = "state = 'not_done', settled_by = 'reconcile', reason = NULL, error = NULL"
    else:
        kind, payload = "effect.in_doubt", {"by": "reconcile", "reason": "unknown"}
        assignments = "reason = 'unknown'"
    params = _params(organization, run, key, kind, payload, actor) | {"asker": token_hash(token)}
    where = f"state = 'in_doubt' AND asker_hash = :asker AND {ENTRIES_AGREE}"
    results = executor.trip(
        [
            *moved("c4a_effect", assignments + ", asker_hash = NULL, asker_until = NULL", where, params),
            *(doubt_if_twice(organization, run, key) if verdict == "not_done" else []),
        ]
    )
    if not results[0].count and not was_written(executor, "c4a_effect", params):
        found = read_effect(executor, organization, key, run)
        raise _stale(key, found.attempt if found else 0, found)


def resolve(
    executor: Executor,
    organization: str,
    key: str,
    verdict: Verdict,
    *,
    attempt: int,
    note: str,
    actor: str,
    run: str | None = None,
    result: str | None = None,
    confirm_lapsed: bool = False,
    new_outside_key: bool = False,
    grace_seconds: float = DEFAULT_GRACE_SECONDS,
) -> Effect:
    """A person's verdict on an effect in doubt. See `c4a.record.types.Record.resolve`."""
    _refuse_blank(note=note, actor=actor)
    identifier(actor, "actor")
    if verdict not in ("done", "not_done"):
        raise RequestRefused(f"verdict must be 'done' or 'not_done', got {verdict!r}")
    found = read_effect(executor, organization, key, run)
    if found is None:
        raise EffectUnknown(f"no action with key {key} in this organization", key=key)
    payload: dict[str, Any] = {"by": "person", "note": note}
    if verdict == "done":
        payload["result"] = result
        kind = "effect.done"
        assignments = (
            f"state = 'done', settled_by = 'person', reason = NULL, error = NULL, done_at = {MOVED_AT}, result_seq = seq + 1, "
            + ("note = NULL" if result is not None else "note = 'resolved'")
        )
    else:
        payload |= {"new_outside_key": new_outside_key}
        kind = "effect.not_done"
        assignments = "state = 'not_done', settled_by = 'person', reason = NULL, error = NULL, epoch = epoch + :new_epoch"
    params = _params(organization, found.run, key, kind, payload, actor)
    params |= {
        "attempt": attempt,
        "new_epoch": int(new_outside_key),
        "grace": _micros(grace_seconds),
        **run_lock(organization, found.run),
    }
    where = f"state = 'in_doubt' AND attempt = :attempt AND {ENTRIES_AGREE}"
    if verdict == "not_done" and not confirm_lapsed:
        where += f" AND {BODY_ENDED}"
    results = executor.trip(
        [
            Statement(LOCK_RUN_SHARED, params),
            *moved("c4a_effect", assignments + ", asker_hash = NULL, asker_until = NULL", where, params),
        ]
    )
    after = read_effect(executor, organization, key, found.run)
    if after is not None and (results[1].count or was_written(executor, "c4a_effect", params)):
        return after
    refuse_damage(executor, params, found.tool)
    raise _unresolved(key, attempt, after)


_DAMAGE: Final = """
SELECT 1 FROM c4a_effect AS h WHERE h.organization = :organization AND h.run = :run AND h.key = :key AND ('effect.' || h.state <> (
    SELECT e.kind FROM c4a_entry AS e
    WHERE e.organization = h.organization AND e.run = h.run AND e.key = h.key AND e.kind <> 'effect.happened_twice'
    ORDER BY e.seq DESC LIMIT 1
) OR NOT EXISTS (
    SELECT 1 FROM c4a_entry AS e
    WHERE e.organization = h.organization AND e.run = h.run AND e.key = h.key AND e.seq = h.seq AND e.digest = h.last_digest
))"""


def refuse_damage(executor: Executor, params: Mapping[str, Any], tool: str) -> None:
    """Raise `RecordDamaged` if the head of an effect says something its entries don't. One trip."""
    if executor.read([Statement(_DAMAGE, params)])[0].count:
        raise RecordDamaged(
            f"the head of {tool} disagrees with its last entry; nothing ran: run `c4a verify`, then `c4a rebuild`",
            run=params["run"],
            key=params["key"],
        )


def _unresolved(key: str, attempt: int, found: Effect | None) -> Exception:
    if found is None:
        return EffectUnknown(f"no action with key {key} in this organization", key=key)
    if found.state == "running":
        return EffectRunning(
            f"{found.tool} is running, not in doubt: its own outcome will settle it. Wait for its lease to lapse",
            run=found.run, key=key, tool=found.tool, attempt=found.attempt, reason=None, error=None, since=found.last_at, body_ended=False,
            holder=found.holder, lease_until=found.lease_until, actor=found.actor,
        )  # fmt: skip
    if found.state == "in_doubt" and found.attempt == attempt:
        return RequestRefused(
            f"{found.tool} merely {found.reason}: it may still be running. "
            "Make sure that it is not, then judge it not done with the extra confirmation",
            key=key,
            needs="confirm_lapsed",
        )
    return _stale(key, attempt, found)


def _stale(key: str, attempt: int, found: Effect | None) -> StaleVerdict:
    state = found.state if found else "unknown"
    last = found.attempt if found else 0
    return StaleVerdict(
        f"the verdict is about attempt {attempt} in doubt, but the action is at attempt {last}, {state}: look again before you judge",
        key=key,
        attempt=last,
        state=state,
    )


def _refuse_blank(**texts: str) -> None:
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise RequestRefused(f"{name} must say something, got {text!r}", errors=[{"field": name, "problem": "blank"}])


def _params(organization: str, run: str, key: str, kind: str, payload: dict[str, Any], actor: str) -> dict[str, Any]:
    return entry_params(kind, payload_text(payload), actor) | {"organization": organization, "run": run, "key": key}


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
