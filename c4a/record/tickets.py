"""Tickets: an agent's question to people about exactly one action, and its answer.

A ticket is a head with a chain of its own. Its text `c4a1.<id>.<mac>` is all that leaves the record; the signature binds the
id to organization, run, tool, call, explicit key and expiry, so that no row made, moved or edited by hand can be answered.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any, Final

from c4a.errors import LedgerError, RequestRefused
from c4a.keys import identifier
from c4a.record import memory
from c4a.record.answers import KEEP_YES, NOT_KEPT, OPEN_GATE, RUNNING_UNDER, VOID_UNSPENT, gate_params, refuse_expiry, refuse_nameless
from c4a.record.dialects import LOCK_ACTION, LOCK_RUN_SHARED, Executor, Statement, action_lock, run_lock
from c4a.record.entries import (
    ADVANCE_GATE,
    ADVANCE_TICKET,
    APPEND_GATE,
    APPEND_TICKET,
    MOVED_AT,
    entry_params,
    moved,
    not_yet_said,
    payload_text,
    plain_text,
)
from c4a.record.fold import ticket_slot
from c4a.record.freeze import NOT_FROZEN, OPEN_RUN
from c4a.record.head import frozen_error
from c4a.record.keyring import Keyring
from c4a.record.ticket_end import AS_SIGNED, CLOSED_BY, STILL_OPEN, close, closing_params, expire, lapsing, refuse_open
from c4a.record.ticket_row import (
    COLUMNS,
    SEE,
    SEE_PAGE,
    SEE_PAGE_OF_RUN,
    TICKET_DOMAIN,
    TicketRow,
    changed,
    closed_error,
    damaged,
    is_signed,
    known,
    look,
    parts_of,
    read_row,
    refuse_changed,
    remember,
    row_from,
    shown,
    signed_fields,
)
from c4a.record.types import DEFAULT_TICKET_SECONDS, Answer, Call, Decision, Ticket
from c4a.record.withdrawal import void_all, withdraw
from c4a.record.yes import APPROVAL_DOMAIN, NEVER_SPENT, YES_STANDS, approval_fields

__all__ = [
    "IS_OPEN",
    "WAITING",
    "cancel",
    "decide",
    "expire",
    "pause",
    "ticket",
    "ticket_by_id",
    "tickets",
    "tickets_page",
    "void_all",
    "withdraw",
]
"""Every verb of tickets by one name, wherever it lives."""

MAX_TTL_SECONDS: Final = 366 * 86_400.0

ROUNDS: Final = 3
"""How often a pause asks anew because what it found can't be answered; once is enough unless secrets change meanwhile."""
_STATES: Final = {"approve": "approved", "deny": "denied"}
_LATEST: Final = "t.organization = :organization AND t.run = :run AND t.slot = :slot ORDER BY t.number DESC LIMIT 1"

# What a repeated question gets to see again: the open ticket, and unless asked again the last answer while it counts. A yes
# counts while it stands or once it is spent.
_COUNTS: Final = f"""
    t.state = 'open' OR (:again = 0 AND (t.state = 'denied' OR (t.state = 'approved' AND (
        SELECT COUNT(*) FROM c4a_approval AS a
        WHERE a.organization = t.organization AND a.run = t.run AND a.approval = t.approval
            AND (({YES_STANDS}) OR NOT ({NEVER_SPENT}))
    ) > 0)))"""

# The subquery gives a value for the reason that c4a.record.yes names.
_OPEN: Final = f"""
INSERT INTO c4a_ticket (
    organization, run, key, slot, number, tool, call_digest, explicit_key, state, asked_by, asked_at, expires_at, why, mac, key_id, waited,
    seq, last_at, prev_digest, last_digest, last_payload_digest
)
SELECT :organization, :run, :key, :slot, n.number, :tool, :call_digest, CAST(:explicit_key AS TEXT), 'open', :actor, {{now}},
    CAST(:expires_at AS BIGINT), :why, :mac, :key_id, 0, 1, {{now}}, '',
    c4a_entry_digest(:organization, :run, :key, 1, :kind, n.number, CAST(NULL AS TEXT), :payload_digest, :actor, {{now}}, ''),
    :payload_digest
FROM (
    SELECT COALESCE(MAX(t.number), 0) + 1 AS number FROM c4a_ticket AS t
    WHERE t.organization = :organization AND t.run = :run AND t.slot = :slot
) AS n
WHERE COALESCE((
    SELECT CASE WHEN {_COUNTS} THEN 1 ELSE 0 END FROM c4a_ticket AS t
    WHERE {_LATEST}
), 0) = 0
    AND {NOT_FROZEN}
ON CONFLICT DO NOTHING"""
_APPEND_OPENED: Final = APPEND_TICKET.replace(":approval", "NULL")

