"""Fold: what a head must say, worked out from the entries of its chain alone. Pure; the other half of every verb's UPDATE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from c4a.keys import payload_digest
from c4a.record.entries import entry_digest

LEASE_COLUMNS: Final = frozenset({"id", "holder", "lease_until", "waited", "asker_hash", "asker_until"})
"""What only a live claim knows: not folded, not compared."""


@dataclass(frozen=True)
class Link:
    """One entry as stored, salt included."""

    organization: str
    run: str
    key: str
    seq: int
    kind: str
    attempt: int
    approval: str | None
    payload: str | None
    salt: str | None
    payload_digest: str
    actor: str
    recorded_at: int
    prev: str
    digest: str

    def said(self) -> dict[str, Any]:
        """The payload, empty once erased."""
        return dict(json.loads(self.payload)) if self.payload else {}


def chain_problems(chain: Sequence[Link]) -> list[tuple[int, str]]:
    """(seq, problem) for each place where a chain is not what was written: gaps, edits, forks, time running backwards."""
    found: list[tuple[int, str]] = []
    prev, at = "", 0
    for place, link in enumerate(chain, start=1):
        if link.seq != place:
            found.append((link.seq, f"expected entry {place} of the chain, got {link.seq}: an entry is missing or was moved"))
        if link.prev != prev:
            found.append((link.seq, "does not follow the entry before it: an entry was removed, added or moved"))
        if link.recorded_at < at:
            found.append((link.seq, "is older than the entry before it"))
        if link.digest != _digest(link):
            found.append((link.seq, "was changed: its digest is not that of its fields"))
        if link.payload is not None and link.payload_digest != payload_digest(link.salt or "", link.payload):
            found.append((link.seq, "has another payload than the one that was written"))
        prev, at = link.digest, link.recorded_at
    return found


_TABLES: Final = {"effect": "c4a_effect", "gate": "c4a_gate", "ticket": "c4a_ticket", "run": "c4a_run"}


def table_of(chain: Sequence[Link]) -> str:
    """The head table that a chain belongs to."""
    return _TABLES.get(chain[0].kind.partition(".")[0], "c4a_subject")


def fold(chain: Sequence[Link]) -> tuple[str, dict[str, Any]]:
    """The table and the columns of the head that a chain folds to."""
    table = table_of(chain)
    if table == "c4a_effect":
        return table, _fold_effect(chain)
    if table == "c4a_gate":
        return table, _fold_gate(chain)
    if table == "c4a_ticket":
        return table, _fold_ticket(chain)
    if table == "c4a_run":
        return table, _fold_frozen(chain) | {"started_by": chain[0].actor, "started_at": chain[0].recorded_at}
    return table, _fold_frozen(chain)


def fold_approvals(chain: Sequence[Link], spent: dict[str, str]) -> list[dict[str, Any]]:
    """The approval rows of a gate's chain; `spent` maps an approval to the effect key whose intent spent it."""
    rows: dict[str, dict[str, Any]] = {}
    for link in chain:
        said = link.said()
        if link.kind == "gate.approved" and link.approval:
            rows[link.approval] = {
                "organization": link.organization, "run": link.run, "approval": link.approval, "key": link.key,
                "tool": said.get("tool", ""), "explicit_key": said.get("explicit_key"), "state": "unspent",
                "approved_by": said.get("by", ""), "approved_at": said.get("at", 0),
                "expires_at": said.get("expires_at"), "mac": said.get("mac", ""), "key_id": said.get("key_id", ""), "gate_seq": link.seq,
                "spent_by": spent.get(link.approval),
            }  # fmt: skip
        elif link.kind == "gate.withdrawn" and link.approval in rows and rows[link.approval]["spent_by"] is None:
            rows[link.approval]["state"] = "withdrawn"
        elif link.kind == "gate.denied":
            for row in rows.values():
                # Which came first, the spending intent or the no, is told by the head's table; a yes with a spender was spent.
                if row["state"] == "unspent" and row["spent_by"] is None:
                    row["state"] = "cancelled"
    for row in rows.values():
        if row["spent_by"] is not None:
            row["state"] = "spent"
    return list(rows.values())


def _fold_effect(chain: Sequence[Link]) -> dict[str, Any]:
    first = chain[0]
    intent = first.said()
    head: dict[str, Any] = {
        "tool": intent.get("tool", ""), "epoch": 0,
        "call_digest": intent.get("call_digest", ""), "args_digest": intent.get("args_digest", ""),
        "explicit_key": intent.get("explicit_key"), "parent": intent.get("parent"), "approval": None, "reason": None, "error": None,
        "note": None, "settled_by": None, "first_at": first.recorded_at, "done_at": None, "happened_twice": 0, "result_seq": None,
        "token_hash": "",
    }  # fmt: skip
    for link in chain:
        said = link.said()
        if link.kind == "effect.happened_twice":
            head["happened_twice"] = 1
            continue
        head["state"] = link.kind.removeprefix("effect.")
        _STEPS[link.kind](head, link, said)
    return head | _place(chain)


