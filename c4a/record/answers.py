"""Answers: a yes or a no for exactly one action, written under the action lock."""

from __future__ import annotations

import secrets
from typing import Any, Final

from c4a.errors import RequestRefused
from c4a.keys import identifier
from c4a.record.dialects import LOCK_ACTION, Executor, Statement, action_lock
from c4a.record.entries import ADVANCE_GATE, APPEND_GATE, MOVED_AT, entry_params, moved, not_yet_said, payload_text, plain_text
from c4a.record.keyring import Keyring
from c4a.record.yes import APPROVAL_DOMAIN, approval_fields

LONGEST_EXPIRY_SECONDS: Final = 3_153_600_000
"""A hundred years: what is longer means no expiry, and soon no longer fits a column."""

OPEN_GATE: Final = """
INSERT INTO c4a_gate (organization, run, key, tool, seq, last_at, prev_digest, last_digest, last_payload_digest)
VALUES (:organization, :run, :key, :tool, 0, 0, '', '', '')
ON CONFLICT (organization, run, key) DO NOTHING"""

KEEP_YES: Final = """
INSERT INTO c4a_approval (
    organization, run, approval, key, tool, explicit_key, state, approved_by, approved_at, expires_at, mac, key_id, gate_seq
)
SELECT organization, run, :approval, key, tool, CAST(:explicit_key AS TEXT), 'unspent', :by, CAST(:at AS BIGINT),
    CAST(:expires_at AS BIGINT), :mac, :key_id, seq
FROM c4a_gate
WHERE organization = :organization AND run = :run AND key = :key AND last_payload_digest = :payload_digest
ON CONFLICT (organization, run, approval) DO NOTHING"""

VOID_UNSPENT: Final = """
UPDATE c4a_approval SET state = 'cancelled'
WHERE organization = :organization AND run = :run AND key = :key AND state = 'unspent' AND (
    SELECT g.last_payload_digest FROM c4a_gate AS g WHERE g.organization = :organization AND g.run = :run AND g.key = :key
) = :payload_digest"""

# A repeat after a lost COMMIT must not come to stand after another answer: the row of the yes tells that it was given.
NOT_KEPT: Final = """(
    SELECT a.approval FROM c4a_approval AS a WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval
) IS NULL"""

RUNNING_UNDER: Final = """
SELECT key, last_at FROM c4a_effect
WHERE organization = :organization AND run = :run AND call_digest = :key AND approval IS NOT NULL AND state = 'running' LIMIT 1"""


def approve(
    executor: Executor,
    organization: str,
    keyring: Keyring,
    *,
    run: str,
    tool: str,
    arguments: str,
    call_digest: str,
    explicit_key: str | None,
    by: str,
    expires_in: float | None = None,
) -> str:
    """Record a yes for exactly one action; returns the approval's id (`yes_` and 96 random bits).

    Two trips: the signature binds the database's own time. `expires_in` is in seconds.

    Raises:
        RequestRefused: nobody is named, or the expiry isn't in the future.
        InvalidArguments: the name is one that not every database can hold.
    """
    refuse_nameless(by)
    refuse_expiry(expires_in)
    approval = "yes_" + secrets.token_hex(12)
    at = executor.clock()
    expires_at = None if expires_in is None else at + int(expires_in * 1_000_000)
    fields = approval_fields(organization, run, tool, call_digest, explicit_key, approval, by, at, expires_at)
    mac = keyring.sign(APPROVAL_DOMAIN, fields)
    payload = {
        "tool": tool, "arguments": arguments, "explicit_key": explicit_key, "by": by, "at": at, "expires_at": expires_at,
        "mac": mac, "key_id": keyring.current_id,
    }  # fmt: skip
    params = gate_params(organization, run, call_digest, tool, "gate.approved", payload, by) | {
        "approval": approval, "explicit_key": explicit_key, "by": by, "at": at, "expires_at": expires_at, "mac": mac,
        "key_id": keyring.current_id,
    }  # fmt: skip
    assignments = f"answer = 'approved', reason = NULL, answered_by = :by, answered_at = {MOVED_AT}"
    executor.trip(
        [
            Statement(LOCK_ACTION, params),
            Statement(OPEN_GATE, params),
            *moved("c4a_gate", assignments, NOT_KEPT, params, advance_by=ADVANCE_GATE, append_by=APPEND_GATE),
            Statement(KEEP_YES, params),
        ]
    )
    return approval


def deny(
    executor: Executor, organization: str, *, run: str, tool: str, arguments: str, call_digest: str, by: str, reason: str = ""
) -> None:
    """Record a no: it beats every unspent yes of this call, and while the action runs it forbids another attempt. Two trips.

    Raises:
        RequestRefused: nobody is named.
        InvalidArguments: the name is one that not every database can hold.
    """
    refuse_nameless(by)
    reason = plain_text(reason)
    where = {"organization": organization, "run": run, "key": call_digest}
    running = executor.read([Statement(RUNNING_UNDER, where)])[0].rows
    payload: dict[str, Any] = {"tool": tool, "arguments": arguments, "by": by, "reason": reason}
    if running:
        payload["too_late_running_since"] = running[0][1]
    params = gate_params(organization, run, call_digest, tool, "gate.denied", payload, by) | {"approval": None, "by": by, "reason": reason}
    assignments = f"answer = 'denied', reason = :reason, answered_by = :by, answered_at = {MOVED_AT}"
    executor.trip(
        [
            Statement(LOCK_ACTION, params),
            Statement(OPEN_GATE, params),
            *moved("c4a_gate", assignments, not_yet_said("c4a_gate"), params, advance_by=ADVANCE_GATE, append_by=APPEND_GATE),
            Statement(VOID_UNSPENT, params),
        ]
    )


def refuse_expiry(expires_in: float | None) -> None:
    """Raise `RequestRefused` unless a yes that runs out after so many seconds runs out at some moment from now on."""
    if expires_in is not None and (isinstance(expires_in, bool) or not 0 < expires_in <= LONGEST_EXPIRY_SECONDS):
        raise RequestRefused(f"expires_in must be more than 0 seconds and at most {LONGEST_EXPIRY_SECONDS}, got {expires_in!r}")


def refuse_nameless(by: str) -> None:
    """Raise `RequestRefused` if nobody is named."""
    if not by.strip():
        raise RequestRefused("an answer needs a name: say who decided with by=…", errors=[{"field": "by", "problem": "blank"}])
    identifier(by, "by")


def gate_params(organization: str, run: str, call_digest: str, tool: str, kind: str, payload: dict[str, Any], actor: str) -> dict[str, Any]:
    """The parameters of every statement that moves a gate."""
    return entry_params(kind, payload_text(payload), actor) | {
        "organization": organization,
        "run": run,
        "key": call_digest,
        "tool": tool,
        **action_lock(organization, run, call_digest),
    }
