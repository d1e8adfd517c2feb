"""Whatever verbs come in whatever order, with the clock moved: heads are what entries fold to, and can be folded anew."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from c4a.errors import C4AError, RecordDamaged
from c4a.record.types import Call, Effect, Grant
from tests.record.cast import AGENT, PERSON, Kept, approve, call, claimant, deny

STEPS = 60
EVERY = 6
"""`verify` after so many steps; after the last one in any case."""


@dataclass
class Walk:
    """Random verbs on a few effects of few runs, remembering every token ever made."""

    kept: Kept
    rng: random.Random
    tokens: list[tuple[Call, str]] = field(default_factory=list)
    askers: list[tuple[Call, str]] = field(default_factory=list)
    tickets: list[str] = field(default_factory=list)

    def call(self) -> Call:
        """One of 12 calls that share keys and gates."""
        return call(
            self.rng.choice([10, 11]),
            run=self.rng.choice(["run-1", "run-2"]),
            key=self.rng.choice([None, None, "order-1"]),
            gated=self.rng.random() < 0.5,
            note=self.rng.choice([None, "a", "b"]),
        )

    def token(self) -> tuple[Call, str]:
        """An old token, or one nobody ever claimed with."""
        return self.rng.choice(self.tokens) if self.tokens else (self.call(), claimant().token)

    def head(self, one: Call) -> Effect | None:
        """The effect, if there is one."""
        return self.kept.record.effect(one.key, one.run)

    def attempt(self, one: Call) -> int:
        """Mostly the last attempt."""
        found = self.head(one)
        return (found.attempt if found else 1) - (self.rng.random() < 0.1)

    def claim(self) -> None:
        one, who = self.call(), claimant(holder=self.rng.choice(["", "pid 7"]))
        self.tokens.append((one, who.token))
        self.kept.record.claim(one, who)

    def reclaim(self) -> None:
        one, who = self.call(), claimant()
        self.tokens.append((one, who.token))
        self.kept.record.reclaim(one, who, attempt=self.attempt(one), window_seconds=self.rng.choice([1, 600]), grace_seconds=1)

    def complete(self) -> None:
        one, token = self.token()
        note, result = self.rng.choice([(None, '"é😀"'), (None, "null"), ("oversize", None)])
        self.kept.record.complete(one.run, one.key, token, result=result, note=note)

    def fail(self) -> None:
        one, token = self.token()
        reason = self.rng.choice(["raised", "cancelled"])
        self.kept.record.fail(one.run, one.key, token, error="boom", nothing_happened=self.rng.random() < 0.4, reason=reason)

    def release(self) -> None:
        one, token = self.token()
        self.kept.record.release(one.run, one.key, token)

    def heartbeat(self) -> None:
        one, token = self.token()
        self.kept.record.heartbeat([(one.run, one.key, token)], 15)

    def declare_dead(self) -> None:
        one = self.call()
        self.kept.record.declare_dead(one.run, one.key, attempt=self.attempt(one), holder=self.rng.choice(["", "pid 7"]), actor=AGENT)

    def sweep(self) -> None:
        self.kept.record.sweep()

    def ask(self) -> None:
        one, token = self.call(), claimant().token
        self.askers.append((one, token))
        self.kept.record.ask(
            one.run, one.key, attempt=self.attempt(one), token=token, actor=AGENT, after_seconds=0, lease_seconds=15, grace_seconds=1
        )

    def answer(self) -> None:
        if self.askers:
            one, token = self.rng.choice(self.askers)
            verdict: Any = self.rng.choice(["done", "not_done", "unknown"])
            self.kept.record.answer(one.run, one.key, token, verdict=verdict, result='"x"', actor=AGENT)

    def resolve(self) -> None:
        one = self.call()
        verdict: Any = self.rng.choice(["done", "not_done"])
        self.kept.record.resolve(
            one.key, verdict, attempt=self.attempt(one), note="looked", actor=PERSON, run=one.run, result=self.rng.choice([None, '"y"']),
            confirm_lapsed=self.rng.random() < 0.8, new_outside_key=self.rng.random() < 0.3,
        )  # fmt: skip

    def approve(self) -> None:
        approve(self.kept.record, self.call(), expires_in=self.rng.choice([None, 5, 600]), key=self.rng.choice([None, None, "order-1"]))

    def deny(self) -> None:
        deny(self.kept.record, self.call())

    def pause(self) -> None:
        again = self.rng.random() < 0.5
        found = self.kept.record.pause(self.call(), actor=AGENT, ttl_seconds=self.rng.choice([5, 600]), why="please", again=again)
        self.tickets.append(found.text)

    def decide(self) -> None:
        if self.tickets:
            answer: Any = self.rng.choice(["approve", "approve", "deny"])
            by = self.rng.choice([PERSON, "person:bob"])
            self.kept.record.decide(self.rng.choice(self.tickets[-4:]), answer, by=by, reason="é", expires_in=self.rng.choice([None, 5]))

    def cancel(self) -> None:
        if self.tickets:
            self.kept.record.cancel(self.rng.choice(self.tickets[-2:]), by=AGENT)

    def withdraw(self) -> None:
        if self.tickets:
            self.kept.record.withdraw(self.rng.choice(self.tickets), run="", by=PERSON)

    def expire(self) -> None:
        self.kept.record.expire()

    def freeze(self) -> None:
        self.kept.record.freeze(**self.subject(), by=PERSON, note="stop")

    def thaw(self) -> None:
        self.kept.record.thaw(**self.subject(), by=PERSON)

    def subject(self) -> dict[str, Any]:
        """A run or the agent."""
        return self.rng.choice([{"run": "run-1"}, {"run": "run-2"}, {"agent": AGENT}])

    def clock(self) -> None:
        self.kept.advance(self.rng.choice([-30, 2, 16, 40]))

    def step(self) -> None:
        """One verb; a refusal is as good as a grant, damage is not."""
        often: list[Callable[[], None]] = [self.claim, self.complete, self.fail, self.approve, self.resolve, self.thaw, self.thaw]
        verb = self.rng.choice([
            *often, *often, self.reclaim, self.reclaim, self.release, self.heartbeat, self.declare_dead, self.sweep, self.ask, self.ask,
            self.answer, self.answer, self.deny, self.freeze, self.clock, self.pause, self.pause, self.decide, self.decide, self.cancel,
            self.withdraw, self.expire,
        ])  # fmt: skip
        try:
            verb()
        except RecordDamaged:
            raise
        except C4AError:
            pass


def folded(heads: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    """Heads without the runs and agents that nobody ever stopped: their row has no entry to be folded from."""
    return heads | {table: [row for row in heads[table] if row[5]] for table in ("c4a_run", "c4a_subject")}


@pytest.mark.parametrize("seed", range(12))
def test_heads_are_what_entries_fold_to_after_any_verbs_in_any_order(kept: Kept, seed: int) -> None:
    walk = Walk(kept, random.Random(seed))
    for number in range(STEPS):
        walk.step()
        if number % EVERY == 0:
            assert kept.record.verify() == []
    assert kept.record.verify() == []
    heads = kept.heads()

    kept.record.rebuild()

    assert kept.record.verify() == []
    assert folded(kept.heads()) == folded(heads)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_heads_are_what_entries_fold_to_after_many_more_verbs(kept: Kept, seed: int) -> None:
    walk = Walk(kept, random.Random(seed))
    for _ in range(300):
        walk.step()
    assert kept.record.verify() == []
    heads = kept.heads()
    kept.record.rebuild()
    assert folded(kept.heads()) == folded(heads)


@pytest.mark.parametrize("seed", range(3))
def test_no_action_begins_twice_without_somebody_saying_that_it_may(kept: Kept, seed: int) -> None:
    """Between two intents of one effect stands a not-done, or the second is a resend of what was in doubt."""
    walk = Walk(kept, random.Random(seed + 500))
    for _ in range(STEPS * 2):
        walk.step()
    for found in kept.record.effects(limit=1000):
        kinds = [entry for entry in kept.record.entries(run=found.run, key=found.key) if entry.kind != "effect.happened_twice"]
        for before, entry in itertools.pairwise(kinds):
            if entry.kind == "effect.running":
                resend = bool((entry.payload or {}).get("resend"))
                assert before.kind == ("effect.in_doubt" if resend else "effect.not_done")


def test_rebuild_keeps_a_live_claims_token_and_gives_it_a_fresh_lease(kept: Kept) -> None:
    one, who = call(10), claimant()
    assert isinstance(kept.record.claim(one, who), Grant)
    kept.advance(14)

    assert kept.record.rebuild() == 2  # the effect and its run

    kept.advance(14)
    assert kept.record.heartbeat([(one.run, one.key, who.token)], 15) == []
    assert kept.record.complete(one.run, one.key, who.token, result="1") == "done"
    assert kept.record.verify() == []


def test_rebuild_of_an_empty_record_writes_nothing(kept: Kept) -> None:
    assert kept.record.rebuild() == 0


def test_dropped_heads_are_folded_anew(kept: Kept) -> None:
    walk = Walk(kept, random.Random(77))
    for _ in range(STEPS):
        walk.step()
    heads = kept.heads()
    for table in ("c4a_effect", "c4a_gate", "c4a_approval", "c4a_ticket", "c4a_run", "c4a_subject"):
        kept.sql(f"DELETE FROM {table}")
    kept.record.rebuild()

    assert folded(kept.heads()) == folded(heads)
    assert kept.record.verify() == []