_SEE_LATEST: Final = f"""
SELECT {COLUMNS},
    (SELECT f.frozen_at FROM c4a_run AS f WHERE f.organization = :organization AND f.run = :run),
    (SELECT f.frozen_at FROM c4a_subject AS f WHERE f.organization = :organization AND f.key = :actor)
FROM c4a_ticket AS t WHERE {_LATEST}"""

# What a decision does to the gate happens only if this very decision closed the ticket.
_DECIDED: Final = """(
    SELECT t.last_payload_digest FROM c4a_ticket AS t WHERE t.organization = :organization AND t.key = :ticket AND t.run = :run
) = :ticket_payload_digest"""
_OPEN_GATE_IF_DECIDED: Final = OPEN_GATE.replace("VALUES (:organization, :run, :key, :tool, 0, 0, '', '', '')", (
    f"SELECT :organization, :run, :key, :tool, 0, 0, '', '', ''\nWHERE {_DECIDED}"
))  # fmt: skip

IS_OPEN: Final = (
    "SELECT 1 FROM c4a_ticket WHERE organization = :organization AND key = :key AND state || '' = 'open' AND expires_at > {now}"
)
"""One row while a ticket can be answered."""

WAITING: Final = (
    "UPDATE c4a_ticket SET waited = 1 WHERE organization = :organization AND key = :key AND state || '' = 'open' AND waited = 0"
)
"""Somebody waits for the answer: closing it sends a notice."""


def pause(
    executor: Executor,
    organization: str,
    keyring: Keyring,
    call: Call,
    *,
    actor: str,
    ttl_seconds: float = DEFAULT_TICKET_SECONDS,
    why: str = "",
    again: bool = False,
) -> Ticket:
    """Ask people about one action, or find the ticket that asks already. One trip. See `c4a.record.types.Record.pause`."""
    if isinstance(ttl_seconds, bool) or not 0 < ttl_seconds <= MAX_TTL_SECONDS:
        raise RequestRefused(f"a ticket's time must be above 0 and at most {MAX_TTL_SECONDS:.0f} seconds, got {ttl_seconds!r}")
    identifier(actor, "actor")
    for _ in range(ROUNDS):
        params = _pause_params(executor, organization, keyring, call, actor, ttl_seconds, plain_text(why), again=again)
        row = _pause_once(executor, params)
        if row is not None and is_signed(organization, keyring, row):
            remember(organization, row)
            return replace(row.ticket, arguments=call.arguments)
        if row is not None:
            # Its secret is gone or the row was edited: nobody can answer it, so another question takes its place.
            closed = close(executor, organization, row, "superseded", by=actor, reason="its signature can't be read any more")
            if closed.ticket.state == "open":
                raise damaged(closed.ticket)
            again = True
    raise LedgerError(f"{call.tool}: its ticket can't be read with the secret of this record: make sure that every process has the same")


def decide(
    executor: Executor,
    organization: str,
    keyring: Keyring,
    text: str,
    answer: Answer,
    *,
    by: str,
    reason: str = "",
    expires_in: float | None = None,
) -> Decision:
    """Close a ticket. One trip for a yes to a ticket that this process has seen, else two. See `c4a.record.types.Record.decide`."""
    refuse_nameless(by)
    if answer not in ("approve", "deny"):
        raise RequestRefused(f"answer: expected 'approve' or 'deny', got {answer!r:.200}")
    refuse_expiry(expires_in)
    row = known(organization, keyring, text) or read_row(executor, organization, keyring, text)
    answering = _answer(executor, organization, keyring, row, answer, by, plain_text(reason), expires_in)
    _, closed, *_, seen = executor.trip(answering)
    after = row_from(seen.rows[0]) if seen.rows else None
    if after is None or not is_signed(organization, keyring, after):
        raise changed(text)
    if not closed.count and after.ticket.state == "open":
        refuse_open(executor, organization, after)
    ticket = after.ticket
    if (ticket.state, ticket.decided_by) == (_STATES[answer], by):
        return Decision(ticket.id, answer, by, ticket.decided_at or 0, ticket.reason or "", ticket.approval)
    raise closed_error(ticket)


