"""Entries and their chains: how a row of the record is made, linked and recomputed.

An entry's digest is SHA-256 over `c4a/entry/v1`, a newline, and every field as `<length in bytes>:<text>`. The payload takes part
through its salted digest, so erasing payload and salt leaves the chain whole. The row id takes no part: it is where
a row lies, not what it says, and an archived copy has another.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from c4a.keys import payload_digest
from c4a.record.dialects import Executor, Statement

ENTRY_KINDS: Final = {
    "effect.running": "an attempt began (the intent)",
    "effect.done": "the action happened; the payload holds the result",
    "effect.in_doubt": "an attempt began and nobody knows whether it happened",
    "effect.not_done": "the attempt is proved or judged not to have happened",
    "effect.happened_twice": "an older attempt reported done after a newer one began",
    "gate.approved": "a yes for exactly one action",
    "gate.denied": "a no: every unspent yes of the call is void",
    "gate.withdrawn": "a yes that was not spent was taken back",
    "ticket.opened": "an agent asked people about exactly one action",
    "ticket.approved": "a person said yes; the entry names the approval it made",
    "ticket.denied": "a person said no",
    "ticket.expired": "nobody answered in time",
    "ticket.cancelled": "the question was taken back",
    "ticket.superseded": "another question took its place",
    "run.frozen": "a person stopped the run",
    "run.thawed": "a person let the run go on",
    "subject.frozen": "a person stopped the agent",
    "subject.thawed": "a person let the agent go on",
    "subject.noted": "a change to who may do what",
    "entry.erased": "the payload of the entry whose digest is the key was erased",
}
"""Every kind of entry and what it means. An `effect.*` kind is the state the effect is in after it."""

MOVED_AT: Final = "CASE WHEN last_at > {now} THEN last_at ELSE {now} END"
"""SQL: the time of the entry a head moves to: the database's clock, never behind the entry before."""

_ADVANCE: Final = """
    seq = seq + 1,
    prev_digest = last_digest,
    last_payload_digest = :payload_digest,
    last_at = CASE WHEN last_at > {{now}} THEN last_at ELSE {{now}} END,
    last_digest = c4a_entry_digest(
        organization, run, key, seq + 1, :kind, {attempt}, {approval}, :payload_digest, {actor},
        CASE WHEN last_at > {{now}} THEN last_at ELSE {{now}} END, last_digest
    )"""

_APPEND: Final = """
INSERT INTO c4a_entry (
    organization, run, key, seq, kind, attempt, approval, payload, salt, payload_digest, actor, recorded_at, prev, digest
)
SELECT organization, run, key, seq, :kind, {attempt}, {approval}, :payload, :salt, :payload_digest, {actor},
    last_at, prev_digest, last_digest
FROM {head}
WHERE organization = :organization AND run = :run AND key = :key AND last_payload_digest = :payload_digest
    AND COALESCE((
        SELECT e.digest FROM c4a_entry AS e
        WHERE e.organization = :organization AND e.run = :run AND e.key = :key AND e.seq = {head}.seq
    ), '') <> {head}.last_digest
"""


ENTRIES_AGREE: Final = """(
    SELECT e.kind FROM c4a_entry AS e
    WHERE e.organization = :organization AND e.run = :run AND e.key = :key AND e.kind <> 'effect.happened_twice'
    ORDER BY e.seq DESC LIMIT 1
) = 'effect.' || c4a_effect.state"""
"""SQL: the last entry says what the head says. A head set back by hand must not let anybody judge or end what is settled."""


REPEATED_WITHIN: Final = 16
"""How many entries of one gate, run or subject may come between a write whose COMMIT was lost and its repeat, a second later."""


def not_yet_said(head: str) -> str:
    """SQL: this very payload is none of the chain's last entries.

    A write with no token to guard it may be repeated after a lost COMMIT, when somebody else has answered already: the
    repeat must not come to stand after that answer.
    """
    return (
        "(SELECT MIN(e.seq) FROM c4a_entry AS e WHERE e.organization = :organization AND e.run = :run AND e.key = :key "
        f"AND e.seq > {head}.seq - {REPEATED_WITHIN} AND e.payload_digest = :payload_digest) IS NULL"
    )


def advance(*, attempt: str = "attempt", approval: str = "CAST(NULL AS TEXT)", actor: str = ":actor") -> str:
    """The SET clause that moves a head to its next entry; the arguments are SQL expressions over the old row."""
    return _ADVANCE.format(attempt=attempt, approval=approval, actor=actor)


def append(head: str, *, attempt: str = "attempt", approval: str = "CAST(NULL AS TEXT)", actor: str = ":actor") -> str:
    """The INSERT that copies the entry a head was just moved to.

    It fires only for the head this very payload moved (the salted payload digest is unique), and not again when a lost
    answer makes the statements run twice. If another entry stands at this place the unique chain index refuses.
    """
    return _APPEND.format(head=head, attempt=attempt, approval=approval, actor=actor)


