"""Tickets: an agent's question to people about exactly one action, its answer, and what ends it without one.

A ticket is a head with a chain of its own. Its text `c4a1.<id>.<mac>` is all that leaves the record; the signature binds the
id to organization, run, tool, call, explicit key and expiry, so that no row made, moved or edited by hand can be answered.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Any, Final

from c4a.errors import LedgerError, RecordDamaged, RequestRefused, TicketRefused
from c4a.keys import call_digest as digest_of
from c4a.keys import identifier
from c4a.record.answers import KEEP_YES, NOT_KEPT, OPEN_GATE, RUNNING_UNDER, VOID_UNSPENT, gate_params, refuse_nameless
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
from c4a.record.types import DEFAULT_TICKET_SECONDS, Answer, Call, Decision, Ticket
from c4a.record.yes import APPROVAL_DOMAIN, NEVER_SPENT, YES_STANDS, approval_fields

TICKET_DOMAIN: Final = "c4a/ticket/v1"
TEXT_PREFIX: Final = "c4a1"
MAX_TTL_SECONDS: Final = 366 * 86_400.0
ROUNDS: Final = 3
"""How often a pause asks anew because what it found can't be answered; once is enough unless secrets change meanwhile."""

_COLUMNS: Final = (
    "t.key, t.run, t.tool, t.call_digest, t.explicit_key, t.number, t.state, t.why, t.asked_by, t.asked_at, t.expires_at, t.mac, t.key_id, "
    "t.decided_by, t.decided_at, t.reason, t.approval, {now}"
)

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

# The head must be what its last entry says: a ticket set back to open by hand can't be answered again.
_STILL_OPEN: Final = """state = 'open' AND (
    SELECT e.digest FROM c4a_entry AS e
    WHERE e.organization = :organization AND e.run = :run AND e.key = c4a_ticket.key AND e.seq = c4a_ticket.seq AND e.kind = 'ticket.opened'
) = last_digest"""

_AS_SIGNED: Final = "tool = :tool AND slot = :slot AND mac = :mac AND expires_at = :expires_at"

# Whose chain it is tells only the row, so the entry follows the row that this payload moved.
_LAPSE: Final = (
    f"UPDATE c4a_ticket SET state = 'expired', {ADVANCE_TICKET.replace(':approval', 'NULL')}\n"
    f"WHERE organization = :organization AND run = :run AND slot = :slot AND state = 'open' AND expires_at <= {{now}} AND {_STILL_OPEN}"
)
_APPEND_LAPSED: Final = (
    APPEND_TICKET.replace("AND key = :key AND last_payload_digest", "AND slot = :slot AND last_payload_digest")
    .replace("e.key = :key", "e.key = c4a_ticket.key")
    .replace(":approval", "NULL")
)

_SEE_LATEST: Final = f"""
SELECT {_COLUMNS},
    (SELECT f.frozen_at FROM c4a_run AS f WHERE f.organization = :organization AND f.run = :run),
    (SELECT f.frozen_at FROM c4a_subject AS f WHERE f.organization = :organization AND f.key = :actor)
FROM c4a_ticket AS t WHERE {_LATEST}"""

_SEE: Final = f"SELECT {_COLUMNS} FROM c4a_ticket AS t WHERE t.organization = :organization AND t.key = :key"

_SEE_WITH_ARGUMENTS: Final = f"""
SELECT {_COLUMNS}, o.payload
FROM c4a_ticket AS t
LEFT JOIN c4a_entry AS o ON o.organization = t.organization AND o.run = t.run AND o.key = t.key AND o.seq = 1
WHERE t.organization = :organization"""

# What a decision does to the gate happens only if this very decision closed the ticket.
_DECIDED: Final = """(
    SELECT t.last_payload_digest FROM c4a_ticket AS t WHERE t.organization = :organization AND t.key = :ticket AND t.run = :run
) = :ticket_payload_digest"""

