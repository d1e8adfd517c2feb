"""What goes into the record's verbs and what comes out: frozen values, no behaviour.

Times are integers: microseconds since 1970-01-01 UTC by the database's clock. Digests are 64 hex characters (SHA-256).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

State = Literal["running", "done", "in_doubt", "not_done", "undoing", "undone"]
Verdict = Literal["done", "not_done"]
TicketState = Literal["open", "approved", "denied", "expired", "cancelled", "superseded"]
Answer = Literal["approve", "deny"]

DEFAULT_LEASE_SECONDS: Final = 15.0
DEFAULT_GRACE_SECONDS: Final = 30.0
HEARTBEAT_SECONDS: Final = 5.0
DEFAULT_TICKET_SECONDS: Final = 86_400.0
MAX_ARGUMENTS_BYTES: Final = 1_048_576
MAX_RESULT_BYTES: Final = 1_048_576
MAX_IDENTIFIER_BYTES: Final = 256

DOUBT_REASONS: Final = {
    "raised": "the body raised, so the action may have happened",
    "cancelled": "the caller gave up (timeout or cancellation) while the body ran",
    "dead": "the process that ran it is proved gone",
    "lapsed": "its lease ran out without a heartbeat",
    "unknown": "a look-up outside gave no answer",
}


@dataclass(frozen=True)
class Call:
    """One tool called with arguments in one run, with every digest already computed."""

    run: str
    tool: str
    arguments: str
    """Canonical JSON text (RFC 8785) of an object: parameter name to canonical value, all parameters."""
    arguments_codec: str
    """Typed codec text of the same object."""
    call_digest: str
    """What a person approves: over tool and all arguments."""
    args_digest: str
    """What an explicit key must keep meaning: as `call_digest`, without the parameters named by `exclude=`."""
    key: str
    """The effect key."""
    explicit_key: str | None = None
    gated: bool = False
    """True if the action needs a yes for exactly these arguments."""
    parent: str | None = None
    """Effect key of the effect inside whose body this one is called."""
    has_undo: bool = False
    """True if the tool registers how to reverse it; the intent says so, for a process in which the tool isn't loaded."""
    exclude: tuple[str, ...] = ()
    """Parameters that `args_digest` and `key` leave out, so that a server can compute both itself."""


@dataclass(frozen=True)
class Claimant:
    """Who asks: `token` is the fence, made by the caller before it asks, so that a lost answer can be asked again."""

    token: str = field(repr=False)
    """At least 128 random bits as hex. Only its SHA-256 is stored."""
    actor: str
    """`agent:<id>`, `local:<user>` or `worker:<name>`."""
    holder: str = ""
    """Liveness text of the claiming process (`c4a.liveness.holder_text`), empty if unknown."""
    lease_seconds: float = DEFAULT_LEASE_SECONDS


@dataclass(frozen=True)
class Grant:
    """The right to run one attempt."""

    run: str
    key: str
    attempt: int
    epoch: int
    """Part of the outside key; raised only by a person who asks for a new outside key."""
    approval: str | None = None
    """Id of the approval this attempt runs under."""


@dataclass(frozen=True)
class Recorded:
    """The action was done before: its recorded result, not run again."""

    run: str
    key: str
    attempt: int
    result: str | None
    """Codec text; None when the result could not be kept (see `note`)."""
    done_at: int
    note: str | None = None
    """Why there is no result (`oversize`, `unrecordable`, `erased`, `resolved`), else None."""


@dataclass(frozen=True)
class Effect:
    """The head of one effect, as read. Field meanings as the columns of `c4a_effect`."""

    run: str
    key: str
    tool: str
    state: State
    attempt: int
    epoch: int
    explicit_key: str | None
    call_digest: str
    parent: str | None
    approval: str | None
    reason: str | None
    error: str | None
    actor: str
    holder: str
    lease_until: int
    first_at: int
    last_at: int
    done_at: int | None
    happened_twice: bool
    arguments: str | None
    """Canonical text from the last intent entry; None once erased."""
    arguments_codec: str | None
    result: str | None
    note: str | None


