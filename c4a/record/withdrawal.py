"""Withdrawal: a yes that no action has spent is taken back, by an entry of its gate."""

from __future__ import annotations

from typing import Any, Final

from c4a.errors import TicketRefused
from c4a.keys import identifier
from c4a.record.answers import gate_params, refuse_nameless
from c4a.record.dialects import LOCK_ACTION, Executor, Statement
from c4a.record.entries import ADVANCE_GATE, APPEND_GATE, moved, plain_text
from c4a.record.keyring import Keyring
from c4a.record.ticket_end import close
from c4a.record.ticket_row import COLUMNS, TEXT_PREFIX, read_row, row_from
from c4a.record.yes import NEVER_SPENT, YES_STANDS

# States are compared as texts put together, so that only the promise's own index can serve.
_UNSPENT_YES: Final = f"""(
    SELECT a.approval FROM c4a_approval AS a
    WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval AND a.key = :key AND a.state || '' = 'unspent'
        AND {YES_STANDS} AND {NEVER_SPENT}
) = :approval"""

_WITHDRAWN: Final = """
UPDATE c4a_approval SET state = 'withdrawn'
WHERE organization = :organization AND run = :run AND approval = :approval AND state || '' = 'unspent' AND (
    SELECT g.last_payload_digest FROM c4a_gate AS g WHERE g.organization = :organization AND g.run = :run AND g.key = :key
) = :payload_digest"""

_APPROVAL: Final = """
SELECT a.key, a.tool, a.state, a.spent_by, (
    SELECT MIN(s.key) FROM c4a_entry AS s
    WHERE s.organization = a.organization AND s.run = a.run AND s.approval = a.approval AND s.kind = 'effect.running'
        AND s.approval IS NOT NULL
)
FROM c4a_approval AS a WHERE a.organization = :organization AND a.run = :run AND a.approval = :approval"""
_ALL_UNSPENT: Final = "SELECT run, approval, key, tool FROM c4a_approval WHERE organization = :organization AND state = 'unspent'"
_ALL_OPEN: Final = f"SELECT {COLUMNS} FROM c4a_ticket AS t WHERE t.organization = :organization AND t.state = 'open'"


def withdraw(executor: Executor, organization: str, keyring: Keyring, approval: str, *, run: str, by: str, reason: str = "") -> None:
    """Take back a yes that is not spent. Two trips, three by a ticket's text. See `c4a.record.types.Record.withdraw`."""
    refuse_nameless(by)
    identifier(approval, "approval")
    if approval.startswith(TEXT_PREFIX + "."):
        ticket = read_row(executor, organization, keyring, approval).ticket
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


def void_all(executor: Executor, organization: str, *, by: str, reason: str) -> tuple[int, int]:
    """Take back every unspent yes and every open question, by entries; returns how many of each. Trips: one for each of them.

    What a secret that others may know has signed no longer counts, and the record says so.
    """
    refuse_nameless(by)
    reason = plain_text(reason)
    yeses = executor.read([Statement(_ALL_UNSPENT, {"organization": organization})])[0].rows
    voided = 0
    for run, approval, key, tool in yeses:
        payload = {"tool": tool, "by": by, "reason": reason}
        params = gate_params(organization, run, key, tool, "gate.withdrawn", payload, by) | {"approval": approval}
        voided += _withdraw_once(executor, params)[0]
    rows = executor.read([Statement(_ALL_OPEN, {"organization": organization})])[0].rows
    closed = [close(executor, organization, row_from(row), "cancelled", by=by, reason=reason) for row in rows]
    return voided, sum(row.ticket.state == "cancelled" for row in closed)


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