def _running(head: dict[str, Any], link: Link, said: dict[str, Any]) -> None:
    head.update(reason=None, error=None, note=None, settled_by=None, attempt=link.attempt, actor=link.actor, intent_seq=link.seq)
    head["token_hash"] = said.get("token_hash", "")
    head["approval"] = link.approval or head["approval"]


def _done(head: dict[str, Any], link: Link, said: dict[str, Any]) -> None:
    note = said.get("note")
    if said.get("by") == "person":
        note = "resolved" if said.get("result") is None else None
    head.update(reason=None, error=None, note=note, settled_by=said.get("by"), done_at=link.recorded_at, result_seq=link.seq)


def _in_doubt(head: dict[str, Any], link: Link, said: dict[str, Any]) -> None:
    head.update(reason=said.get("reason"), settled_by=None)
    if said.get("by") == "agent":
        head["error"] = said.get("error")


def _not_done(head: dict[str, Any], link: Link, said: dict[str, Any]) -> None:
    by = said.get("by")
    head.update(reason=None, error=said.get("error"), settled_by="agent" if by == "release" else by)
    head["epoch"] += int(bool(said.get("new_outside_key")))


_STEPS: Final = {"effect.running": _running, "effect.done": _done, "effect.in_doubt": _in_doubt, "effect.not_done": _not_done}


def _fold_gate(chain: Sequence[Link]) -> dict[str, Any]:
    head: dict[str, Any] = {
        "tool": chain[0].said().get("tool", ""),
        "answer": None,
        "reason": None,
        "answered_by": None,
        "answered_at": None,
    }
    for link in chain:
        said = link.said()
        if link.kind in ("gate.approved", "gate.denied"):
            denied = link.kind == "gate.denied"
            head.update(
                answer="denied" if denied else "approved",
                reason=said.get("reason") if denied else None,
                answered_by=said.get("by"),
                answered_at=link.recorded_at,
            )
    return head | _place(chain)


def _fold_ticket(chain: Sequence[Link]) -> dict[str, Any]:
    first = chain[0]
    asked = first.said()
    digest, explicit_key = asked.get("call_digest", ""), asked.get("explicit_key")
    head: dict[str, Any] = {
        "slot": ticket_slot(digest, explicit_key), "number": first.attempt, "tool": asked.get("tool", ""), "call_digest": digest,
        "explicit_key": explicit_key, "state": "open", "asked_by": first.actor, "asked_at": first.recorded_at,
        "expires_at": asked.get("expires_at", 0), "why": asked.get("why", ""), "mac": asked.get("mac", ""),
        "key_id": asked.get("key_id", ""), "decided_by": None, "decided_at": None, "reason": None, "approval": None,
    }  # fmt: skip
    for link in chain[1:]:
        head.update(state=link.kind.removeprefix("ticket."), approval=link.approval)
        if link.kind != "ticket.expired":  # nobody answered, so nobody is named
            head.update(decided_by=link.actor, decided_at=link.recorded_at, reason=link.said().get("reason", ""))
    return head | _place(chain)


def ticket_slot(call_digest: str, explicit_key: str | None) -> str:
    """What one ticket at a time may ask about: the call, under its explicit key if it has one."""
    return call_digest if explicit_key is None else f"{call_digest}={explicit_key}"


def _fold_frozen(chain: Sequence[Link]) -> dict[str, Any]:
    head: dict[str, Any] = {"frozen_at": None, "frozen_by": None, "frozen_note": None}
    for link in chain:
        if link.kind.endswith(".frozen"):
            head.update(frozen_at=link.recorded_at, frozen_by=link.actor, frozen_note=link.said().get("note"))
        elif link.kind.endswith(".thawed"):
            head.update(frozen_at=None, frozen_by=None, frozen_note=None)
    return head | _place(chain)


def _place(chain: Sequence[Link]) -> dict[str, Any]:
    last = chain[-1]
    return {
        "organization": last.organization, "run": last.run, "key": last.key, "seq": last.seq, "last_at": last.recorded_at,
        "prev_digest": last.prev, "last_digest": last.digest, "last_payload_digest": last.payload_digest,
    }  # fmt: skip


def _digest(link: Link) -> str:
    return entry_digest(
        link.organization, link.run, link.key, link.seq, link.kind, link.attempt, link.approval, link.payload_digest, link.actor,
        link.recorded_at, link.prev,
    )  # fmt: skip