def cancel(executor: Executor, organization: str, keyring: Keyring, text: str, *, by: str, reason: str = "") -> None:
    """Take a question back. Two trips. See `c4a.record.types.Record.cancel`."""
    refuse_nameless(by)
    row = read_row(executor, organization, keyring, text)
    after = close(executor, organization, row, "cancelled", by=by, reason=plain_text(reason))
    if after.ticket.state == "open":
        refuse_open(executor, organization, after)
    if after.ticket.state != "cancelled":
        raise closed_error(after.ticket)


def ticket(executor: Executor, organization: str, keyring: Keyring, text: str) -> Ticket:
    """A ticket by its text, with its arguments. One trip.

    Raises:
        TicketUnknown: this record issued no such ticket.
        TicketRefused: its text or its row was changed.
        RecordDamaged: the arguments kept with it are not those it asks about.
    """
    row, payload = look(executor, organization, parts_of(text)[0], text)
    refuse_changed(organization, keyring, text, row)
    return shown(row, payload)


def ticket_by_id(executor: Executor, organization: str, keyring: Keyring, ticket_id: str) -> Ticket:
    """A ticket by its id, for a server that knows by the key who asks. One trip; raises as `ticket`."""
    row, payload = look(executor, organization, ticket_id, ticket_id)
    if not is_signed(organization, keyring, row):
        raise changed(ticket_id)
    return shown(row, payload)


def tickets(executor: Executor, organization: str, keyring: Keyring, *, run: str | None = None, limit: int = 100) -> list[Ticket]:
    """Open tickets that can be answered, the oldest first; one trip, by the index of open tickets.

    Raises:
        RecordDamaged: as `ticket`.
    """
    return tickets_page(executor, organization, keyring, run=run, limit=limit)[0]


def tickets_page(
    executor: Executor, organization: str, keyring: Keyring, *, run: str | None = None, after: int = 0, limit: int = 100
) -> tuple[list[Ticket], int | None]:
    """As `tickets`, after a cursor (0: from the beginning), and the cursor of the next page; None after the last."""
    query = SEE_PAGE if run is None else SEE_PAGE_OF_RUN
    where = {"organization": organization, "run": run, "after": after, "limit": limit}
    rows = executor.read([Statement(query, where)])[0].rows
    read = [(row_from(row), row[-2]) for row in rows]
    found = [shown(row, payload) for row, payload in read if is_signed(organization, keyring, row)]
    return found, int(rows[-1][-1]) if rows and len(rows) == limit else None


def _pause_params(
    executor: Executor, organization: str, keyring: Keyring, call: Call, actor: str, ttl_seconds: float, why: str, *, again: bool
) -> dict[str, Any]:
    ticket_id = "tkt_" + secrets.token_hex(12)
    expires_at = executor.clock() + int(ttl_seconds * 1_000_000)
    mac = keyring.sign(
        TICKET_DOMAIN, signed_fields(organization, ticket_id, call.run, call.tool, call.call_digest, call.explicit_key, expires_at)
    )
    payload: dict[str, Any] = {
        "arguments": call.arguments, "call_digest": call.call_digest, "explicit_key": call.explicit_key, "expires_at": expires_at,
        "key_id": keyring.current_id, "mac": mac, "tool": call.tool, "why": why,
    }  # fmt: skip
    if call.arguments_codec != call.arguments:
        payload["codec"] = call.arguments_codec
    return entry_params("ticket.opened", payload_text(payload), actor) | {
        "organization": organization, "run": call.run, "key": ticket_id, "slot": ticket_slot(call.call_digest, call.explicit_key),
        "tool": call.tool, "call_digest": call.call_digest, "explicit_key": call.explicit_key, "expires_at": expires_at, "why": why,
        "mac": mac, "key_id": keyring.current_id, "again": int(again),
        **run_lock(organization, call.run), **action_lock(organization, call.run, call.call_digest),
    }  # fmt: skip