@dataclass(frozen=True)
class Entry:
    """One row of the append-only record."""

    id: int
    run: str
    kind: str
    key: str
    seq: int
    attempt: int
    approval: str | None
    payload: dict[str, Any] | None
    actor: str
    recorded_at: int
    prev: str
    digest: str


@dataclass(frozen=True)
class Ticket:
    """One question to people about one action. It is a question about exactly these arguments and no others."""

    id: str
    """`tkt_` and 96 random bits."""
    text: str
    """`c4a1.<id>.<mac>`: what names the ticket outside the record. It carries no arguments."""
    run: str
    tool: str
    arguments: str | None
    """Canonical text; None once erased, and where a verb had no need to read it."""
    call_digest: str
    explicit_key: str | None
    number: int
    """The n-th ticket about this action."""
    state: TicketState
    why: str
    """What the agent said."""
    asked_by: str
    asked_at: int
    expires_at: int
    decided_by: str | None = None
    decided_at: int | None = None
    reason: str | None = None
    approval: str | None = None
    """Id of the approval that a yes made."""


@dataclass(frozen=True)
class Decision:
    """The receipt of an answer: the same for the same answer by the same person, however often it is given."""

    ticket: str
    """The ticket's id."""
    answer: Answer
    by: str
    at: int
    reason: str
    approval: str | None


@dataclass(frozen=True)
class Finding:
    """One thing `verify` found wrong: where and what."""

    run: str
    key: str
    seq: int
    problem: str


