"""A record that runs the verbs itself, over its own connections: a file or a shared database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal

from c4a.record import answers, doubt, freeze, reads, settle, tickets, verify
from c4a.record.claim import claim, reclaim
from c4a.record.dialects import Executor, Statement
from c4a.record.keyring import Keyring
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


class VerbRecord:
    """Implements `c4a.record.types.Record` over an executor; subclasses say how to get one and how to wait."""

    organization: str
    place: str
    _keyring: Keyring

    def executor(self) -> AbstractContextManager[Executor]:
        """Borrow an executor; one verb runs on one connection."""
        raise NotImplementedError

    def wait(self, run: str, key: str, seconds: float) -> None:
        """Block until the effect is no longer running, or `seconds` passed."""
        raise NotImplementedError

    def wait_ticket(self, ticket: str, seconds: float) -> None:
        """Block until the ticket is closed or its time is over, or `seconds` passed."""
        raise NotImplementedError

    def close(self) -> None:
        """Give all connections back."""
        raise NotImplementedError

    def claim(self, call: Call, claimant: Claimant) -> Grant | Recorded:
        with self.executor() as executor:
            return claim(executor, self.organization, call, claimant, self._keyring)

    def reclaim(
        self, call: Call, claimant: Claimant, *, attempt: int, window_seconds: float, grace_seconds: float = DEFAULT_GRACE_SECONDS
    ) -> Grant:
        with self.executor() as executor:
            return reclaim(
                executor, self.organization, call, claimant, self._keyring,
                attempt=attempt, window_seconds=window_seconds, grace_seconds=grace_seconds,
            )  # fmt: skip

    def complete(self, run: str, key: str, token: str, *, result: str | None, note: str | None = None) -> str:
        with self.executor() as executor:
            return settle.complete(executor, self.organization, run, key, token, result=result, note=note)

    def fail(self, run: str, key: str, token: str, *, error: str, nothing_happened: bool = False, reason: str = "raised") -> str:
        with self.executor() as executor:
            return settle.fail(executor, self.organization, run, key, token, error=error, nothing_happened=nothing_happened, reason=reason)

    def release(self, run: str, key: str, token: str) -> str:
        with self.executor() as executor:
            return settle.release(executor, self.organization, run, key, token)

    def heartbeat(self, claims: Sequence[tuple[str, str, str]], lease_seconds: float) -> list[str]:
        with self.executor() as executor:
            return settle.heartbeat(executor, self.organization, claims, lease_seconds)

    def declare_dead(self, run: str, key: str, *, attempt: int, holder: str, actor: str) -> None:
        with self.executor() as executor:
            doubt.declare_dead(executor, self.organization, run, key, attempt=attempt, holder=holder, actor=actor)

    def ask(
        self, run: str, key: str, *, attempt: int, token: str, actor: str, after_seconds: float, lease_seconds: float,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
    ) -> None:  # fmt: skip
        with self.executor() as executor:
            doubt.ask(
                executor, self.organization, run, key, attempt=attempt, token=token, actor=actor,
                after_seconds=after_seconds, lease_seconds=lease_seconds, grace_seconds=grace_seconds,
            )  # fmt: skip

    def answer(
        self, run: str, key: str, token: str, *, verdict: Verdict | Literal["unknown"], result: str | None = None, actor: str
    ) -> None:
        with self.executor() as executor:
            doubt.answer(executor, self.organization, run, key, token, verdict=verdict, result=result, actor=actor)

    def resolve(
        self, key: str, verdict: Verdict, *, attempt: int, note: str, actor: str, run: str | None = None, result: str | None = None,
        confirm_lapsed: bool = False, new_outside_key: bool = False,
    ) -> Effect:  # fmt: skip
        with self.executor() as executor:
            return doubt.resolve(
                executor, self.organization, key, verdict, attempt=attempt, note=note, actor=actor, run=run, result=result,
                confirm_lapsed=confirm_lapsed, new_outside_key=new_outside_key,
            )  # fmt: skip

    def approve(
        self, *, run: str, tool: str, arguments: str, call_digest: str, explicit_key: str | None, by: str, expires_in: float | None = None
    ) -> str:
        with self.executor() as executor:
            return answers.approve(
                executor, self.organization, self._keyring, run=run, tool=tool, arguments=arguments, call_digest=call_digest,
                explicit_key=explicit_key, by=by, expires_in=expires_in,
            )  # fmt: skip

    def deny(self, *, run: str, tool: str, arguments: str, call_digest: str, by: str, reason: str = "") -> None:
        with self.executor() as executor:
            answers.deny(
                executor, self.organization, run=run, tool=tool, arguments=arguments, call_digest=call_digest, by=by, reason=reason
            )

    def pause(self, call: Call, *, actor: str, ttl_seconds: float = DEFAULT_TICKET_SECONDS, why: str = "", again: bool = False) -> Ticket:
        with self.executor() as executor:
            return tickets.pause(
                executor, self.organization, self._keyring, call, actor=actor, ttl_seconds=ttl_seconds, why=why, again=again
            )

    def decide(self, ticket: str, answer: Answer, *, by: str, reason: str = "", expires_in: float | None = None) -> Decision:
        with self.executor() as executor:
            return tickets.decide(executor, self.organization, self._keyring, ticket, answer, by=by, reason=reason, expires_in=expires_in)

    def cancel(self, ticket: str, *, by: str, reason: str = "") -> None:
        with self.executor() as executor:
            tickets.cancel(executor, self.organization, self._keyring, ticket, by=by, reason=reason)

    def withdraw(self, approval: str, *, run: str, by: str, reason: str = "") -> None:
        with self.executor() as executor:
            tickets.withdraw(executor, self.organization, self._keyring, approval, run=run, by=by, reason=reason)

    def ticket(self, ticket: str) -> Ticket:
        with self.executor() as executor:
            return tickets.ticket(executor, self.organization, self._keyring, ticket)

    def tickets(self, *, run: str | None = None, limit: int = 100) -> list[Ticket]:
        with self.executor() as executor:
            return tickets.tickets(executor, self.organization, self._keyring, run=run, limit=limit)

    def void_all(self, *, by: str, reason: str) -> tuple[int, int]:
        """Take back every unspent yes and every open question; returns how many of each."""
        with self.executor() as executor:
            return tickets.void_all(executor, self.organization, by=by, reason=reason)

    def adopt_secret(self) -> bool:
        """Make the secret this record was opened with its present one; False if it is already.

        Until then every process needs the former one, if only among its old secrets.
        """
        params = {"name": "secret_id", "value": self._keyring.current_id}
        with self.executor() as executor:
            return executor.trip([Statement(_CHANGE_META, params)])[0].count > 0

    def expire(self) -> int:
        """Close every open ticket whose time is over; returns how many."""
        with self.executor() as executor:
            return tickets.expire(executor)

    def freeze(self, *, run: str | None = None, agent: str | None = None, by: str, note: str = "") -> None:
        with self.executor() as executor:
            freeze.freeze(executor, self.organization, run=run, agent=agent, by=by, note=note)

    def thaw(self, *, run: str | None = None, agent: str | None = None, by: str, note: str = "") -> None:
        with self.executor() as executor:
            freeze.thaw(executor, self.organization, run=run, agent=agent, by=by, note=note)

    def sweep(self) -> int:
        """Put every effect whose lease ran out in doubt; returns how many."""
        with self.executor() as executor:
            return doubt.sweep(executor)

    def effect(self, key: str, run: str | None = None) -> Effect | None:
        with self.executor() as executor:
            return reads.effect(executor, self.organization, key, run)

    def effects(self, *, run: str | None = None, state: State | None = None, after: int = 0, limit: int = 100) -> list[Effect]:
        with self.executor() as executor:
            return reads.effects(executor, self.organization, run=run, state=state, after=after, limit=limit)

    def entries(self, *, run: str | None = None, key: str | None = None, after: int = 0, limit: int = 1000) -> list[Entry]:
        with self.executor() as executor:
            return reads.entries(executor, self.organization, run=run, key=key, after=after, limit=limit)

    def keys_starting(self, prefix: str, *, limit: int = 10) -> list[str]:
        """Effect keys that begin with a few hex characters."""
        with self.executor() as executor:
            return reads.keys_starting(executor, self.organization, prefix, limit=limit)

    def verify(self) -> list[Finding]:
        with self.executor() as executor:
            return verify.verify(executor, self.organization)

    def rebuild(self) -> int:
        with self.executor() as executor:
            return verify.rebuild(executor, self.organization)

    def meta(self, name: str, value: str | None = None) -> str | None:
        """A fact kept beside the record, written once: with `value`, the first one ever given wins and is returned."""
        statements = [Statement("SELECT value FROM c4a_meta WHERE name = :name", {"name": name})]
        with self.executor() as executor:
            if value is not None:
                statements.insert(0, Statement(_KEEP_META, {"name": name, "value": value}))
                rows = executor.trip(statements)[-1].rows
            else:
                rows = executor.read(statements)[0].rows
        return str(rows[0][0]) if rows else None


_CHANGE_META = "UPDATE c4a_meta SET value = :value WHERE name = :name AND value <> :value"
_KEEP_META = "INSERT INTO c4a_meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING"