_OPEN_GATE_IF_DECIDED: Final = OPEN_GATE.replace("VALUES (:organization, :run, :key, :tool, 0, 0, '', '', '')", (
    f"SELECT :organization, :run, :key, :tool, 0, 0, '', '', ''\nWHERE {_DECIDED}"
))  # fmt: skip

_UNSPENT_YES: Final = f"""(
    SELECT a.approval FROM c4a_approval AS a
    WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval AND a.key = :key AND a.state = 'unspent'
        AND {YES_STANDS} AND {NEVER_SPENT}
) = :approval"""

_WITHDRAWN: Final = """
UPDATE c4a_approval SET state = 'withdrawn'
WHERE organization = :organization AND run = :run AND approval = :approval AND state = 'unspent' AND (
    SELECT g.last_payload_digest FROM c4a_gate AS g WHERE g.organization = :organization AND g.run = :run AND g.key = :key
) = :payload_digest"""

_APPROVAL: Final = """
SELECT a.key, a.tool, a.state, a.spent_by, (
    SELECT MIN(s.key) FROM c4a_entry AS s
    WHERE s.organization = a.organization AND s.run = a.run AND s.approval = a.approval AND s.kind = 'effect.running'
        AND s.approval IS NOT NULL
)
FROM c4a_approval AS a WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval"""

# The first condition is the partial index's own, to the letter: SQLite uses it for nothing else.
_LAPSED: Final = """
SELECT t.organization, t.run, t.slot FROM c4a_ticket AS t WHERE t.state = 'open' AND t.expires_at <= {now} LIMIT :limit"""

IS_OPEN: Final = "SELECT 1 FROM c4a_ticket WHERE organization = :organization AND key = :key AND state = 'open' AND expires_at > {now}"
"""One row while a ticket can be answered."""
WAITING: Final = "UPDATE c4a_ticket SET waited = 1 WHERE organization = :organization AND key = :key AND state = 'open' AND waited = 0"
"""Somebody waits for the answer: closing it sends a notice."""

LAPSED_BATCH: Final = 200


@dataclass(frozen=True)
class _Row:
    """A ticket as stored, and the clock when it was read."""

    ticket: Ticket
    mac: str
    key_id: str
    read_at: int


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
        if row is not None and _is_signed(organization, keyring, row):
            _remember(organization, row)
            return replace(row.ticket, arguments=call.arguments)
        if row is not None:
            # Its secret is gone or the row was edited: nobody can answer it, so another question takes its place.
            _close(executor, organization, row, "superseded", by=actor, reason="its signature can't be read any more")
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
    if expires_in is not None and (isinstance(expires_in, bool) or not expires_in > 0):
        raise RequestRefused(f"expires_in must be more than 0 seconds, got {expires_in!r}")
    row = _known(organization, keyring, text) or _read(executor, organization, keyring, text)
    answering = _answer(executor, organization, keyring, row, answer, by, plain_text(reason), expires_in)
    _, closed, *_, seen = executor.trip(answering)
    after = _row(seen.rows[0]) if seen.rows else None
    if after is None or not _is_signed(organization, keyring, after):
        raise _changed(text)
    if not closed.count and after.ticket.state == "open":
        _refuse_open(executor, organization, after)
    ticket = after.ticket
    if (ticket.state, ticket.decided_by) == (_STATES[answer], by):
        return Decision(ticket.id, answer, by, ticket.decided_at or 0, ticket.reason or "", ticket.approval)
    raise _closed(ticket)


def cancel(executor: Executor, organization: str, keyring: Keyring, text: str, *, by: str, reason: str = "") -> None:
    """Take a question back. Two trips. See `c4a.record.types.Record.cancel`."""
    refuse_nameless(by)
    row = _read(executor, organization, keyring, text)
    after = _close(executor, organization, row, "cancelled", by=by, reason=plain_text(reason))
    if after.ticket.state == "open":
        _refuse_open(executor, organization, after)
    if after.ticket.state != "cancelled":
        raise _closed(after.ticket)