APPEND_EFFECT: Final = append("c4a_effect")
APPEND_INTENT: Final = append("c4a_effect", approval="CAST(:approval AS TEXT)")
APPEND_SETTLED: Final = append("c4a_effect", actor="actor")
APPEND_GATE: Final = append("c4a_gate", attempt="0", approval="CAST(:approval AS TEXT)")
APPEND_TICKET: Final = append("c4a_ticket", attempt="number", approval="CAST(:approval AS TEXT)")
APPEND_RUN: Final = append("c4a_run", attempt="0")
APPEND_SUBJECT: Final = append("c4a_subject", attempt="0")
ADVANCE_EFFECT: Final = advance()
ADVANCE_SETTLED: Final = advance(actor="actor")
ADVANCE_GATE: Final = advance(attempt="0", approval="CAST(:approval AS TEXT)")
ADVANCE_TICKET: Final = advance(attempt="number", approval="CAST(:approval AS TEXT)")
ADVANCE_BARE: Final = advance(attempt="0")


def payload_text(payload: Mapping[str, Any]) -> str:
    """ASCII JSON of a flat object, so that no character a database refuses (NUL, lone surrogate) ever stands in a column."""
    # Nearly all payloads are names and texts; the general encoder takes three times as long.
    parts = [f'"{name}":{_quoted(value)}' if value.__class__ is str else f'"{name}":{_encode(value)}' for name, value in payload.items()]
    return "{" + ",".join(parts) + "}"


def plain_text(text: str) -> str:
    """Free text as a column of either database can hold it: NUL and lone surrogates become visible escapes.

    PostgreSQL would cut the text at the NUL, and the head would no longer say what its entry says.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


_quoted: Final = json.encoder.encode_basestring_ascii
_encode: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False).encode


def entry_params(kind: str, payload: str, actor: str) -> dict[str, Any]:
    """The parameters every chained write needs: a fresh salt of 128 bits and the salted digest of the payload text."""
    salt = secrets.token_hex(16)
    return {
        "kind": kind,
        "payload": payload,
        "salt": salt,
        "payload_digest": payload_digest(salt, payload),
        "actor": actor,
    }


def entry_digest(
    organization: str,
    run: str,
    key: str,
    seq: int,
    kind: str,
    attempt: int,
    approval: str | None,
    payload_digest: str,
    actor: str,
    recorded_at: int,
    prev: str,
) -> str:
    """The digest of one entry, 64 hex characters; `c4a_entry_digest` in PostgreSQL computes the same."""
    parts = (organization, run, key, str(seq), kind, str(attempt), approval or "", payload_digest, actor, str(recorded_at), prev)
    if "".join(parts).isascii():  # as nearly all are: then characters are bytes
        text = "c4a/entry/v1\n" + "".join([f"{len(part)}:{part}" for part in parts])
        return hashlib.sha256(text.encode("ascii")).hexdigest()
    digest = hashlib.sha256(b"c4a/entry/v1\n")
    for part in parts:
        raw = part.encode("utf-8")
        digest.update(b"%d:%s" % (len(raw), raw))
    return digest.hexdigest()


@dataclass(frozen=True)
class Chain:
    """Names one chain: organization, run ('' for subjects) and key."""

    organization: str
    run: str
    key: str

    def params(self) -> dict[str, Any]:
        """As statement parameters."""
        return {"organization": self.organization, "run": self.run, "key": self.key}


def was_written(executor: Executor, head: str, params: Mapping[str, Any]) -> bool:
    """True if this very payload is the head's last entry: a guarded write that changed nothing when repeated after a lost answer."""
    text = (
        f"SELECT 1 FROM {head} WHERE organization = :organization AND run = :run AND key = :key AND last_payload_digest = :payload_digest"
    )
    return executor.read([Statement(text, params)])[0].count > 0


def moved(
    head: str, assignments: str, where: str, params: Mapping[str, Any], *, advance_by: str = ADVANCE_EFFECT, append_by: str = APPEND_EFFECT
) -> list[Statement]:
    """Two statements: move the head under a guard, then append the entry if, and only if, it moved."""
    return [Statement(_update(head, assignments, where, advance_by), params), Statement(append_by, params, after_change=True)]


@lru_cache(maxsize=256)
def _update(head: str, assignments: str, where: str, advance_by: str) -> str:
    """One text object for one statement, so that its hash and its rendering are found again."""
    return (
        f"UPDATE {head} SET {assignments}{',' if assignments else ''}{advance_by}\n"
        f"WHERE organization = :organization AND run = :run AND key = :key AND {where}"
    )
