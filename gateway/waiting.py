"""Long waits: an async view that holds no database connection while it waits.

PostgreSQL wakes it by NOTIFY, through one listening connection a process. Elsewhere, and in case a notice was lost, it looks again,
ever more slowly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.db import connection
from django.http import HttpRequest, HttpResponse

from c4a.errors import C4AError, EffectUnknown
from c4a.record import tickets
from c4a.record.dialects import POSTGRESQL, Statement
from c4a.record.types import Ticket
from gateway.api import Answer, ApiView, Incoming, Operation, answer_response, incoming_read
from gateway.effects import KEY_PATH, STATES
from gateway.fields import Fields, identifier, seconds
from gateway.problems import problem_response, unexpected_response
from gateway.threads import in_api_thread
from gateway.tickets import ACT_OR_READ, TICKET_PATH, WAITED_TICKET, ticket_answer, ticket_id, ticket_named
from ledger.executor import executor_default

logger = logging.getLogger(__name__)

CHANNEL: Final = "c4a_effect"
FIRST_PAUSE_SECONDS: Final = 0.02
MOST_PAUSE_SECONDS: Final = 0.5
RECHECK_SECONDS: Final = 2.0
"""With notices: how often to look all the same, since LISTEN fails silently through some poolers."""
RECONNECT_SECONDS: Final = 2.0
WSGI_SECONDS: Final = 1.0
"""Under WSGI a wait holds a thread that serves everybody: it is answered soon, and asked again."""

_ANSWER: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "state": {"type": "string", "enum": list(STATES)},
        "attempt": {"type": "integer"},
        "settled": {"type": "boolean", "description": "False if it is still running: ask again."},
    },
}
_NOTE_WAITER: Final = """
UPDATE c4a_effect SET waited = 1
WHERE organization = :organization AND key = :key AND state = 'running' AND waited = 0"""
_LOOK: Final = "SELECT state, attempt FROM c4a_effect WHERE organization = :organization AND key = :key"


_SECONDS: Final = seconds("How long to wait at most.", least=0, most=settings.WAIT_SECONDS_MAX, default=float(settings.WAIT_SECONDS_MAX))


class WaitView(ApiView):
    """A long wait. A subclass has a `get` that calls `wait_while`."""

    listens = True
    """False where the event loop ends with the request, so that a listening connection would serve one wait only."""

    async def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:  # type: ignore[override]
        """As any address; what is waited for is read in threads that keep no connection."""
        try:
            operation, handler = self.operation_of(request)
            given = await in_api_thread(incoming_read)(request, operation)
            if isinstance(request, WSGIRequest):
                given.query["seconds"] = min(given.query["seconds"], WSGI_SECONDS)
                self.listens = False
            return answer_response(await handler(given, **kwargs))
        except C4AError as error:
            return problem_response(error)
        except Exception as error:  # noqa: BLE001  (whatever it is, the client gets a problem document)
            return unexpected_response(error)

    async def wait_while[Seen](self, key: str, look: Callable[[], Seen], ends_in: Callable[[Seen], float | None], most: float) -> Seen:
        """Look until `ends_in` says 0 or `most` seconds are over; the last that was seen.

        `ends_in` says in how many seconds what was seen may end by itself; None: only by somebody's deed, of which a notice tells.
        """
        deadline = time.monotonic() + most
        has_notices = self.listens and _has_notices()
        pause = FIRST_PAUSE_SECONDS
        async with notices(key) if has_notices else _no_notices() as woken:
            while True:
                seen = await in_api_thread(look)()
                remaining, ends = deadline - time.monotonic(), ends_in(seen)
                if ends == 0 or remaining <= 0:
                    return seen
                woken.clear()
                again = RECHECK_SECONDS if has_notices else pause
                await _wait(woken, min(remaining, again if ends is None else min(again, max(ends, FIRST_PAUSE_SECONDS))))
                pause = min(pause * 1.5, MOST_PAUSE_SECONDS)


class WaitEffect(WaitView):
    """`GET wait/effects/{key}`."""

    _query = Fields({"run": identifier("The run, if the key alone is not enough."), "seconds": _SECONDS})
    operations = {"get": Operation("effect_wait", frozenset({"act", "read"}), _ANSWER, query=_query, paths=KEY_PATH)}

    async def get(self, given: Incoming, key: str) -> Answer:
        """Wait until an action is no longer running, at most 60 s.

        Answers its state at once if it is not running, else as soon as it is settled or the time is over.
        """
        where = {"organization": given.caller.organization, "key": key, "run": given.query["run"]}
        state, attempt = await self.wait_while(
            key, lambda: effect_look(where), lambda seen: None if seen[0] == "running" else 0, given.query["seconds"]
        )
        return Answer({"key": key, "state": state, "attempt": attempt, "settled": state != "running"})


class WaitTicket(WaitView):
    """`GET wait/tickets/{ticket}`."""

    operations = {"get": Operation("ticket_wait", ACT_OR_READ, WAITED_TICKET, query=Fields({"seconds": _SECONDS}), paths=TICKET_PATH)}

    async def get(self, given: Incoming, ticket: str) -> Answer:
        """Wait until a ticket is closed, at most 60 s.

        Answers at once if it is closed, else as soon as it is answered or cancelled, or its own time or this wait's is over.
        """
        organization, key = given.caller.organization, ticket_id(ticket)
        asked = await self.wait_while(key, lambda: ticket_waited_for(organization, ticket), ticket_ends_in, given.query["seconds"])
        document, raw = ticket_answer(asked)
        return Answer({**document, "closed": asked.state != "open"}, raw)


def ticket_waited_for(organization: str, named: str) -> Ticket:
    """The ticket, having said that somebody waits for it, so that its closing sends a notice. Two trips, one on SQLite.

    Raises:
        TicketUnknown, TicketRefused: it is none of this organization's, or not as it was issued.
    """
    executor = executor_default()
    if executor.dialect is POSTGRESQL:
        executor.trip([Statement(tickets.WAITING, {"organization": organization, "key": ticket_id(named)})])
    return ticket_named(organization, named)


def ticket_ends_in(asked: Ticket) -> float | None:
    """0 for a closed ticket, else in how many seconds to look whether its time is over. The database's clock says if it is."""
    left = asked.expires_at / 1_000_000 - time.time()
    return 0 if asked.state != "open" else left if left > 0 else MOST_PAUSE_SECONDS