class Record(Protocol):
    """What `@c4a.effect` needs of a record; a file, a shared database and a server all offer exactly this.

    Every method is synchronous, thread-safe and fork-safe, and may be repeated with the same token after a lost answer.
    """

    organization: str
    place: str
    """The file path, database address (without password) or server address."""

    def claim(self, call: Call, claimant: Claimant) -> Grant | Recorded:
        """Give one attempt to this caller, or the recorded result.

        Raises:
            EffectRunning: a live claim holds it (fields `holder`, `lease_until`).
            EffectInDoubt: an attempt began and its outcome is unknown; a lapsed lease is marked so here.
            EffectUndone, KeyConflict, ApprovalRequired, ApprovalDenied, ApprovalExpired, AgentFrozen.
        """

    def reclaim(self, call: Call, claimant: Claimant, *, attempt: int, window_seconds: float, grace_seconds: float = ...) -> Grant:
        """Start attempt n+1 under the same outside key: only of an in-doubt `attempt` whose body has ended,
        and only within `window_seconds` of the first intent by the database's clock.

        Raises:
            EffectInDoubt: outside the window, still possibly running, or another caller was first.
        """

    def complete(self, run: str, key: str, token: str, *, result: str | None, note: str | None = None) -> str | None:
        """Settle as done with the codec text of the result (or `result=None` and a `note` saying why not); a record may say how it went.

        Its own late outcome settles too while no newer attempt began; if one did, the finding `happened_twice` is recorded.

        Raises:
            ClaimLost: the token never held this effect.
        """

    def fail(self, run: str, key: str, token: str, *, error: str, nothing_happened: bool = False, reason: str = "raised") -> str | None:
        """The body raised: in doubt (reason `raised` or `cancelled`), or not_done if `nothing_happened` is proved."""

    def release(self, run: str, key: str, token: str) -> str | None:
        """The body never began: not_done, the yes is kept."""

    def heartbeat(self, claims: Sequence[tuple[str, str, str]], lease_seconds: float) -> list[str]:
        """Extend the lease of (run, key, token) claims in one trip; returns the keys that are no longer held."""

    def declare_dead(self, run: str, key: str, *, attempt: int, holder: str, actor: str) -> None:
        """The caller proved that the holder's process is gone (same machine): in doubt at once, reason `dead`."""

    def wait(self, run: str, key: str, seconds: float) -> None:
        """Block until the effect is no longer running, or `seconds` passed; returns nothing, claim again to know."""

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
        grace_seconds: float = ...,
    ) -> None:
        """Take the sole right to ask the outside about an in-doubt attempt whose body has ended (reconcile).

        Raises:
            EffectInDoubt: somebody else asks, too early (`after_seconds` since the attempt's last entry), or still possibly running.
            StaleVerdict: the attempt is no longer the in-doubt one.
        """

    def answer(
        self, run: str, key: str, token: str, *, verdict: Verdict | Literal["unknown"], result: str | None = None, actor: str
    ) -> None:
        """What the outside said: done (with codec text of the result), not_done, or unknown (stays in doubt)."""

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
        """A person's verdict on an effect in doubt.

        Raises:
            StaleVerdict: not in doubt, or `attempt` is not the last attempt.
            EffectRunning: it is running, not in doubt.
            EffectUnknown: no such key.
            RequestRefused: blank note or actor, or not-done on a claim that merely lapsed without `confirm_lapsed`.
        """

    def approve(
        self, *, run: str, tool: str, arguments: str, call_digest: str, explicit_key: str | None, by: str, expires_in: float | None = None
    ) -> str:
        """Record a yes for exactly one action; returns the approval's id."""

    def deny(self, *, run: str, tool: str, arguments: str, call_digest: str, by: str, reason: str = "") -> None:
        """Record a no: cancels every unspent yes of this call."""

    def pause(self, call: Call, *, actor: str, ttl_seconds: float = ..., why: str = "", again: bool = False) -> Ticket:
        """Ask people about one action; asked again, the latest ticket about it, unless it ended without an answer that counts.

        `again` asks anew also after an answer; while a ticket is open, it is that one.

        Raises:
            AgentFrozen: the run or the agent was stopped.
            RequestRefused: `ttl_seconds` is not above 0.
        """

    def decide(self, ticket: str, answer: Answer, *, by: str, reason: str = "", expires_in: float | None = None) -> Decision:
        """Close a ticket with a yes (which may run out after `expires_in` seconds) or a no. The first answer counts.

        Raises:
            TicketRefused: another answer was first (fields `by`, `at`), or the ticket is not one to answer; field `why`.
        """

    def cancel(self, ticket: str, *, by: str, reason: str = "") -> None:
        """Take a question back. Raises as `decide`."""

    def withdraw(self, approval: str, *, run: str, by: str, reason: str = "") -> None:
        """Take back a yes that is not spent; `approval` is its id, or the text of the ticket that made it (then `run` is not needed).

        Raises:
            TicketRefused: it is spent, void already, or unknown; field `why`.
        """

    def ticket(self, ticket: str) -> Ticket:
        """A ticket by its text. Raises `TicketRefused` if this record did not issue it."""

    def tickets(self, *, run: str | None = None, limit: int = 100) -> list[Ticket]:
        """Open tickets, the oldest first."""

    def wait_ticket(self, ticket: str, seconds: float) -> None:
        """Block until the ticket is closed or its time is over, or `seconds` passed. Raises as `ticket`."""

    def freeze(self, *, run: str | None = None, agent: str | None = None, by: str, note: str = "") -> None: ...

    def thaw(self, *, run: str | None = None, agent: str | None = None, by: str, note: str = "") -> None: ...

    def effect(self, key: str, run: str | None = None) -> Effect | None: ...

    def effects(self, *, run: str | None = None, state: State | None = None, after: int = 0, limit: int = 100) -> list[Effect]: ...

    def entries(self, *, run: str | None = None, key: str | None = None, after: int = 0, limit: int = 1000) -> list[Entry]: ...

    def verify(self) -> list[Finding]: ...

    def rebuild(self) -> int:
        """Fold all heads anew from entries; returns how many heads were written."""

    def close(self) -> None: ...
