"""A ticket as stored: its row, the signature that binds its id to one action, and what is said about one that can't be used."""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from c4a.errors import RecordDamaged, TicketRefused, TicketUnknown
from c4a.keys import call_digest as digest_of
from c4a.record.dialects import Executor, Statement
from c4a.record.keyring import Keyring
from c4a.record.types import Ticket

TICKET_DOMAIN: Final = "c4a/ticket/v1"
TEXT_PREFIX: Final = "c4a1"

_TEXT: Final = re.compile(rf"{TEXT_PREFIX}\.(tkt_[0-9a-f]{{24}})\.([0-9a-f]{{64}})")

REMEMBERED: Final = 10_000
_seen: dict[tuple[str, str], TicketRow] = {}
"""What the signature of a ticket binds never changes, so a ticket seen once needs no look before it is answered."""

COLUMNS: Final = (
    "t.key, t.run, t.tool, t.call_digest, t.explicit_key, t.number, t.state, t.why, t.asked_by, t.asked_at, t.expires_at, t.mac, t.key_id, "
    "t.decided_by, t.decided_at, t.reason, t.approval, {now}"
)
SEE: Final = f"SELECT {COLUMNS} FROM c4a_ticket AS t WHERE t.organization = :organization AND t.key = :key"

# A subquery and not a join: on tables never analysed PostgreSQL then walks every entry of the run.
_OPENED: Final = """(
    SELECT o.payload FROM c4a_entry AS o WHERE o.organization = t.organization AND o.run = t.run AND o.key = t.key AND o.seq = 1
)"""

SEE_WITH_ARGUMENTS: Final = f"SELECT {COLUMNS}, {_OPENED} FROM c4a_ticket AS t WHERE t.organization = :organization AND t.key = :key"


def _page(of_run: str) -> str:
    # The sums keep the databases from walking all tickets by their ids: only the open ones are looked at, by their index.
    return f"""
SELECT {COLUMNS}, {_OPENED}, t.id
FROM (
    SELECT * FROM c4a_ticket AS p
    WHERE p.organization = :organization{of_run} AND p.state = 'open' AND p.expires_at > {{now}} AND p.id + 0 > :after
    ORDER BY p.id + 0 LIMIT :limit
) AS t ORDER BY t.id + 0"""


SEE_PAGE: Final = _page("")
SEE_PAGE_OF_RUN: Final = _page(" AND p.run = :run")


@dataclass(frozen=True)
class TicketRow:
    """A ticket as stored, and the clock when it was read."""

    ticket: Ticket
    mac: str
    key_id: str
    read_at: int


def remember(organization: str, row: TicketRow) -> None:
    """Keep a row whose signature was checked for `known`."""
    if len(_seen) >= REMEMBERED:
        _seen.clear()
    _seen[organization, row.ticket.id] = row


def known(organization: str, keyring: Keyring, text: str) -> TicketRow | None:
    """A ticket this process has seen, its signature checked. Its state may have changed since."""
    ticket_id, mac = parts_of(text)
    row = _seen.get((organization, ticket_id))
    return row if row is not None and row.mac == mac and is_signed(organization, keyring, row) else None


def read_row(executor: Executor, organization: str, keyring: Keyring, text: str) -> TicketRow:
    """The ticket's row, its signature checked. One trip.

    Raises:
        TicketUnknown: this record issued no such ticket.
        TicketRefused: its text or its row was changed.
    """
    ticket_id, _ = parts_of(text)
    rows = executor.read([Statement(SEE, {"organization": organization, "key": ticket_id})])[0].rows
    if not rows:
        raise unknown(text)
    row = row_from(rows[0])
    refuse_changed(organization, keyring, text, row)
    return row


def look(executor: Executor, organization: str, ticket_id: str, said: str) -> tuple[TicketRow, str | None]:
    """The ticket's row, its signature not checked, and the payload of its first entry. One trip.

    Raises:
        TicketUnknown: this record issued no such ticket; named as it was `said`.
    """
    rows = executor.read([Statement(SEE_WITH_ARGUMENTS, {"organization": organization, "key": ticket_id})])[0].rows
    if not rows:
        raise unknown(said)
    return row_from(rows[0]), rows[0][-1]


