"""The yes of a gated action: which approvals still stand, found by the entries, checked by signature, spent by one intent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from c4a.errors import ApprovalDenied, ApprovalExpired, ApprovalRequired, C4AError
from c4a.record.dialects import Executor, Statement
from c4a.record.fold import ticket_slot
from c4a.record.head import FROZEN, frozen_from
from c4a.record.keyring import Keyring
from c4a.record.types import Call

APPROVAL_DOMAIN: Final = "c4a/approval/v1"
CANDIDATES: Final = 8
"""How many unspent approvals of one call a claim looks at; one good one is enough."""

# A yes counts while its own entry stands in the gate's chain and nothing later in it takes it back. The row's state is only
# a hint: set back by hand it buys nothing, because of this and because the spending intent is unique on the entries.
# Subqueries that give a value, not EXISTS: those PostgreSQL turns into joins, and on tables never analysed it then walks
# every entry of the run; these it can only run by the index, row by row.
YES_STANDS: Final = """
    (a.expires_at IS NULL OR a.expires_at > {now})
    AND (
        SELECT y.approval FROM c4a_entry AS y
        WHERE y.organization = a.organization AND y.run = a.run AND y.key = a.key AND y.seq = a.gate_seq AND y.kind = 'gate.approved'
    ) = a.approval
    AND (
        SELECT MIN(n.seq) FROM c4a_entry AS n
        WHERE n.organization = a.organization AND n.run = a.run AND n.key = a.key AND n.seq > a.gate_seq
            AND (n.kind = 'gate.denied' OR (n.kind = 'gate.withdrawn' AND n.approval = a.approval))
    ) IS NULL"""

NEVER_SPENT: Final = """
    (
        SELECT MIN(s.key) FROM c4a_entry AS s
        WHERE s.organization = a.organization AND s.run = a.run AND s.approval = a.approval AND s.kind = 'effect.running'
            AND s.approval IS NOT NULL
    ) IS NULL"""

_SPENT_BY_THIS: Final = """
    (
        SELECT MIN(s.key) FROM c4a_entry AS s
        WHERE s.organization = a.organization AND s.run = a.run AND s.approval = a.approval AND s.kind = 'effect.running'
            AND s.approval IS NOT NULL
    ) = :key"""

YES_UNSPENT: Final = f"""
    EXISTS (
        SELECT 1 FROM c4a_approval AS a
        WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval AND a.key = :call_digest AND a.state = 'unspent'
            AND a.mac = :mac AND {YES_STANDS}
            AND {NEVER_SPENT}
    )"""

# Only after the head is this claim's own: whoever loses the effect to a call under another action lock (other arguments under
# one explicit key, or arguments that the key leaves out) must not lose its yes too. States are compared as texts put together,
# so that only the unique indexes can serve: the small partial ones are full of what was just open or unspent.
SPEND: Final = """
UPDATE c4a_approval SET state = 'spent', spent_by = :key
WHERE organization = :organization AND run = :run AND approval = :approval AND state || '' = 'unspent' AND (
    SELECT h.state || ' ' || h.approval || ' ' || h.token_hash FROM c4a_effect AS h
    WHERE h.organization = :organization AND h.run = :run AND h.key = :key
) = 'running ' || :approval || ' ' || :token_hash"""

_GATE: Final = """
SELECT answer, reason, answered_by, answered_at FROM c4a_gate WHERE organization = :organization AND run = :run AND key = :call_digest"""

_APPROVAL_COLUMNS: Final = "approval, tool, explicit_key, approved_by, approved_at, expires_at, mac, key_id"

UNSPENT: Final = f"""
SELECT {_APPROVAL_COLUMNS} FROM c4a_approval AS a
WHERE a.organization = :organization AND a.run = :run AND a.key = :call_digest AND a.state = 'unspent'
    AND (a.explicit_key IS NULL OR a.explicit_key = :explicit_key)
    AND {YES_STANDS}
    AND {NEVER_SPENT}
ORDER BY a.explicit_key IS NULL, a.id LIMIT {CANDIDATES}"""

_OWN: Final = f"""
SELECT {_APPROVAL_COLUMNS} FROM c4a_approval AS a
WHERE a.organization = :organization AND a.run = :run AND a.key = :call_digest
    AND a.approval = (SELECT h.approval FROM c4a_effect AS h WHERE h.organization = :organization AND h.run = :run AND h.key = :key)
    AND {YES_STANDS}
    AND {_SPENT_BY_THIS}"""

_EXPIRED: Final = """
SELECT 1 FROM c4a_approval AS a
WHERE a.organization = :organization AND a.run = :run AND a.key = :call_digest AND a.expires_at <= {now}
    AND (a.state = 'unspent' OR a.spent_by = :key)