def effect_look(where: Mapping[str, Any]) -> tuple[str, int]:
    """State and attempt, having said that somebody waits, so that the settlement sends a notice. One trip.

    Raises:
        EffectUnknown: no such effect in this organization.
    """
    narrowed = " AND run = :run" if where["run"] is not None else ""
    executor = executor_default()
    look = Statement(_LOOK + narrowed, where)
    if executor.dialect is POSTGRESQL:
        result = executor.trip([Statement(_NOTE_WAITER + narrowed, where), look])[1]
    else:
        result = executor.read([look])[0]
    if not result.rows:
        raise EffectUnknown(f"No action with key {where['key']} in this organization.", key=where["key"])
    return str(result.rows[0][0]), int(result.rows[0][1])


class Listener:
    """One connection of one event loop that listens for settled effects and closed tickets, while anybody waits."""

    def __init__(self) -> None:
        self.waiting: dict[str, set[asyncio.Event]] = {}
        self.ready = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen, if that has not begun."""
        if self.task is None or self.task.done():
            self.ready.clear()
            self.task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        import psycopg

        while self.waiting:
            try:
                async with await psycopg.AsyncConnection.connect(settings.DATABASE_DIRECT_URL, autocommit=True) as listening:
                    await listening.execute(f"LISTEN {CHANNEL}")
                    self.ready.set()
                    while self.waiting:
                        async for notice in listening.notifies(timeout=RECHECK_SECONDS):
                            self.wake(notice.payload)
            except psycopg.Error as error:
                # Waiters go on by looking again.
                logger.warning("Listening for settled effects and closed tickets broke off: %s", error)
                self.ready.set()
                await asyncio.sleep(RECONNECT_SECONDS)
            finally:
                # Whoever begins to wait from now on must not look before the next LISTEN.
                self.ready.clear()

    def wake(self, key: str) -> None:
        """Wake whoever waits for this effect or ticket."""
        for woken in self.waiting.get(key, ()):
            woken.set()


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, Listener] = WeakKeyDictionary()


@asynccontextmanager
async def notices(key: str) -> AsyncIterator[asyncio.Event]:
    """An event that is set whenever the effect may have been settled, or the ticket closed."""
    woken = asyncio.Event()
    listener = _listeners.setdefault(asyncio.get_running_loop(), Listener())
    listener.waiting.setdefault(key, set()).add(woken)
    listener.start()
    try:
        # Listening must have begun before the look, else a settlement between the two would go unheard.
        await _wait(listener.ready, RECHECK_SECONDS)
        yield woken
    finally:
        listener.waiting[key].discard(woken)
        if not listener.waiting[key]:
            del listener.waiting[key]


@asynccontextmanager
async def _no_notices() -> AsyncIterator[asyncio.Event]:
    """An event that is never set."""
    yield asyncio.Event()


async def _wait(woken: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(woken.wait(), seconds)


def _has_notices() -> bool:
    return connection.vendor == "postgresql"