def _pause_once(executor: Executor, params: dict[str, Any]) -> TicketRow | None:
    """The latest ticket after the attempt to open one; None if there is none, because the run is frozen and that is raised."""
    starting = [] if memory.has_row(params["organization"], params["run"]) else [Statement(OPEN_RUN, params)]
    results = executor.trip(
        [
            Statement(LOCK_RUN_SHARED, params),
            Statement(LOCK_ACTION, params),
            *starting,
            *lapsing(params["organization"], params["run"], params["slot"]),
            Statement(_OPEN, params),
            Statement(_APPEND_OPENED, params, after_change=True),
            Statement(_SEE_LATEST, params),
        ]
    )
    rows = results[-1].rows
    if not rows or rows[0][-1] is not None or rows[0][-2] is not None:
        frozen = frozen_error(executor, params)
        if frozen is not None:
            raise frozen
    return row_from(rows[0]) if rows else None


def _answer(
    executor: Executor,
    organization: str,
    keyring: Keyring,
    row: TicketRow,
    answer: Answer,
    by: str,
    reason: str,
    expires_in: float | None,
) -> list[Statement]:
    """The decision, what it does to the gate, and the look at the ticket: one transaction."""
    asked = row.ticket
    approval = "yes_" + secrets.token_hex(12) if answer == "approve" else None
    closing = closing_params(organization, row, _STATES[answer], by=by, reason=reason, approval=approval)
    if answer == "approve":
        params = _yes_params(executor, organization, keyring, asked, str(approval), by, expires_in)
        assignments = f"answer = 'approved', reason = NULL, answered_by = :by, answered_at = {MOVED_AT}"
        not_yet, then = NOT_KEPT, KEEP_YES
    else:
        params = _no_params(executor, organization, asked, by, reason)
        assignments = f"answer = 'denied', reason = :reason, answered_by = :by, answered_at = {MOVED_AT}"
        not_yet, then = not_yet_said("c4a_gate"), VOID_UNSPENT
    params |= {"ticket": asked.id, "ticket_payload_digest": closing["payload_digest"]}
    where = f"expires_at > {{now}} AND {AS_SIGNED} AND {STILL_OPEN}"
    return [
        Statement(LOCK_ACTION, params),
        *moved("c4a_ticket", CLOSED_BY, where, closing, advance_by=ADVANCE_TICKET, append_by=APPEND_TICKET),
        Statement(_OPEN_GATE_IF_DECIDED, params),
        *moved("c4a_gate", assignments, f"{not_yet} AND {_DECIDED}", params, advance_by=ADVANCE_GATE, append_by=APPEND_GATE),
        Statement(then, params),
        Statement(SEE, closing),
    ]


def _yes_params(
    executor: Executor, organization: str, keyring: Keyring, asked: Ticket, approval: str, by: str, expires_in: float | None
) -> dict[str, Any]:
    at = executor.clock()
    expires_at = None if expires_in is None else at + int(expires_in * 1_000_000)
    fields = approval_fields(organization, asked.run, asked.tool, asked.call_digest, asked.explicit_key, approval, by, at, expires_at)
    signed = {"explicit_key": asked.explicit_key, "at": at, "expires_at": expires_at, "mac": keyring.sign(APPROVAL_DOMAIN, fields)}
    signed["key_id"] = keyring.current_id
    # The arguments stand in the ticket's first entry, which the payload names.
    payload = {"tool": asked.tool, "ticket": asked.id, "by": by, **signed}
    params = gate_params(organization, asked.run, asked.call_digest, asked.tool, "gate.approved", payload, by)
    return params | signed | {"approval": approval, "by": by}


def _no_params(executor: Executor, organization: str, asked: Ticket, by: str, reason: str) -> dict[str, Any]:
    payload: dict[str, Any] = {"tool": asked.tool, "ticket": asked.id, "by": by, "reason": reason}
    where = {"organization": organization, "run": asked.run, "key": asked.call_digest}
    running = executor.read([Statement(RUNNING_UNDER, where)])[0].rows
    if running:
        payload["too_late_running_since"] = running[0][1]
    params = gate_params(organization, asked.run, asked.call_digest, asked.tool, "gate.denied", payload, by)
    return params | {"approval": None, "by": by, "reason": reason}
