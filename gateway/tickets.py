"""Questions to people and their answers over REST: each view is a thin face of one verb of the record.

They stand here and not in the app `tickets`, since that app may not import the API's base.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from c4a.errors import RequestRefused, TicketRefused
from c4a.record import answers, tickets
from c4a.record.types import DEFAULT_TICKET_SECONDS, Call, Decision, Ticket
from c4a.record.types import Answer as YesOrNo
from gateway.api import Answer, ApiView, Incoming, Operation
from gateway.calls import asked_call_from_body
from gateway.effects import ACT, MAX_SECONDS
from gateway.fields import (
    Fields,
    boolean,
    codec,
    explicit_key,
    free_text,
    hexadecimal,
    identifier,
    integer,
    json_object,
    seconds,
    text,
)
from ledger.executor import executor_default, keyring_default

ACT_OR_READ: Final = frozenset({"act", "read"})
DECIDE: Final = frozenset({"decide"})
TICKET_STATES: Final = ("open", "approved", "denied", "expired", "cancelled", "superseded")
TICKET_PATH: Final = {"ticket": "The ticket: its id `tkt_…`, or its text `c4a1.….…`, whose signature is then checked."}
_NAMED: Final = re.compile(r"\A(?:c4a1\.(tkt_[0-9a-f]{24})\.[0-9a-f]{64}|(tkt_[0-9a-f]{24}))\Z")
_EARLIEST_SECONDS: Final = 0.001

_CALL: Final = {
    "run": identifier("The run: one conversation, thread or job, named by the agent."),
    "tool": identifier("The tool's name."),
    "arguments": json_object("All arguments that the call will have, as plain JSON, by parameter name."),
    "arguments_codec": codec("The arguments as typed codec text, instead of `arguments`."),
    "call_digest": hexadecimal("The call digest as the client computed it; must match.", least=64, most=64),
}
_KEYED: Final = {"explicit_key": explicit_key("The explicit key of the call, if it has one.")}
_TICKET: Final = {"ticket": text("The ticket to answer: its text or id, instead of run, tool and arguments.", most=200)}

PAUSE: Final = Fields(
    {
        **_CALL,
        "run": identifier("The run: one conversation, thread or job, named by the agent.", required=True),
        "tool": identifier("The tool's name.", required=True),
        **_KEYED,
        "why": free_text("What the agent says about it, for the people asked.", default=""),
        "ttl_seconds": seconds(
            "How long it can be answered.",
            least=_EARLIEST_SECONDS,
            most=tickets.MAX_TTL_SECONDS,
            default=DEFAULT_TICKET_SECONDS,
        ),
        "again": boolean("Ask anew although it was answered. While a ticket is open, it is that one."),
    }
)
APPROVAL: Final = Fields(
    {
        **_TICKET,
        **_CALL,
        **_KEYED,
        "reason": free_text("Why; only with a ticket, which keeps it."),
        "expires_seconds": seconds(
            "After how long a yes that is not used runs out; left out: never.", least=_EARLIEST_SECONDS, most=MAX_SECONDS
        ),
    }
)
DENIAL: Final = Fields({**_TICKET, **_CALL, "reason": free_text("Why: the agent is told exactly this.", default="")})

_TICKET_PROPERTIES: Final[Mapping[str, Any]] = {
    "id": {"type": "string", "description": "`tkt_` and 24 hexadecimal digits."},
    "text": {"type": "string", "description": "`c4a1.<id>.<mac>`: what names the ticket outside the record."},
    "run": {"type": "string"},
    "tool": {"type": "string"},
    "call_digest": {"type": "string"},
    "explicit_key": {"type": ["string", "null"]},
    "number": {"type": "integer", "description": "The n-th ticket about this action."},
    "state": {"type": "string", "enum": list(TICKET_STATES)},
    "why": {"type": "string", "description": "What the agent said."},
    "asked_by": {"type": "string"},
    "asked_at": {"type": "integer", "description": "µs since 1970, by the database's clock."},
    "expires_at": {"type": "integer"},
    "decided_by": {"type": ["string", "null"]},
    "decided_at": {"type": ["integer", "null"]},
    "reason": {"type": ["string", "null"]},
    "approval": {"type": ["string", "null"], "description": "Id of the approval that a yes made."},
    "arguments": {
        "type": ["object", "null"],
        "description": "Canonical JSON, in which what is not plain is a tagged object; null once erased.",
    },
    "arguments_text": {"type": ["string", "null"], "description": "The same as text, no digit changed: what the digest is over."},
}
TICKET: Final[Mapping[str, Any]] = {"type": "object", "properties": _TICKET_PROPERTIES, "required": ["id", "text", "state"]}
WAITED_TICKET: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {**_TICKET_PROPERTIES, "closed": {"type": "boolean", "description": "False if it is still open: ask again."}},
    "required": ["id", "text", "state", "closed"],
}
DECIDED: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "enum": ["approve", "deny"]},
        "by": {"type": "string", "description": "Whose key decided."},
        "ticket": {"type": ["string", "null"], "description": "Id of the ticket that this answered, if one was named."},
        "at": {"type": ["integer", "null"], "description": "When the ticket was closed, in µs since 1970."},
        "approval": {"type": ["string", "null"], "description": "Id of the approval that a yes made."},
        "call_digest": {"type": ["string", "null"], "description": "Of the action, if no ticket was named."},
    },
    "required": ["answer", "by"],
}


class Tickets(ApiView):
    """`POST tickets` and `GET tickets`."""

    _query = Fields(
        {
            "run": identifier("Only of this run."),
            "after": integer("The cursor that the page before gave as `next`.", least=0, default=0),
            "limit": integer("How many at most.", least=1, most=500, default=100),
        }
    )
    operations = {
        "post": Operation("ticket_open", ACT, TICKET, PAUSE),
        "get": Operation(
            "tickets_list",
            ACT_OR_READ,
            {"type": "object", "properties": {"tickets": {"type": "array", "items": TICKET}, "next": {"type": ["integer", "null"]}}},
            query=_query,
        ),
    }

    def post(self, given: Incoming) -> Answer:
        """Ask people about exactly one action.

        The same action asked about again is the same ticket, with its answer if there is one; so a lost answer is asked again.
        A ticket that expired, was cancelled or whose yes no longer counts is followed by a new one.
        """
        body, caller = given.body, given.caller
        asked = tickets.pause(
            executor_default(),
            caller.organization,
            keyring_default(),
            asked_call_from_body(body, caller.organization),
            actor=caller.actor,
            ttl_seconds=body["ttl_seconds"],
            why=body["why"],
            again=body["again"],
        )
        return Answer(*ticket_answer(asked))

    def get(self, given: Incoming) -> Answer:
        """List the open tickets, the oldest first."""
        query = given.query
        page, following = tickets.tickets_page(
            executor_default(),
            given.caller.organization,
            keyring_default(),
            run=query["run"],
            after=query["after"],
            limit=query["limit"],
        )
        listed = ", ".join(Answer(*ticket_answer(one)).text() for one in page)
        return Answer({"next": following}, {"tickets": f"[{listed}]"})


class TicketOne(ApiView):
    """`GET tickets/{ticket}`."""

    operations = {"get": Operation("ticket_get", ACT_OR_READ, TICKET, paths=TICKET_PATH)}

    def get(self, given: Incoming, ticket: str) -> Answer:
        """One ticket, open or closed, with its arguments."""
        return Answer(*ticket_answer(ticket_named(given.caller.organization, ticket)))


class TicketCancel(ApiView):
    """`POST tickets/{ticket}/cancel`."""

    _body = Fields({"reason": free_text("Why.", default="")})
    operations = {"post": Operation("ticket_cancel", ACT, TICKET, _body, paths=TICKET_PATH)}

    def post(self, given: Incoming, ticket: str) -> Answer:
        """Take a question back. May be repeated; a ticket that was answered stays answered."""
        caller = given.caller
        asked = ticket_named(caller.organization, ticket)
        tickets.cancel(executor_default(), caller.organization, keyring_default(), asked.text, by=caller.actor, reason=given.body["reason"])
        return Answer(*ticket_answer(ticket_named(caller.organization, asked.id)))


class Approvals(ApiView):
    """`POST approvals`."""

    operations = {"post": Operation("approval_create", DECIDE, DECIDED, APPROVAL)}

    def post(self, given: Incoming) -> Answer:
        """A yes to a ticket, or for exactly one action named by run, tool and arguments. Never by an agent's key.

        An answer to a ticket may be repeated, and is the same receipt; each yes without a ticket is another yes.
        """
        body, caller = given.body, given.caller
        if body["ticket"] is not None:
            return _decided(given, "approve", expires_in=body["expires_seconds"])
        call = _call_answered(given)
        if body["reason"] is not None:
            raise RequestRefused(
                "A yes keeps a reason only with a ticket.", errors=[{"field": "reason", "problem": "given without a ticket"}]
            )
        approval = answers.approve(
            executor_default(),
            caller.organization,
            keyring_default(),
            run=call.run,
            tool=call.tool,
            arguments=call.arguments,
            call_digest=call.call_digest,
            explicit_key=call.explicit_key,
            by=caller.actor,
            expires_in=body["expires_seconds"],
        )
        return _answered("approve", caller.actor, call, approval)


class Denials(ApiView):
    """`POST denials`."""

    operations = {"post": Operation("denial_create", DECIDE, DECIDED, DENIAL)}

    def post(self, given: Incoming) -> Answer:
        """A no to a ticket, or to one action named by run, tool and arguments, whatever its explicit key. Never by an agent's key.

        It beats every yes to this action that is not used yet.
        """
        body, caller = given.body, given.caller
        if body["ticket"] is not None:
            return _decided(given, "deny")
        call = _call_answered(given)
        answers.deny(
            executor_default(),
            caller.organization,
            run=call.run,
            tool=call.tool,
            arguments=call.arguments,
            call_digest=call.call_digest,
            by=caller.actor,
            reason=body["reason"],
        )
        return _answered("deny", caller.actor, call, None)


def ticket_named(organization: str, named: str) -> Ticket:
    """The organization's ticket with this id or text. One trip.

    Raises:
        TicketUnknown: this organization has no such ticket.
        TicketRefused: it is neither an id nor a text, or not as it was issued; field `why`.
    """
    key = ticket_id(named)
    if named == key:
        return tickets.ticket_by_id(executor_default(), organization, keyring_default(), key)
    return tickets.ticket(executor_default(), organization, keyring_default(), named)


def ticket_id(named: str) -> str:
    """The id in a ticket's text, or the id itself.

    Raises:
        TicketRefused: it is neither.
    """
    found = _NAMED.match(named)
    if found is None:
        raise TicketRefused(f"expected a ticket's id or text, tkt_… or c4a1.….…, got {named!r:.100}", why="malformed")
    return str(found[1] or found[2])


def ticket_answer(asked: Ticket) -> tuple[dict[str, Any], dict[str, str | None]]:
    """A ticket as document and raw members: `arguments` as JSON, and beside it their text."""
    document = asdict(asked)
    document["arguments_text"] = document.pop("arguments")
    return document, {"arguments": asked.arguments}


def _decided(given: Incoming, answer: YesOrNo, *, expires_in: float | None = None) -> Answer:
    """Answer the ticket that the body names."""
    body, caller = given.body, given.caller
    errors = [
        {"field": name, "problem": "given beside a ticket, which names the action"}
        for name in (*_CALL, *_KEYED)
        if body.get(name) is not None
    ]
    if errors:
        raise RequestRefused("Expected either a ticket or run, tool and arguments, got both.", errors=errors)
    asked = ticket_named(caller.organization, body["ticket"])
    decision: Decision = tickets.decide(
        executor_default(),
        caller.organization,
        keyring_default(),
        asked.text,
        answer,
        by=caller.actor,
        reason=body["reason"] or "",
        expires_in=expires_in,
    )
    receipt = {"answer": answer, "by": decision.by, "ticket": decision.ticket, "at": decision.at}
    return Answer({**receipt, "approval": decision.approval, "call_digest": None})


def _call_answered(given: Incoming) -> Call:
    """The action that the body names.

    Raises:
        RequestRefused: run or tool is missing.
    """
    missing = [{"field": name, "problem": "missing, and no ticket either"} for name in ("run", "tool") if given.body[name] is None]
    if missing:
        raise RequestRefused("Expected a ticket, or run, tool and arguments.", errors=missing)
    return asked_call_from_body(given.body, given.caller.organization)


def _answered(answer: YesOrNo, by: str, call: Call, approval: str | None) -> Answer:
    document = {"answer": answer, "by": by, "ticket": None, "at": None, "approval": approval}
    return Answer({**document, "call_digest": call.call_digest})
