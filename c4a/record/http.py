"""The record behind a C4A server: the same verbs over its REST API. httpx is imported when a record is opened."""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

from c4a.canonical import canonical_from_codec
from c4a.errors import (
    DecideNotAllowed,
    EffectUnknown,
    InvalidArguments,
    LedgerError,
    NotAuthenticated,
    RecordUnreachable,
    RequestRefused,
    StaleVerdict,
    error_from_problem,
)
from c4a.record.entries import plain_text
from c4a.record.types import (
    DEFAULT_GRACE_SECONDS,
    DEFAULT_TICKET_SECONDS,
    Answer,
    Call,
    Claimant,
    Decision,
    Effect,
    Entry,
    Finding,
    Grant,
    Recorded,
    State,
    Ticket,
    Verdict,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

RETRY_SECONDS: Final = (0.0, 0.05, 0.25, 1.0)
CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 50.0
"""One long wait; the server allows 60, and proxies often end a silent request after 60."""
CONNECTIONS: Final = 32
PAGE: Final = 500
HEARTBEAT_CLAIMS: Final = 1000
"""As many as the server takes in one request: one too many would be refused, and every lease of this process would lapse."""
_KEY: Final = re.compile(r"\Ac4a_[A-Za-z0-9_-]{8,200}\Z")
_DROPPED: Final = frozenset({502, 503, 504})
"""The server, or a proxy before it, could not answer; every call that is sent again carries its token."""


class ServerRecord:
    """Implements `c4a.record.types.Record` over a server. Thread-safe and fork-safe.

    A lost answer is asked again with the same token, which the server answers alike.

    Raises:
        InvalidArguments: `url` or `key` has a wrong form.
        NotAuthenticated: the key is unknown, revoked or expired.
        RecordUnreachable: no answer.
    """

    organization: str
    place: str
    digest_key: bytes | None
    """Keys the digests of secret arguments; None for a key that may not act."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise InvalidArguments("url: expected https://host[:port][/path] of a C4A server", parameter="url")
        if not _KEY.match(key):
            raise InvalidArguments("key: expected the key the server gave out, which begins with c4a_", parameter="key")
        self.place = url.rstrip("/")
        self._key = key
        self._lock = threading.Lock()
        _records.add(self)
        self._client: httpx.Client | None = None
        self._abandoned: list[object] = []
        self._pid = os.getpid()
        self._sent = threading.local()
        try:
            me = self._get("me")
        except BaseException:
            self.close()
            raise
        self.organization = str(me["organization"]["id"])
        self.actor = str(me["actor"])
        self.digest_key = bytes.fromhex(me["digest_key"]) if me.get("digest_key") else None

    def __repr__(self) -> str:
        return f"ServerRecord({self.place!r})"

    def claim(self, call: Call, claimant: Claimant) -> Grant | Recorded:
        return _outcome(self._post("effects/claim", _claim_body(call, claimant)))

    def reclaim(
        self, call: Call, claimant: Claimant, *, attempt: int, window_seconds: float, grace_seconds: float = DEFAULT_GRACE_SECONDS
    ) -> Grant:
        body = _claim_body(call, claimant)
        body.update(attempt=attempt, window_seconds=window_seconds, grace_seconds=grace_seconds)
        outcome = _outcome(self._post(f"effects/{call.key}/reclaim", body))
        if isinstance(outcome, Recorded):
            raise LedgerError(f"{self.place} answered a reclaim with a recorded result: client and server are of different versions")
        return outcome

    def complete(self, run: str, key: str, token: str, *, result: str | None, note: str | None = None) -> str:
        body = {"run": run, "token": token, "result_codec": result, "note": note}
        return str(self._post(f"effects/{key}/complete", body)["outcome"])

    def fail(self, run: str, key: str, token: str, *, error: str, nothing_happened: bool = False, reason: str = "raised") -> str:
        body = {"run": run, "token": token, "error": plain_text(error), "nothing_happened": nothing_happened, "reason": reason}
        return str(self._post(f"effects/{key}/fail", body)["outcome"])

    def release(self, run: str, key: str, token: str) -> str:
        return str(self._post(f"effects/{key}/release", {"run": run, "token": token})["outcome"])

    def heartbeat(self, claims: Sequence[tuple[str, str, str]], lease_seconds: float) -> list[str]:
        lost: list[str] = []
        # Whoever waits for an answer longer than the lease keeps nothing alive: a connection that died unheard is given up soon.
        patience = max(1.0, min(READ_SECONDS, lease_seconds / 3))
        for first in range(0, len(claims), HEARTBEAT_CLAIMS):
            some = [{"run": run, "key": key, "token": token} for run, key, token in claims[first : first + HEARTBEAT_CLAIMS]]
            lost += [
                str(key) for key in self._post("effects/heartbeat", {"claims": some, "lease_seconds": lease_seconds}, patience)["lost"]
            ]
        return lost

    def declare_dead(self, run: str, key: str, *, attempt: int, holder: str, actor: str) -> None:
        del actor  # the server knows the actor by the key
        self._post(f"effects/{key}/declare-dead", {"run": run, "attempt": attempt, "holder": holder})

    def wait(self, run: str, key: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            remaining = max(0.0, deadline - time.monotonic())
            this_time = min(remaining, WAIT_SECONDS)
            try:
                answer = self._get(
                    f"wait/effects/{key}", {"run": run, "seconds": f"{this_time:.3f}"}, read_seconds=this_time + READ_SECONDS
                )
            except EffectUnknown:
                return
            if answer["settled"] or deadline - time.monotonic() <= 0:
                return

    def ask(
        self,
        run: str,
        key: str,
        *,
        attempt: int,
        token: str,
        actor: str,
        after_seconds: float,
        lease_seconds: float,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
    ) -> None:
        del actor
        body = {
            "run": run,
            "attempt": attempt,
            "token": token,
            "after_seconds": after_seconds,
            "lease_seconds": lease_seconds,
            "grace_seconds": grace_seconds,
        }
        self._post(f"effects/{key}/ask", body)

    def answer(
        self, run: str, key: str, token: str, *, verdict: Verdict | Literal["unknown"], result: str | None = None, actor: str
    ) -> None:
        del actor
        body = {"run": run, "token": token, "verdict": verdict, "result_codec": result}
        self._once(lambda: self._post(f"effects/{key}/answer", body), key, run, "in_doubt" if verdict == "unknown" else verdict)

    def resolve(
        self,
        key: str,
        verdict: Verdict,
        *,
        attempt: int,
        note: str,
        actor: str,
        run: str | None = None,
        result: str | None = None,
        confirm_lapsed: bool = False,
        new_outside_key: bool = False,
    ) -> Effect:
        del actor
        body = {
            "run": run,
            "verdict": verdict,
            "attempt": attempt,
            "note": plain_text(note),
            "result_codec": result,
            "confirm_lapsed": confirm_lapsed,
            "new_outside_key": new_outside_key,
        }
        answer = self._once(lambda: self._post(f"effects/{key}/resolve", body), key, run, verdict)
        if answer is None:
            answer = self._get(f"effects/{key}", {"run": run})
        return _effect(answer)

    def approve(
        self, *, run: str, tool: str, arguments: str, call_digest: str, explicit_key: str | None, by: str, expires_in: float | None = None
    ) -> str:
        self._refuse_deciding("approve")

    def deny(self, *, run: str, tool: str, arguments: str, call_digest: str, by: str, reason: str = "") -> None:
        self._refuse_deciding("deny")

    def pause(self, call: Call, *, actor: str, ttl_seconds: float = DEFAULT_TICKET_SECONDS, why: str = "", again: bool = False) -> Ticket:
        del actor
        body = {
            "run": call.run,
            "tool": call.tool,
            "arguments_codec": call.arguments_codec,
            "explicit_key": call.explicit_key,
            # Sent along so that the server refuses a call that it does not read as this client does.
            "call_digest": call.call_digest,
            "why": plain_text(why),
            "ttl_seconds": ttl_seconds,
            "again": again,
        }
        return _ticket(self._post("tickets", body))

    def decide(self, ticket: str, answer: Answer, *, by: str, reason: str = "", expires_in: float | None = None) -> Decision:
        self._refuse_deciding("decide")

    def cancel(self, ticket: str, *, by: str, reason: str = "") -> None:
        del by  # the server knows the actor by the key
        self._post(f"tickets/{_part(ticket)}/cancel", {"reason": plain_text(reason)})

    def withdraw(self, approval: str, *, run: str, by: str, reason: str = "") -> None:
        self._refuse_deciding("withdraw a yes")

    def ticket(self, ticket: str) -> Ticket:
        return _ticket(self._get(f"tickets/{_part(ticket)}"))

    def tickets(self, *, run: str | None = None, limit: int = 100) -> list[Ticket]:
        found: list[Ticket] = []
        cursor: int | None = 0
        while cursor is not None and len(found) < limit:
            page = self._get("tickets", {"run": run, "after": cursor, "limit": min(PAGE, limit - len(found))})
            found += [_ticket(one) for one in page["tickets"]]
            cursor = page["next"]
        return found

    def wait_ticket(self, ticket: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            this_time = min(max(0.0, deadline - time.monotonic()), WAIT_SECONDS)
            address, query = f"wait/tickets/{_part(ticket)}", {"seconds": f"{this_time:.3f}"}
            answer = self._get(address, query, read_seconds=this_time + READ_SECONDS)
            if answer["closed"] or deadline - time.monotonic() <= 0:
                return

    def freeze(self, *, run: str | None = None, agent: str | None = None, by: str, note: str = "") -> None:
        del by
        self._post(f"{_stopped(run, agent)}/freeze", {"note": plain_text(note)})

    def thaw(self, *, run: str | None = None, agent: str | None = None, by: str, note: str = "") -> None:
        del by
        self._post(f"{_stopped(run, agent)}/thaw", {"note": plain_text(note)})

    def effect(self, key: str, run: str | None = None) -> Effect | None:
        try:
            return _effect(self._get(f"effects/{key}", {"run": run}))
        except EffectUnknown:
            return None

    def effects(self, *, run: str | None = None, state: State | None = None, after: int = 0, limit: int = 100) -> list[Effect]:
        found: list[Effect] = []
        cursor: int | None = after
        while cursor is not None and len(found) < limit:
            page = self._get("effects", {"run": run, "state": state, "after": cursor, "limit": min(PAGE, limit - len(found))})
            found += [_effect(one) for one in page["effects"]]
            cursor = page["next"]
        return found

    def entries(self, *, run: str | None = None, key: str | None = None, after: int = 0, limit: int = 1000) -> list[Entry]:
        if run is None:
            raise RequestRefused("a server lists the entries of one run: name it with run=…")
        found: list[Entry] = []
        cursor: int | None = after
        while cursor is not None and len(found) < limit:
            query = {"key": key, "after": cursor, "limit": min(PAGE, limit - len(found))}
            page = self._get(f"runs/{_part(run)}/entries", query)
            found += [Entry(**entry) for entry in page["entries"]]
            cursor = page["next"]
        return found

    def verify(self) -> list[Finding]:
        raise LedgerError("a server's record is verified where it is kept: run `manage.py record_verify` there")

    def rebuild(self) -> int:
        raise LedgerError("a server's heads are folded anew where they are kept: run `manage.py record_rebuild` there")

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.close()

    def _refuse_deciding(self, what: str) -> NoReturn:
        raise DecideNotAllowed(
            f"an agent's key can never {what}: over a server a person answers there, or a service key decides. Nothing was recorded",
            needs=["decide"],
            has=["act"],
        )

    def _once(self, ask: Callable[[], T], key: str, run: str | None, expected: str) -> T | None:
        """Ask something that is not answered alike twice: if the answer was lost, the state says whether the question arrived."""
        try:
            return ask()
        except StaleVerdict as stale:
            if not getattr(self._sent, "again", False) or stale.fields.get("state") != expected:
                raise
            return None

    def _get(self, path: str, query: Mapping[str, Any] | None = None, *, read_seconds: float = READ_SECONDS) -> Any:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._request("GET", path, params=given, read_seconds=read_seconds)

    def _post(self, path: str, body: Mapping[str, Any], read_seconds: float = READ_SECONDS) -> Any:
        given = {name: value for name, value in body.items() if value is not None}
        return self._request("POST", path, body=given, read_seconds=read_seconds)

    def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> Any:
        module = _httpx()
        timeout = module.Timeout(read_seconds, connect=CONNECT_SECONDS)
        self._sent.again = False
        lost = ""
        for pause in RETRY_SECONDS:
            if pause:
                time.sleep(pause)
            self._sent.again = pause > 0
            try:
                response = self._open().request(method, f"{self.place}/api/v1/{path}", params=params, json=body, timeout=timeout)
            except module.TransportError as error:
                lost = f"{type(error).__name__}: {error}"
                continue
            if response.status_code not in _DROPPED:
                return self._answer(response)
            lost = f"status {response.status_code}"
        raise RecordUnreachable(
            f"{self.place} did not answer ({lost}): whether the last write arrived is settled by calling again with the same token"
        )

    def _answer(self, response: httpx.Response) -> Any:
        kind = response.headers.get("content-type", "").partition(";")[0]
        if response.status_code == 200 and kind == "application/json":
            return response.json()
        if kind == "application/problem+json":
            raise error_from_problem(response.json())
        if response.status_code == 401:
            raise NotAuthenticated(f"{self.place} did not accept the key")
        raise LedgerError(
            f"{self.place} answered {response.status_code} with {kind or 'nothing'}, which no C4A server does: check the address",
            answered=response.status_code,
        )

    def _open(self) -> httpx.Client:
        with self._lock:
            if self._pid != os.getpid():
                # A child of fork must not speak on its parent's connections, nor close them.
                self._abandoned.append(self._client)
                self._client, self._pid = None, os.getpid()
            if self._client is None:
                self._client = _new_client(self._key)
            return self._client

    def _after_fork(self) -> None:
        # Another thread of the parent may have held it.
        self._lock = threading.Lock()


_records: weakref.WeakSet[ServerRecord] = weakref.WeakSet()


def _after_fork() -> None:
    for record in list(_records):
        record._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise LedgerError("a record behind a server needs httpx: pip install 'c4a[http]'") from error
    return httpx


def _new_client(key: str) -> httpx.Client:
    module = _httpx()
    client: httpx.Client = module.Client(
        headers={"Authorization": f"Bearer {key}", "User-Agent": "c4a"},
        limits=module.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
    )
    return client


def _claim_body(call: Call, claimant: Claimant) -> dict[str, Any]:
    return {
        "run": call.run,
        "tool": call.tool,
        "arguments_codec": call.arguments_codec,
        "explicit_key": call.explicit_key,
        "exclude": list(call.exclude) or None,
        "gated": call.gated,
        "has_undo": call.has_undo or None,
        "parent": call.parent,
        # Sent along so that the server refuses a call that it does not read as this client does.
        "key": call.key,
        "call_digest": call.call_digest,
        "args_digest": call.args_digest,
        "token": claimant.token,
        "holder": claimant.holder or None,
        "lease_seconds": claimant.lease_seconds,
    }


def _outcome(answer: Mapping[str, Any]) -> Grant | Recorded:
    if answer["outcome"] == "granted":
        return Grant(run=answer["run"], key=answer["key"], attempt=answer["attempt"], epoch=answer["epoch"], approval=answer["approval"])
    return Recorded(
        run=answer["run"],
        key=answer["key"],
        attempt=answer["attempt"],
        result=answer["result_codec"],
        done_at=answer["done_at"],
        note=answer["note"],
    )


def _effect(answer: Mapping[str, Any]) -> Effect:
    values = {field.name: answer.get(field.name) for field in fields(Effect)}
    codec = answer.get("arguments_codec")
    # The JSON of the answer has lost digits to floats by now; the codec texts have not.
    values["arguments"] = canonical_from_codec(codec) if codec is not None else None
    values["result"] = answer.get("result_codec")
    return Effect(**values)  # type: ignore[arg-type]


def _ticket(answer: Mapping[str, Any]) -> Ticket:
    values = {field.name: answer.get(field.name) for field in fields(Ticket)}
    # As with effects: only the text has all its digits.
    values["arguments"] = answer.get("arguments_text")
    return Ticket(**values)  # type: ignore[arg-type]


def _part(name: str) -> str:
    """A name as one part of an address; dots too, since clients take `..` for the folder above."""
    return quote(name, safe="").replace(".", "%2E")


def _stopped(run: str | None, agent: str | None) -> str:
    if run is not None and agent is None:
        return f"runs/{_part(run)}"
    if agent is not None and run is None:
        return f"agents/{_part(agent.removeprefix('agent:'))}"
    raise RequestRefused(f"name either a run or an agent, got run={run!r} and agent={agent!r}")