def parts_of(text: str) -> tuple[str, str]:
    """Id and signature of a ticket's text. Raises `TicketRefused` if it is none."""
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise TicketRefused(f"expected a ticket's text, {TEXT_PREFIX}.<id>.<signature>, got {text!r:.100}", why="malformed")
    return found[1], found[2]


def row_from(row: tuple[Any, ...]) -> TicketRow:
    """A ticket from a row of `COLUMNS`."""
    key, run, tool, digest, explicit_key, number, state, why, asked_by, asked_at, expires_at, mac, key_id, by, at, reason, approval = row[
        :17
    ]
    asked = Ticket(
        id=key, text=f"{TEXT_PREFIX}.{key}.{mac}", run=run, tool=tool, arguments=None, call_digest=digest, explicit_key=explicit_key,
        number=number, state=state, why=why, asked_by=asked_by, asked_at=asked_at, expires_at=expires_at, decided_by=by, decided_at=at,
        reason=reason, approval=approval,
    )  # fmt: skip
    return TicketRow(asked, mac, key_id, row[17])


def shown(row: TicketRow, payload: str | None) -> Ticket:
    """A ticket with its arguments; one whose time is over shows as expired before anybody has written so.

    Raises:
        RecordDamaged: the arguments kept with it are not those it asks about.
    """
    arguments = json.loads(payload).get("arguments") if payload else None
    if arguments is not None and digest_of(row.ticket.tool, arguments) != row.ticket.call_digest:
        raise RecordDamaged(
            f"the arguments kept with ticket {row.ticket.id} are not those it asks about: run `c4a verify`",
            run=row.ticket.run,
            key=row.ticket.id,
        )
    over = row.ticket.state == "open" and row.ticket.expires_at <= row.read_at
    return replace(row.ticket, arguments=arguments, state="expired" if over else row.ticket.state)


def signed_fields(
    organization: str, ticket_id: str, run: str, tool: str, call_digest: str, explicit_key: str | None, expires_at: int
) -> list[str]:
    """What a ticket's signature binds, in order."""
    return [ticket_id, organization, run, tool, call_digest, "-" if explicit_key is None else "=" + explicit_key, str(expires_at)]


def is_signed(organization: str, keyring: Keyring, row: TicketRow) -> bool:
    """True if a secret at hand signed exactly what the row says."""
    asked = row.ticket
    fields = signed_fields(organization, asked.id, asked.run, asked.tool, asked.call_digest, asked.explicit_key, asked.expires_at)
    return keyring.verifies(row.mac, row.key_id, TICKET_DOMAIN, fields)


def refuse_changed(organization: str, keyring: Keyring, text: str, row: TicketRow) -> None:
    """Raise `TicketRefused` unless this record's secret signed both the text and the row."""
    if not hmac.compare_digest(row.ticket.text.encode(), text.encode()) or not is_signed(organization, keyring, row):
        raise changed(text)


def closed_error(asked: Ticket) -> TicketRefused:
    """The error for a ticket that is closed already, saying by whom and when."""
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


def damaged(asked: Ticket) -> RecordDamaged:
    """The error for a head that isn't what its entries say."""
    return RecordDamaged(
        f"the head of ticket {asked.id} disagrees with its entries; nothing was written: run `c4a verify`, then `c4a rebuild`",
        run=asked.run,
        key=asked.id,
    )


def unknown(text: str) -> TicketUnknown:
    """The error for a ticket that isn't in this record."""
    return TicketUnknown(f"this record issued no ticket {text[:40]}…: it is forged, or another record's", why="unknown")


def changed(text: str) -> TicketRefused:
    """The error for a text or a row that no secret at hand signed."""
    return TicketRefused(
        f"the ticket {text[:40]}… is not as this record issued it: its text or its row was changed, or its secret is gone", why="changed"
    )
