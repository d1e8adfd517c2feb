"""Answers: one yes for one action, spent once; a no that beats every unspent yes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from c4a.errors import (
    AgentFrozen,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalRequired,
    C4AError,
    EffectRunning,
    InvalidArguments,
    KeyConflict,
    RequestRefused,
)
from c4a.record.types import Call, Grant, Recorded
from tests.record.cast import AGENT, PERSON, SECRET, Counting, Kept, approve, begun, call, claimant, deny, in_doubt, micros


def gated(amount: int = 10, **options: Any) -> Call:
    """`pay` under approval."""
    return call(amount, gated=True, **options)


def yeses(kept: Kept, state: str) -> int:
    """How many approvals are in a state."""
    return int(kept.sql("SELECT COUNT(*) FROM c4a_approval WHERE state = :state", state=state)[0][0])


def test_without_a_yes_nothing_is_written(kept: Kept) -> None:
    with pytest.raises(ApprovalRequired) as caught:
        kept.record.claim(gated(), claimant())

    assert type(caught.value) is ApprovalRequired
    assert (caught.value.tool, caught.value.arguments, caught.value.call_digest) == ("pay", gated().arguments, gated().call_digest)
    assert kept.count() == 0
    assert kept.count("c4a_effect") == 0


def test_a_yes_is_spent_by_the_intent_that_names_it(kept: Kept) -> None:
    one = gated()
    yes = approve(kept.record, one)
    _, grant = begun(kept, one)

    assert grant.approval == yes
    intent = kept.record.entries(key=one.key)[0]
    assert (intent.kind, intent.approval) == ("effect.running", yes)
    assert kept.effect(one).approval == yes
    assert yeses(kept, "spent") == 1
    assert kept.record.verify() == []


def test_a_yes_buys_exactly_one_effect(kept: Kept) -> None:
    approve(kept.record, gated())
    begun(kept, gated(key="first"))

    with pytest.raises(ApprovalRequired):
        kept.record.claim(gated(key="second"), claimant())


def test_a_done_action_needs_no_other_yes_for_its_repeat(kept: Kept) -> None:
    one = gated()
    approve(kept.record, one)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")

    assert isinstance(kept.record.claim(one, claimant()), Recorded)


@pytest.mark.parametrize(
    "other",
    [
        call(11, gated=True),
        call(10, gated=True, run="run-2"),
        call(10, gated=True, tool="refund"),
        call(10, gated=True, arguments='{"amount":10,"to":"bob"}'),
    ],
    ids=["other amount", "other run", "other tool", "other receiver"],
)
def test_a_yes_covers_nothing_but_the_call_that_was_shown(kept: Kept, other: Call) -> None:
    approve(kept.record, gated())
    with pytest.raises(ApprovalRequired):
        kept.record.claim(other, claimant())
    assert yeses(kept, "unspent") == 1


def test_a_yes_that_names_a_key_covers_only_that_key(kept: Kept) -> None:
    approve(kept.record, gated(), key="order-1")
    with pytest.raises(ApprovalRequired):
        kept.record.claim(gated(), claimant())
    with pytest.raises(ApprovalRequired):
        kept.record.claim(gated(key="order-2"), claimant())

    assert begun(kept, gated(key="order-1"))[1].attempt == 1


def test_a_yes_for_the_key_is_spent_before_one_for_any_key(kept: Kept) -> None:
    general = approve(kept.record, gated())
    named = approve(kept.record, gated(), key="order-1")

    assert begun(kept, gated(key="order-1"))[1].approval == named
    assert begun(kept, gated())[1].approval == general


def test_a_no_beats_every_unspent_yes(kept: Kept) -> None:
    for _ in range(3):
        approve(kept.record, gated())
    deny(kept.record, gated(), reason="wrong IBAN é😀")

    with pytest.raises(ApprovalDenied, match="not executed") as caught:
        kept.record.claim(gated(), claimant())

    assert (caught.value.reason, caught.value.by) == ("wrong IBAN é😀", PERSON)
    assert abs(caught.value.at - kept.now()) < micros(20)
    assert yeses(kept, "cancelled") == 3
    assert kept.record.verify() == []


def test_a_yes_after_a_no_counts_and_the_older_ones_stay_void(kept: Kept) -> None:
    approve(kept.record, gated())
    deny(kept.record, gated())
    newer = approve(kept.record, gated())

    assert begun(kept, gated())[1].approval == newer
    with pytest.raises(ApprovalRequired):
        kept.record.claim(gated(key="another"), claimant())
    assert kept.record.verify() == []


def test_a_no_for_one_call_touches_no_other(kept: Kept) -> None:
    approve(kept.record, gated(10))
    approve(kept.record, gated(10, run="run-2"))
    deny(kept.record, gated(11))

    for one in (gated(10), gated(10, run="run-2")):
        assert isinstance(kept.record.claim(one, claimant()), Grant)


def test_a_no_while_the_action_runs_is_recorded_as_too_late_and_forbids_another_attempt(kept: Kept) -> None:
    one = gated()
    approve(kept.record, one)
    who, _ = begun(kept, one)
    deny(kept.record, one)

    assert "too_late_running_since" in (kept.record.entries(key=one.call_digest)[-1].payload or {})
    kept.record.fail(one.run, one.key, who.token, error="refused", nothing_happened=True)
    with pytest.raises(ApprovalDenied):
        kept.record.claim(one, claimant())
    newer = approve(kept.record, one)
    again = kept.record.claim(one, claimant())
    assert isinstance(again, Grant)
    assert (again.attempt, again.approval) == (2, newer)
    assert kept.record.verify() == []


def test_a_no_while_the_action_runs_forbids_sending_it_again(kept: Kept) -> None:
    one = gated()
    approve(kept.record, one)
    in_doubt(kept, one)
    deny(kept.record, one)

    with pytest.raises(ApprovalDenied):
        kept.record.reclaim(one, claimant(), attempt=1, window_seconds=3600)
    assert kept.effect(one).state == "in_doubt"


def test_a_retry_of_the_same_effect_reuses_its_yes(kept: Kept) -> None:
    one = gated()
    yes = approve(kept.record, one)
    who, _ = begun(kept, one)
    kept.record.release(one.run, one.key, who.token)

    grant = kept.record.claim(one, claimant())

    assert isinstance(grant, Grant)
    assert (grant.attempt, grant.approval) == (2, yes)
    assert yeses(kept, "spent") == 1
    assert kept.record.verify() == []


def test_a_retry_does_not_spend_a_second_yes_while_its_own_counts(kept: Kept) -> None:
    one = gated()
    approve(kept.record, one)
    who, _ = begun(kept, one)
    approve(kept.record, one)
    kept.record.release(one.run, one.key, who.token)
    begun(kept, one)

    assert (yeses(kept, "spent"), yeses(kept, "unspent")) == (1, 1)


def test_c_f1_a_yes_runs_out_by_the_records_clock(kept: Kept) -> None:
    approve(kept.record, gated(), expires_in=60)
    kept.advance(61)

    with pytest.raises(ApprovalExpired, match="ran out"):
        kept.record.claim(gated(), claimant())
    assert kept.count("c4a_effect") == 0
    assert kept.record.verify() == []


def test_c_f1_a_yes_counts_until_it_runs_out(kept: Kept) -> None:
    approve(kept.record, gated(), expires_in=60)
    kept.advance(55)

    assert begun(kept, gated())[1].attempt == 1


def test_case_82_an_expired_yes_is_refused_whatever_the_callers_clock_says(kept: Kept) -> None:
    one = gated()
    approve(kept.record, one, expires_in=30)
    who, _ = begun(kept, one)
    kept.record.release(one.run, one.key, who.token)
    kept.advance(120)

    with pytest.raises(ApprovalExpired):
        kept.record.claim(one, claimant())
    assert kept.effect(one).attempt == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e30])
def test_c_f1_an_expiry_that_is_no_moment_in_the_future_is_refused(kept_file: Kept, seconds: float) -> None:
    with pytest.raises(RequestRefused, match="expires_in"):
        approve(kept_file.record, gated(), expires_in=seconds)
    assert kept_file.count() == 0


@pytest.mark.parametrize("by", ["", "  "])
def test_an_answer_needs_a_name(kept_file: Kept, by: str) -> None:
    with pytest.raises(RequestRefused, match="name"):
        approve(kept_file.record, gated(), by=by)
    with pytest.raises(RequestRefused, match="name"):
        deny(kept_file.record, gated(), by=by)
    assert kept_file.count() == 0


@pytest.mark.parametrize("by", ["person:\0ann", "person:\ud800"])
def test_a_name_no_database_can_hold_is_refused_alike(kept: Kept, by: str) -> None:
    # PostgreSQL would cut it at the NUL, and the signature would no longer fit: a yes that silently buys nothing.
    for answer in (approve, deny):
        with pytest.raises(InvalidArguments):
            answer(kept.record, gated(), by=by)
    assert kept.count() == 0


@pytest.mark.parametrize("reason", ["", "é😀", "nul\0inside", "lone \ud800", "no " * 20_000])
def test_case_77_the_exact_reason_reaches_the_agent_on_both_databases(kept: Kept, reason: str) -> None:
    deny(kept.record, gated(), reason=reason)
    with pytest.raises(ApprovalDenied, match="not executed") as caught:
        kept.record.claim(gated(), claimant())

    shown = reason.replace("\0", "\\x00").replace("\ud800", "\\ud800")  # what no database can hold is shown as an escape
    assert caught.value.reason == shown
    assert kept.record.verify() == []


def test_a_yes_signed_by_a_secret_that_was_rotated_away_still_reads(kept: Kept) -> None:
    approve(kept.record, gated())
    newer = kept.open(secret=b"the next secret, long enough to sign", old_secrets=[SECRET])

    assert isinstance(newer.claim(gated(), claimant()), Grant)


def test_c_b10_an_approved_action_costs_the_same_after_400_spent_yeses(kept_file: Kept) -> None:
    """Steps of SQLite's own machine, not time: they don't depend on how busy the computer is."""

    def steps() -> int:
        count = 0

        def count_one() -> int:
            nonlocal count
            count += 1
            return 0

        one = gated(key=f"order-{kept_file.count()}")
        with kept_file.executor() as executor:
            connection: sqlite3.Connection = executor.connection
            connection.set_progress_handler(count_one, 1)
        approve(kept_file.record, one)
        who, _ = begun(kept_file, one)
        kept_file.record.complete(one.run, one.key, who.token, result="1")
        with kept_file.executor() as executor:
            executor.connection.set_progress_handler(None, 1)
        return count

    def act(number: int) -> None:
        one = gated(key=f"early-{number}")
        approve(kept_file.record, one)
        begun(kept_file, one)

    steps()
    early = steps()
    for number in range(400):
        act(number)

    assert steps() <= early * 1.05


def test_c_b10_an_approved_action_costs_the_same_trips_and_statements_after_many_spent_yeses(kept: Kept) -> None:
    from c4a.record import answers, claim

    def cost(number: int) -> tuple[int, int]:
        one, record = gated(key=f"order-{number}"), kept.record
        with kept.executor() as inner:
            counting = Counting(inner)
            answers.approve(
                counting, record.organization, record._keyring, run=one.run, tool=one.tool, arguments=one.arguments,
                call_digest=one.call_digest, explicit_key=None, by=PERSON,
            )  # fmt: skip
            who = claimant()
            claim.claim(counting, record.organization, one, who, record._keyring)
        record.complete(one.run, one.key, who.token, result="1")
        return counting.trips, counting.statements

    cost(0)
    first = cost(1)
    for number in range(2, 30):
        cost(number)

    assert cost(30) == first
    assert first[0] <= 5


# -- a yes is never lost to a race ------------------------------------------------------------------------------------------


@contextmanager
def held_open(kept: Kept, one: Call) -> Iterator[Any]:
    """Another caller's claim of the same effect, written but not yet committed."""
    import psycopg

    from c4a.record.claim import claim
    from c4a.record.postgres import PostgresExecutor, prepare_connection

    with psycopg.connect(kept.address, autocommit=True) as connection:
        prepare_connection(connection)
        connection.execute("BEGIN")
        executor = PostgresExecutor(connection)
        assert isinstance(claim(executor, kept.record.organization, one, claimant(actor="agent:rival"), kept.record._keyring), Grant)
        yield connection