def withdraw(executor: Executor, organization: str, keyring: Keyring, approval: str, *, run: str, by: str, reason: str = "") -> None:
    """Take back a yes that is not spent. Two trips, three by a ticket's text. See `c4a.record.types.Record.withdraw`."""
    refuse_nameless(by)
    if approval.startswith(TEXT_PREFIX + "."):
        ticket = _read(executor, organization, keyring, approval).ticket
        if ticket.approval is None:
            raise TicketRefused(f"the ticket about {ticket.tool} has no yes to take back: it is {ticket.state}", why=ticket.state)
        approval, run = ticket.approval, ticket.run
    where = {"organization": organization, "run": run, "approval": approval}
    rows = executor.read([Statement(_APPROVAL, where)])[0].rows
    if not rows:
        raise TicketRefused(f"no approval {approval} in run {run}", why="unknown", approval=approval)
    key, tool, state, *_ = rows[0]
    if state == "withdrawn":
        return
    payload = {"tool": tool, "by": by, "reason": plain_text(reason)}
    params = gate_params(organization, run, key, tool, "gate.withdrawn", payload, by) | {"approval": approval}
    done, after = _withdraw_once(executor, params)
    if not done:
        raise _not_withdrawn(after, approval)


def expire(executor: Executor, *, limit: int = LAPSED_BATCH) -> int:
    """Close open tickets whose time is over, in all organizations; returns how many. Safe twice at once."""
    found = executor.read([Statement(_LAPSED, {"limit": limit})])[0].rows
    return sum(_lapse(executor, organization, run, slot) for organization, run, slot in found)


def ticket(executor: Executor, organization: str, keyring: Keyring, text: str) -> Ticket:
    """A ticket by its text, with its arguments. One trip.

    Raises:
        TicketRefused: this record did not issue it, or it was changed.
        RecordDamaged: the arguments kept with it are not those it asks about.
    """
    ticket_id, mac = _parts(text)
    query = _SEE_WITH_ARGUMENTS + " AND t.key = :key"
    rows = executor.read([Statement(query, {"organization": organization, "key": ticket_id})])[0].rows
    if not rows:
        raise _unknown(text)
    row = _row(rows[0])
    if row.mac != mac or not _is_signed(organization, keyring, row):
        raise _changed(text)
    return _shown(row, rows[0][-1])


def tickets(executor: Executor, organization: str, keyring: Keyring, *, run: str | None = None, limit: int = 100) -> list[Ticket]:
    """Open tickets that can be answered, the oldest first; one trip, by the index of open tickets.

    Raises:
        RecordDamaged: as `ticket`.
    """
    query = _SEE_WITH_ARGUMENTS + " AND t.state = 'open' AND t.expires_at > {now}"
    query += (" AND t.run = :run" if run is not None else "") + " ORDER BY t.asked_at, t.key LIMIT :limit"
    rows = executor.read([Statement(query, {"organization": organization, "run": run, "limit": limit})])[0].rows
    read = [(_row(row), row[-1]) for row in rows]
    return [_shown(row, payload) for row, payload in read if _is_signed(organization, keyring, row)]


def void_all(executor: Executor, organization: str, *, by: str, reason: str) -> tuple[int, int]:
    """Take back every unspent yes and close every open ticket, by entries; returns how many of each."""
    yeses = executor.read([Statement(_ALL_UNSPENT, {"organization": organization})])[0].rows
    voided = 0
    for run, approval, key, tool in yeses:
        payload = {"tool": tool, "by": by, "reason": plain_text(reason)}
        params = gate_params(organization, run, key, tool, "gate.withdrawn", payload, by) | {"approval": approval}
        voided += _withdraw_once(executor, params)[0]
    rows = executor.read([Statement(_ALL_OPEN, {"organization": organization})])[0].rows
    for row in rows:
        _close(executor, organization, _row(row), "superseded", by=by, reason=reason)
    return voided, len(rows)