LIMIT 1"""

_TICKET: Final = """
SELECT t.key, t.mac, t.state, CASE WHEN t.expires_at <= {now} THEN 1 ELSE 0 END FROM c4a_ticket AS t
WHERE t.organization = :organization AND t.run = :run AND t.slot = :slot ORDER BY t.number DESC LIMIT 1"""

# The yes this effect spent before covers its retry: the entry that spent it must be this effect's own.
OWN_YES_STANDS: Final = f"""
    AND EXISTS (
        SELECT 1 FROM c4a_approval AS a
        WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval AND a.mac = :mac
            AND {YES_STANDS}
            AND {_SPENT_BY_THIS}
    )"""


@dataclass(frozen=True)
class Yes:
    """One approval row, its signature already checked."""

    approval: str
    mac: str
    own: bool
    """True if this effect spent it before: a retry reuses it."""


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


def find_yes(executor: Executor, call: Call, params: dict[str, Any], keyring: Keyring, *, own_only: bool) -> Yes:
    """The yes this call may run under, or the error that says why there is none.

    The entries were asked by the query; here the signature is checked. One trip; a second one only to word a refusal.
    """
    own, unspent = executor.read([Statement(_OWN, params), Statement(UNSPENT, params)])
    yes = signed_yes(own.rows, call, params, keyring, own=True)
    if yes is None and not own_only:
        yes = signed_yes(unspent.rows, call, params, keyring, own=False)
    if yes is None:
        raise no_yes(executor, call, params)
    return yes


def signed_yes(rows: list[tuple[Any, ...]], call: Call, params: dict[str, Any], keyring: Keyring, *, own: bool) -> Yes | None:
    """The first approval whose signature binds exactly this organization, run, tool and call."""
    for approval, tool, explicit_key, by, at, expires_at, mac, key_id in rows:
        fields = approval_fields(params["organization"], call.run, call.tool, call.call_digest, explicit_key, approval, by, at, expires_at)
        if tool == call.tool and keyring.verifies(mac, key_id, APPROVAL_DOMAIN, fields):
            return Yes(approval=approval, mac=mac, own=own)
    return None


def no_yes(executor: Executor, call: Call, params: dict[str, Any]) -> C4AError:
    """The error that says why there is no yes: stopped, denied, expired or never given. One trip.

    Stopped comes first: nobody should be asked for a yes that could start nothing.
    """
    slot = params | {"slot": ticket_slot(call.call_digest, call.explicit_key)}
    stopped, gate, ran_out, asked = executor.read(
        [Statement(FROZEN, params), Statement(_GATE, params), Statement(_EXPIRED, params), Statement(_TICKET, slot)]
    )
    frozen = frozen_from(stopped, params)
    if frozen is not None:
        return frozen
    answer = gate.rows[0] if gate.rows else (None, None, None, None)
    expired = ran_out.count > 0
    fields: dict[str, Any] = {
        "run": call.run, "tool": call.tool, "arguments": call.arguments, "call_digest": call.call_digest, "key": call.key,
        "explicit_key": call.explicit_key,
    }  # fmt: skip
    ticket, silence = _ticket_of(asked.rows)
    if ticket is not None:
        fields["ticket"] = ticket
    shown = call.arguments if len(call.arguments) <= 2000 else call.arguments[:2000] + f"… ({len(call.arguments)} characters)"
    if answer[0] == "denied":
        because = f": {answer[1]}" if answer[1] else ""
        return ApprovalDenied(
            f"{call.tool} was denied by {answer[2]}{because}; not executed", **fields, reason=answer[1] or "", by=answer[2], at=answer[3]
        )
    if expired:
        return ApprovalExpired(f"the yes for {call.tool} {shown} ran out before it was used; not executed: ask again", **fields)
    if silence:
        return ApprovalExpired(f"nobody answered the ticket about {call.tool} {shown} in time; not executed: ask again", **fields)
    return ApprovalRequired(f"{call.tool} needs approval for exactly {shown}", **fields)


def _ticket_of(rows: list[tuple[Any, ...]]) -> tuple[str | None, bool]:
    """The text of the latest ticket about this action while it is open, and whether it ended in silence."""
    if not rows:
        return None, False
    key, mac, state, over = rows[0]
    silence = state == "expired" or (state == "open" and over)
    return (f"c4a1.{key}.{mac}" if state == "open" and not over else None), silence
