"""How a ticket ends: guarded by its signature, its state and its own last entry, whatever ends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from c4a.errors import RecordDamaged
from c4a.record.dialects import LOCK_ACTION, Executor, Statement, action_lock
from c4a.record.entries import ADVANCE_TICKET, APPEND_TICKET, MOVED_AT, entry_params, moved, payload_text
from c4a.record.fold import ticket_slot
from c4a.record.ticket_row import SEE, TicketRow, closed_error, damaged, row_from

LAPSED_BATCH: Final = 200

# The head must be what its last entry says: a ticket set back to open by hand can't be answered again. States and slots are
# compared as texts put together, so that only the key's own index can serve: the one of open tickets is full of what is open.
STILL_OPEN: Final = """state || '' = 'open' AND (
    SELECT e.digest FROM c4a_entry AS e
    WHERE e.organization = :organization AND e.run = :run AND e.key = c4a_ticket.key AND e.seq = c4a_ticket.seq AND e.kind = 'ticket.opened'
) = last_digest"""

AS_SIGNED: Final = """tool = :tool AND call_digest = :call_digest AND slot || '' = :slot
    AND COALESCE(explicit_key, '') = COALESCE(CAST(:explicit_key AS TEXT), '')
    AND expires_at = :expires_at AND mac = :mac AND key_id = :key_id"""
"""SQL: the row is what its signature, checked before, was made over."""
CLOSED_BY: Final = f"state = :state, decided_by = :actor, decided_at = {MOVED_AT}, reason = :reason, approval = CAST(:approval AS TEXT)"

# The open ticket of a slot is its latest: found so, all three statements go by a unique index.
_LATEST_KEY: Final = """(
    SELECT t.key FROM c4a_ticket AS t
    WHERE t.organization = :organization AND t.run = :run AND t.slot = :slot ORDER BY t.number DESC LIMIT 1
)"""
_LAPSE: Final = (
    f"UPDATE c4a_ticket SET state = 'expired', {ADVANCE_TICKET.replace(':approval', 'NULL')}\n"
    f"WHERE organization = :organization AND run = :run AND key = {_LATEST_KEY} AND expires_at <= {{now}} AND {STILL_OPEN}"
)
_APPEND_LAPSED: Final = (
    APPEND_TICKET.replace("e.key = :key", "e.key = c4a_ticket.key")
    .replace("key = :key", f"key = {_LATEST_KEY}")
    .replace(":approval", "NULL")
)

# The first condition is the partial index's own, to the letter: SQLite uses it for nothing else.
_LAPSED: Final = """
SELECT t.organization, t.run, t.slot FROM c4a_ticket AS t WHERE t.state = 'open' AND t.expires_at <= {now} LIMIT :limit"""


def expire(executor: Executor, *, limit: int = LAPSED_BATCH) -> int:
    """Close open tickets whose time is over, in all organizations; returns how many. Safe twice at once."""
    found = executor.read([Statement(_LAPSED, {"limit": limit})])[0].rows
    return sum(_lapsed(executor, organization, run, slot) for organization, run, slot in found)


def _lapsed(executor: Executor, organization: str, run: str, slot: str) -> int:
    try:
        return lapse(executor, organization, run, slot)
    except RecordDamaged:
        return 0  # its next answer and `c4a verify` say so; the others must not wait for it


def lapsing(organization: str, run: str, slot: str) -> list[Statement]:
    """Statements that close the open ticket of a slot if its time is over."""
    params = entry_params("ticket.expired", payload_text({}), "c4a") | {"organization": organization, "run": run, "slot": slot}
    return [
        Statement(_LAPSE, params),
        Statement(_APPEND_LAPSED, params, after_change=True),
    ]


def lapse(executor: Executor, organization: str, run: str, slot: str) -> int:
    """Close the open ticket of a slot if its time is over; returns 1 or 0."""
    return executor.trip(lapsing(organization, run, slot))[0].count


def closing_params(organization: str, row: TicketRow, state: str, *, by: str, reason: str, approval: str | None = None) -> dict[str, Any]:
    """The parameters of every statement that closes a ticket by name."""
    asked = row.ticket
    return entry_params(f"ticket.{state}", payload_text({"reason": reason}), by) | {
        "organization": organization, "run": asked.run, "key": asked.id, "slot": ticket_slot(asked.call_digest, asked.explicit_key),
        "tool": asked.tool, "call_digest": asked.call_digest, "explicit_key": asked.explicit_key, "expires_at": asked.expires_at,
        "mac": row.mac, "key_id": row.key_id, "state": state, "reason": reason, "approval": approval,
        **action_lock(organization, asked.run, asked.call_digest),
    }  # fmt: skip


def close(executor: Executor, organization: str, row: TicketRow, state: str, *, by: str, reason: str) -> TicketRow:
    """Close a ticket without an answer; the row afterwards, whoever closed it."""
    params = closing_params(organization, row, state, by=by, reason=reason)
    where = f"{AS_SIGNED} AND {STILL_OPEN}" + (" AND expires_at > {now}" if state == "cancelled" else "")
    results = executor.trip(
        [
            Statement(LOCK_ACTION, params),
            *moved("c4a_ticket", CLOSED_BY, where, params, advance_by=ADVANCE_TICKET, append_by=APPEND_TICKET),
            Statement(SEE, params),
        ]
    )
    return row_from(results[-1].rows[0])


def refuse_open(executor: Executor, organization: str, row: TicketRow) -> None:
    """An open ticket that a guarded write left open: its time is over, or its head is not what its entries say."""
    asked = row.ticket
    if asked.expires_at > row.read_at:
        raise damaged(asked)
    lapse(executor, organization, asked.run, ticket_slot(asked.call_digest, asked.explicit_key))
    raise closed_error(replace(asked, state="expired"))