_ALL_UNSPENT: Final = "SELECT run, approval, key, tool FROM c4a_approval WHERE organization = :organization AND state = 'unspent'"
_ALL_OPEN: Final = f"SELECT {_COLUMNS} FROM c4a_ticket AS t WHERE t.organization = :organization AND t.state = 'open'"
_STATES: Final = {"approve": "approved", "deny": "denied"}


def _pause_params(
    executor: Executor, organization: str, keyring: Keyring, call: Call, actor: str, ttl_seconds: float, why: str, *, again: bool
) -> dict[str, Any]:
    ticket_id = "tkt_" + secrets.token_hex(12)
    expires_at = executor.clock() + int(ttl_seconds * 1_000_000)
    mac = keyring.sign(
        TICKET_DOMAIN, _fields(organization, ticket_id, call.run, call.tool, call.call_digest, call.explicit_key, expires_at)
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


def _pause_once(executor: Executor, params: dict[str, Any]) -> _Row | None:
    """The latest ticket after the attempt to open one; None if there is none, because the run is frozen and that is raised."""
    results = executor.trip(
        [
            Statement(LOCK_RUN_SHARED, params),
            Statement(LOCK_ACTION, params),
            Statement(OPEN_RUN, params),
            *_lapsing(params["organization"], params["run"], params["slot"]),
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
    return _row(rows[0]) if rows else None


def _lapsing(organization: str, run: str, slot: str) -> list[Statement]:
    params = entry_params("ticket.expired", payload_text({}), "c4a") | {"organization": organization, "run": run, "slot": slot}
    return [
        Statement(_LAPSE, params),
        Statement(_APPEND_LAPSED, params, after_change=True),
    ]


def _lapse(executor: Executor, organization: str, run: str, slot: str) -> int:
    return executor.trip(_lapsing(organization, run, slot))[0].count


def _answer(
    executor: Executor,
    organization: str,
    keyring: Keyring,
    row: _Row,
    answer: Answer,
    by: str,
    reason: str,
    expires_in: float | None,
) -> list[Statement]:
    """The decision, what it does to the gate, and the look at the ticket: one transaction."""
    asked = row.ticket
    approval = "yes_" + secrets.token_hex(12) if answer == "approve" else None
    closing = _closing(organization, row, _STATES[answer], by=by, reason=reason, approval=approval)
    where = f"expires_at > {{now}} AND {_AS_SIGNED} AND {_STILL_OPEN}"
    if answer == "approve":
        params = _yes_params(executor, organization, keyring, asked, str(approval), by, expires_in)
        assignments = f"answer = 'approved', reason = NULL, answered_by = :by, answered_at = {MOVED_AT}"
        not_yet, then = NOT_KEPT, KEEP_YES
    else:
        params = _no_params(executor, organization, asked, by, reason)
        assignments = f"answer = 'denied', reason = :reason, answered_by = :by, answered_at = {MOVED_AT}"
        not_yet, then = not_yet_said("c4a_gate"), VOID_UNSPENT
    params |= {"ticket": asked.id, "ticket_payload_digest": closing["payload_digest"]}
    where = f"expires_at > {{now}} AND {_AS_SIGNED} AND {_STILL_OPEN}"
    return [
        Statement(LOCK_ACTION, params),
        *moved("c4a_ticket", _CLOSED_BY, where, closing, advance_by=ADVANCE_TICKET, append_by=APPEND_TICKET),
        Statement(_OPEN_GATE_IF_DECIDED, params),
        *moved("c4a_gate", assignments, f"{not_yet} AND {_DECIDED}", params, advance_by=ADVANCE_GATE, append_by=APPEND_GATE),
        Statement(then, params),
        Statement(_SEE, closing),
    ]


_CLOSED_BY: Final = f"state = :state, decided_by = :actor, decided_at = {MOVED_AT}, reason = :reason, approval = CAST(:approval AS TEXT)"


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


def _closing(organization: str, row: _Row, state: str, *, by: str, reason: str, approval: str | None = None) -> dict[str, Any]:
    asked = row.ticket
    return entry_params(f"ticket.{state}", payload_text({"reason": reason}), by) | {
        "organization": organization, "run": asked.run, "key": asked.id, "slot": ticket_slot(asked.call_digest, asked.explicit_key),
        "tool": asked.tool, "mac": row.mac, "expires_at": asked.expires_at, "state": state, "reason": reason, "approval": approval,
        **action_lock(organization, asked.run, asked.call_digest),
    }  # fmt: skip


def _close(executor: Executor, organization: str, row: _Row, state: str, *, by: str, reason: str) -> _Row:
    """Close a ticket without an answer; the row afterwards, whoever closed it."""
    params = _closing(organization, row, state, by=by, reason=reason)
    where = f"{_AS_SIGNED} AND {_STILL_OPEN}" + (" AND expires_at > {now}" if state == "cancelled" else "")
    results = executor.trip(
        [
            Statement(LOCK_ACTION, params),
            *moved("c4a_ticket", _CLOSED_BY, where, params, advance_by=ADVANCE_TICKET, append_by=APPEND_TICKET),
            Statement(_SEE, params),
        ]
    )
    return _row(results[-1].rows[0])


def _withdraw_once(executor: Executor, params: dict[str, Any]) -> tuple[bool, tuple[Any, ...]]:
    """Whether the yes is taken back, and its row."""
    results = executor.trip(
        [
            Statement(LOCK_ACTION, params),
            *moved("c4a_gate", "", _UNSPENT_YES, params, advance_by=ADVANCE_GATE, append_by=APPEND_GATE),
            Statement(_WITHDRAWN, params),
            Statement(_APPROVAL, params),
        ]
    )
    after = results[-1].rows[0]
    return results[1].count > 0 or after[2] == "withdrawn", after


def _not_withdrawn(row: tuple[Any, ...], approval: str) -> TicketRefused:
    _, tool, state, spent_by, intent = row
    if intent is not None or spent_by is not None:
        return TicketRefused(
            f"the yes for {tool} can't be taken back: action {str(intent or spent_by)[:12]} spent it. A denial forbids another attempt",
            why="spent", approval=approval, key=intent or spent_by,
        )  # fmt: skip
    return TicketRefused(
        f"the yes for {tool} can't be taken back: it does not count any more ({state})", why="void", approval=approval, state=state
    )


# -- reading ----------------------------------------------------------------------------------------------------------------


REMEMBERED: Final = 10_000
_seen: dict[tuple[str, str], _Row] = {}
"""What the signature of a ticket binds never changes, so a ticket seen once needs no look before it is answered."""


def _remember(organization: str, row: _Row) -> None:
    if len(_seen) >= REMEMBERED:
        _seen.clear()
    _seen[organization, row.ticket.id] = row


def _known(organization: str, keyring: Keyring, text: str) -> _Row | None:
    ticket_id, mac = _parts(text)
    row = _seen.get((organization, ticket_id))
    return row if row is not None and row.mac == mac and _is_signed(organization, keyring, row) else None


def _read(executor: Executor, organization: str, keyring: Keyring, text: str) -> _Row:
    """The ticket's row, its signature checked. One trip."""
    ticket_id, mac = _parts(text)
    rows = executor.read([Statement(_SEE, {"organization": organization, "key": ticket_id})])[0].rows
    if not rows:
        raise _unknown(text)
    row = _row(rows[0])
    if row.mac != mac or not _is_signed(organization, keyring, row):
        raise _changed(text)
    return row


def _parts(text: str) -> tuple[str, str]:
    """Id and signature of a ticket's text."""
    parts = text.split(".") if isinstance(text, str) else []
    if len(parts) != 3 or parts[0] != TEXT_PREFIX or not parts[1] or not parts[2]:
        raise TicketRefused(f"expected a ticket's text, {TEXT_PREFIX}.<id>.<signature>, got {text!r:.100}", why="malformed")
    return parts[1], parts[2]


def _row(row: tuple[Any, ...]) -> _Row:
    (key, run, tool, digest, explicit_key, number, state, why, asked_by, asked_at, expires_at, mac, key_id, by, at, reason, approval) = row[
        :17
    ]
    asked = Ticket(
        id=key, text=f"{TEXT_PREFIX}.{key}.{mac}", run=run, tool=tool, arguments=None, call_digest=digest, explicit_key=explicit_key,
        number=number, state=state, why=why, asked_by=asked_by, asked_at=asked_at, expires_at=expires_at, decided_by=by, decided_at=at,
        reason=reason, approval=approval,
    )  # fmt: skip
    return _Row(asked, mac, key_id, row[17])


def _shown(row: _Row, payload: str | None) -> Ticket:
    """A ticket with its arguments; one whose time is over shows as expired before anybody has written so."""
    arguments = json.loads(payload).get("arguments") if payload else None
    if arguments is not None and digest_of(row.ticket.tool, arguments) != row.ticket.call_digest:
        raise RecordDamaged(
            f"the arguments kept with ticket {row.ticket.id} are not those it asks about: run `c4a verify`",
            run=row.ticket.run,
            key=row.ticket.id,
        )
    over = row.ticket.state == "open" and row.ticket.expires_at <= row.read_at
    return replace(row.ticket, arguments=arguments, state="expired" if over else row.ticket.state)


def _fields(
    organization: str, ticket_id: str, run: str, tool: str, call_digest: str, explicit_key: str | None, expires_at: int
) -> list[str]:
    """What a ticket's signature binds, in order."""
    return [ticket_id, organization, run, tool, call_digest, "-" if explicit_key is None else "=" + explicit_key, str(expires_at)]


def _is_signed(organization: str, keyring: Keyring, row: _Row) -> bool:
    asked = row.ticket
    fields = _fields(organization, asked.id, asked.run, asked.tool, asked.call_digest, asked.explicit_key, asked.expires_at)
    return keyring.verifies(row.mac, row.key_id, TICKET_DOMAIN, fields)


def _refuse_open(executor: Executor, organization: str, row: _Row) -> None:
    """An open ticket that a guarded write left open: its time is over, or its head is not what its entries say."""
    asked = row.ticket
    if asked.expires_at > row.read_at:
        raise RecordDamaged(
            f"the head of ticket {asked.id} disagrees with its last entry; nothing was written: run `c4a verify`, then `c4a rebuild`",
            run=asked.run,
            key=asked.id,
        )
    _lapse(executor, organization, asked.run, ticket_slot(asked.call_digest, asked.explicit_key))
    raise _closed(replace(asked, state="expired"))


def _closed(asked: Ticket) -> TicketRefused:
    fields: dict[str, Any] = {
        "ticket": asked.id,
        "state": asked.state,
        "by": asked.decided_by,
        "at": asked.decided_at,
        "reason": asked.reason,
    }
    if asked.state == "expired":
        return TicketRefused(f"nobody answered the ticket about {asked.tool} in time: let the agent ask again", why="expired", **fields)
    why = "decided" if asked.state in ("approved", "denied") else asked.state
    return TicketRefused(
        f"the ticket about {asked.tool} is closed: it was {asked.state} by {asked.decided_by} (at {asked.decided_at} µs); nothing changed",
        why=why,
        **fields,
    )


def _unknown(text: str) -> TicketRefused:
    return TicketRefused(f"this record issued no ticket {text[:40]}…: it is forged, or another record's", why="unknown")


def _changed(text: str) -> TicketRefused:
    return TicketRefused(
        f"the ticket {text[:40]}… is not as this record issued it: its text or its row was changed, or its secret is gone", why="changed"
    )
