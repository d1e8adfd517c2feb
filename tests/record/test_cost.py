"""What an action costs, counted and not timed: steps of SQLite's machine, round trips to PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.seed import seed_million
from c4a.record.dialects import Statement
from c4a.record.postgres import PostgresExecutor
from tests.record.cast import AGENT, PERSON, Kept, approve, begun, call, claimant, deny

SMALL, LARGE = 200, 8_000


def steps(kept: Kept, deed: Callable[[], Any]) -> int:
    """How many instructions SQLite's machine runs for a deed: the same however busy the computer is."""
    count = 0

    def one_more() -> int:
        nonlocal count
        count += 1
        return 0

    with kept.executor() as executor:
        connection: sqlite3.Connection = executor.connection
        connection.set_progress_handler(one_more, 1)
    try:
        deed()
    finally:
        with kept.executor() as executor:
            executor.connection.set_progress_handler(None, 1)
    return count


def act(kept: Kept, amount: int) -> None:
    """A new action, then a repeat of it."""
    one = call(amount)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")
    kept.record.claim(one, claimant())


def act_gated(kept: Kept, amount: int) -> None:
    """A yes, the action it covers, a no."""
    one = call(amount, gated=True)
    approve(kept.record, one)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")
    deny(kept.record, one)


def doubted(kept: Kept, amount: int) -> None:
    """A doubt, settled by a person, and the list of doubts."""
    one = call(amount)
    who, _ = begun(kept, one)
    kept.record.fail(one.run, one.key, who.token, error="timeout")
    kept.record.effects(state="in_doubt")
    kept.record.sweep()
    kept.record.resolve(one.key, "done", attempt=1, note="seen in the provider's list", actor="sam")


def asked(kept: Kept, amount: int) -> None:
    """A question and its answer, another one taken back, and the list of what is open."""
    one, other = call(amount, gated=True), call(amount + 1_000_000, gated=True)
    ticket = kept.record.pause(one, actor=AGENT)
    kept.record.decide(ticket.text, "approve", by=PERSON)
    kept.record.withdraw(ticket.text, run="", by=PERSON)
    kept.record.cancel(kept.record.pause(other, actor=AGENT).text, by=AGENT)
    kept.record.tickets()
    kept.record.expire()


@pytest.mark.parametrize("deed", [act, act_gated, doubted, asked])
def test_c_cost_does_not_grow_with_the_record(kept_file: Kept, deed: Callable[[Kept, int], None]) -> None:
    seed_million(kept_file.address, SMALL)
    deed(kept_file, 1)
    small = steps(kept_file, lambda: deed(kept_file, 2))
    seed_million(kept_file.address, LARGE, first=SMALL)

    large = steps(kept_file, lambda: deed(kept_file, 3))

    assert large <= small * 1.1


def test_c_b10_questions_about_one_action_cost_the_same_after_300_answers(kept_file: Kept) -> None:
    one = call(1, gated=True)

    def again() -> None:
        ticket = kept_file.record.pause(one, actor=AGENT, again=True)
        kept_file.record.decide(ticket.text, "approve", by=PERSON)
        kept_file.record.tickets()

    for _ in range(4):
        again()
    few = steps(kept_file, again)
    for _ in range(300):
        again()

    assert steps(kept_file, again) <= few * 1.1


def index_reads(kept: Kept) -> int:
    """How many index entries this record's connection has read so far."""
    with kept.executor() as executor:
        executor.trip([Statement("SELECT CAST(1 AS BIGINT) FROM (SELECT pg_stat_force_next_flush()) AS flushed", {})])
    query = "SELECT SUM(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname LIKE 'c4a%'"
    return int(kept.sql(query)[0][0])


def test_c_cost_of_a_question_does_not_grow_with_open_ones_whatever_plan_was_made_when_there_were_none(kept_database: Kept) -> None:
    """A statement's plan is made for empty tables and kept: it must go by an index that fits for ever."""
    kept = kept_database

    def cost(amount: int) -> int:
        before = index_reads(kept)
        one = call(amount, gated=True)
        ticket = kept.record.pause(one, actor=AGENT)
        kept.record.decide(ticket.text, "approve", by=PERSON)
        kept.record.withdraw(ticket.text, run="", by=PERSON)
        kept.record.cancel(kept.record.pause(one, actor=AGENT).text, by=AGENT)
        return index_reads(kept) - before

    few = max(cost(number) for number in range(12))
    for number in range(100, 350):
        kept.record.pause(call(number, gated=True), actor=AGENT)

    assert max(cost(number) for number in range(20, 24)) <= few + 40


def test_c_trips_a_new_action_takes_two_round_trips_and_an_approved_one_four(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    trips = 0
    inner = PostgresExecutor.trip

    def counted(self: PostgresExecutor, statements: Any) -> Any:
        nonlocal trips
        trips += 1
        return inner(self, statements)

    act_gated(kept_database, 0)  # the connection's first use asks the clock
    monkeypatch.setattr(PostgresExecutor, "trip", counted)
    one, approved = call(1), call(2, gated=True)

    who, _ = begun(kept_database, one)
    kept_database.record.complete(one.run, one.key, who.token, result="1")
    plain, trips = trips, 0
    approve(kept_database.record, approved)
    who, _ = begun(kept_database, approved)
    kept_database.record.complete(approved.run, approved.key, who.token, result="1")

    assert (plain, trips) == (2, 4)