def blocked(kept: Kept) -> bool:
    """True once a caller waits for the rival's row."""
    return bool(kept.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"))


@pytest.mark.parametrize("before", ["nothing", "not_done"])
def test_a_caller_who_loses_the_effect_keeps_its_yes(kept_database: Kept, before: str) -> None:
    """Two calls of one key under different locks: their arguments differ in what `exclude=` leaves out of the key."""
    kept = kept_database
    mine, rival = gated(note="mine"), call(10, note="rival")
    assert mine.key == rival.key
    if before == "not_done":
        who, _ = begun(kept, rival)
        kept.record.release(rival.run, rival.key, who.token)
    approve(kept.record, mine)
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(kept.record.claim(mine, claimant()))
        except C4AError as error:
            outcome.append(error)

    with held_open(kept, rival) as connection:
        asking = threading.Thread(target=ask)
        asking.start()
        waited = 0
        while not blocked(kept) and asking.is_alive() and waited < 500:
            asking.join(0.01)
            waited += 1
        assert blocked(kept)
        connection.execute("COMMIT")
        asking.join(10)

    assert isinstance(outcome[0], EffectRunning)
    assert yeses(kept, "unspent") == 1
    assert kept.record.verify() == []


def test_of_two_approved_calls_of_one_key_the_loser_keeps_its_yes(kept: Kept) -> None:
    first, second = gated(10, key="order-1"), gated(11, key="order-1")
    approve(kept.record, first)
    approve(kept.record, second)
    begun(kept, first)

    with pytest.raises(KeyConflict):
        kept.record.claim(second, claimant())
    assert (yeses(kept, "spent"), yeses(kept, "unspent")) == (1, 1)
    assert kept.record.verify() == []


def test_the_gate_says_who_answered_last(kept: Kept) -> None:
    approve(kept.record, gated(), by="person:bob")
    deny(kept.record, gated(), by="person:ann", reason="no")
    rows = kept.sql("SELECT answer, reason, answered_by FROM c4a_gate WHERE key = :key", key=gated().call_digest)

    assert rows == [("denied", "no", "person:ann")]
    kinds = [(entry.kind, entry.actor) for entry in kept.record.entries(key=gated().call_digest)]
    assert kinds == [("gate.approved", "person:bob"), ("gate.denied", "person:ann")]
    assert AGENT not in str(kept.record.entries(key=gated().call_digest))


def test_a_stopped_retry_with_the_same_token_keeps_its_yes(kept: Kept) -> None:
    """The head still names the token of the released attempt, so the token alone must not spend."""
    one = gated()
    approve(kept.record, one)
    who, _ = begun(kept, one)
    kept.record.release(one.run, one.key, who.token)
    deny(kept.record, one)
    approve(kept.record, one)
    kept.record.freeze(run=one.run, by=PERSON)

    with pytest.raises(AgentFrozen):
        kept.record.claim(one, who)

    assert yeses(kept, "unspent") == 1
    assert kept.record.verify() == []
