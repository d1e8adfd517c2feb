"""Questions to people as a library user asks and answers them: `c4a.pause`, `c4a.decide`, `c4a.wait` and what belongs to them.

C4A's own options of `pause` are `c4a_ttl`, `c4a_why`, `c4a_key` and `c4a_again`; the short `ttl`, `why`, `key` and `again`
work too, unless the tool has a parameter of that name.
"""

from __future__ import annotations

import math
import time
from typing import Any, Final

from c4a import connect, keys, runs
from c4a.approvals import expires_in_seconds, reason_text, shown_call
from c4a.effects import tool_of
from c4a.errors import InvalidArguments
from c4a.record.types import DEFAULT_TICKET_SECONDS, Answer, Decision, Ticket

WAIT_SECONDS: Final = 60.0
"""One wait in the record; a longer one is several of these."""
_OPTIONS: Final = ("ttl", "why", "key", "again")
_TICKET: Final = "c4a1."


def pause(tool: Any, /, **shown: Any) -> str:
    """Ask people about one action in the current run: this tool with exactly these arguments. Returns the ticket's text.

    Every argument the call will have must be given, as for `c4a.approve`. Asked again, the same action has the same ticket,
    whatever the answer was; only a question that ended without one (nobody answered, it was taken back), or whose yes was
    withdrawn or ran out, is asked anew. So a function that runs again from its beginning asks once.

    Options among the keywords: `c4a_ttl` (seconds in which to answer, a day without it), `c4a_why` (what people are told),
    `c4a_key` (about the action with this explicit key), `c4a_again` (ask anew after an answer).

    Raises:
        InvalidArguments: an argument is missing, unknown or unfit, or `tool` needs no approval, so that a no would stop nothing.
        NoCurrentRun: outside `with c4a.run(...)`.
        AgentFrozen: a person stopped the run or the agent.
    """
    asked_of = tool_of(tool)[0]
    if not asked_of.gated:
        raise InvalidArguments(
            f"{asked_of.name} needs no approval, so a no would not stop it: decorate it with @c4a.effect(approval=True)", parameter="tool"
        )
    call, options = shown_call(tool, shown, _OPTIONS)
    connection = connect.connection()
    asked = connection.record.pause(
        call,
        actor=connection.actor,
        ttl_seconds=_ttl(options.get("ttl", DEFAULT_TICKET_SECONDS)),
        why=_why(options.get("why", "")),
        again=_again(options.get("again", False)),
    )
    return asked.text


def decide(ticket: str, answer: Answer, *, by: str = "", reason: str = "", expires_in: float | None = None) -> Decision:
    """Answer a ticket, `"approve"` or `"deny"`. The first answer counts; the same one by the same person gets the same receipt.

    `by` is who decides (the local user without it), `reason` reaches the agent, `expires_in` is after how many seconds an
    unspent yes runs out.

    Raises:
        TicketRefused: another answer was first (fields `by`, `at`), nobody answered in time, or this record did not issue the
            ticket as it is; the field `why` says which.
        DecideNotAllowed: the record is behind a server, where people answer themselves.
    """
    connection = connect.connection()
    return connection.record.decide(
        ticket, answer, by=_by(by, connection), reason=reason_text(reason), expires_in=expires_in_seconds(expires_in)
    )


def cancel(ticket: str, *, by: str = "", reason: str = "") -> None:
    """Take a question back that nobody has answered; harmless if it was taken back before.

    Raises:
        TicketRefused: as `decide`.
    """
    connection = connect.connection()
    connection.record.cancel(ticket, by=_by(by, connection), reason=reason_text(reason))


def withdraw(ticket: str, *, by: str = "", reason: str = "") -> None:
    """Take back a yes that no action has spent: by the ticket it answered, or by the id that `c4a.approve` returned (in its run).

    Raises:
        TicketRefused: it is spent, does not count any more, or is unknown; the field `why` says which.
        NoCurrentRun: an approval's id outside `with c4a.run(...)`.
    """
    if not isinstance(ticket, str):
        raise InvalidArguments(f"ticket: expected text, got {type(ticket).__qualname__}", parameter="ticket")
    connection = connect.connection()
    run = "" if ticket.startswith(_TICKET) else runs.current_run()
    connection.record.withdraw(ticket, run=run, by=_by(by, connection), reason=reason_text(reason))


def wait(ticket: str, timeout: float | None = None) -> Ticket:
    """Wait until a ticket is closed, at most `timeout` seconds, and return it; its `state` is `open` if nobody answered meanwhile.

    Woken by the record, in this thread: on an event loop use `await asyncio.to_thread(c4a.wait, ticket)`.

    Raises:
        TicketRefused: this record did not issue the ticket.
    """
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0):
        raise InvalidArguments(f"timeout: expected a number of seconds or None, got {timeout!r:.200}", parameter="timeout")
    record = connect.current_record()
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        record.wait_ticket(ticket, max(0.0, min(deadline - time.monotonic(), WAIT_SECONDS)))
        found = record.ticket(ticket)
        if found.state != "open" or time.monotonic() >= deadline:
            return found


def tickets(*, run: str | None = None, limit: int = 100) -> list[Ticket]:
    """Open tickets, of all runs or one, the oldest first: what people are asked, in full."""
    return connect.current_record().tickets(run=run, limit=limit)


def _by(by: str, connection: connect.Connection) -> str:
    return keys.identifier(by, "by") if by else connection.actor


def _ttl(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given) or given <= 0:
        raise InvalidArguments(f"ttl: expected a number of seconds above 0, got {given!r:.200}", parameter="ttl")
    return float(given)


def _why(given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidArguments(f"why: expected text, got {type(given).__qualname__}", parameter="why")
    return given


def _again(given: Any) -> bool:
    if not isinstance(given, bool):
        raise InvalidArguments(f"again: expected True or False, got {given!r:.200}", parameter="again")
    return given
