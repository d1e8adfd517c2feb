"""Tickets: one question about exactly one action, answered once, by what this record issued and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from c4a.errors import AgentFrozen, ApprovalDenied, ApprovalRequired, LedgerError, RequestRefused, TicketRefused
from c4a.record import schema
from c4a.record.postgres import DatabaseRecord, PostgresExecutor, connect, migrate
from c4a.record.sqlite import FileRecord
from c4a.record.types import Call, Grant, Ticket
from tests.record.cast import AGENT, PERSON, SECRET, Kept, approve, begun, call, claimant, deny
from tests.record.test_database import lost_commit

BOB = "person:bob"


def ask(kept: Kept, one: Call | None = None, **options: Any) -> Ticket:
    """A question about an action that needs a yes."""
    return kept.record.pause(one or call(gated=True), actor=AGENT, **options)


def refused(kept: Kept, text: str, answer: Any = "approve", *, by: str = PERSON) -> TicketRefused:
    """The refusal of an answer that must be refused."""
    with pytest.raises(TicketRefused) as caught:
        kept.record.decide(text, answer, by=by)
    return caught.value


def kinds(kept: Kept, key: str) -> list[str]:
    """What a chain's entries say, in order."""
    return [entry.kind for entry in kept.record.entries(key=key)]


def test_a_question_names_one_action_and_its_text_carries_no_arguments(kept: Kept) -> None:
    asked = ask(kept, why="the invoice is due")

    assert asked.text.startswith(f"c4a1.{asked.id}.")
    assert len(asked.id.removeprefix("tkt_")) == 24  # 96 bits
    assert "alice" not in asked.text
    assert (asked.state, asked.number, asked.why) == ("open", 1, "the invoice is due")
    assert kept.record.ticket(asked.text).arguments == '{"amount":10,"to":"alice"}'
    assert kinds(kept, asked.id) == ["ticket.opened"]


def test_the_same_action_asked_about_again_is_the_same_ticket(kept: Kept) -> None:
    assert ask(kept).text == ask(kept).text
    assert ask(kept, again=True).number == 1
    assert len(kept.record.tickets()) == 1


def test_case_34_two_actions_of_one_run_have_tickets_of_their_own(kept: Kept) -> None:
    one, two = call(1, gated=True), call(2, gated=True)
    first, second = ask(kept, one), ask(kept, two)
    kept.record.decide(second.text, "deny", by=PERSON)
    kept.record.decide(first.text, "approve", by=PERSON)

    assert isinstance(kept.record.claim(one, claimant()), Grant)
    with pytest.raises(ApprovalDenied):
        kept.record.claim(two, claimant())


def test_a_yes_by_ticket_covers_exactly_its_action_once(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    decision = kept.record.decide(asked.text, "approve", by=PERSON)

    assert decision.approval is not None
    with pytest.raises(ApprovalRequired):
        kept.record.claim(call(11, gated=True), claimant())
    with pytest.raises(ApprovalRequired):
        kept.record.claim(call(gated=True, run="run-2"), claimant())
    _, grant = begun(kept, one)
    assert grant.approval == decision.approval
    with pytest.raises(ApprovalRequired):
        kept.record.claim(call(gated=True, key="another"), claimant())
    assert kept.record.verify() == []


def test_a_ticket_with_an_explicit_key_covers_that_key_only(kept: Kept) -> None:
    keyed = call(gated=True, key="order-1")
    plain = ask(kept)
    asked = ask(kept, keyed)
    kept.record.decide(asked.text, "approve", by=PERSON)

    assert plain.id != asked.id
    with pytest.raises(ApprovalRequired):
        kept.record.claim(call(gated=True), claimant())
    assert isinstance(kept.record.claim(keyed, claimant()), Grant)


def test_case_36_the_first_answer_counts_and_the_other_is_told_who_and_when(kept: Kept) -> None:
    asked = ask(kept)
    first = kept.record.decide(asked.text, "approve", by=PERSON)

    told = refused(kept, asked.text, "deny", by=BOB)

    assert (told.why, told.by, told.at) == ("decided", PERSON, first.at)
    assert refused(kept, asked.text, "approve", by=BOB).by == PERSON
    assert kinds(kept, asked.id) == ["ticket.opened", "ticket.approved"]
    assert kinds(kept, call().call_digest) == ["gate.approved"]
    assert isinstance(kept.record.claim(call(gated=True), claimant()), Grant)


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_case_70_the_same_answer_three_times_late_and_after_a_restart_is_one_receipt(kept: Kept, answer: Any) -> None:
    asked = ask(kept, ttl_seconds=60)
    first = kept.record.decide(asked.text, answer, by=PERSON, reason="seen")
    kept.advance(3600)

    assert kept.record.decide(asked.text, answer, by=PERSON) == first
    assert kept.open().decide(asked.text, answer, by=PERSON) == first
    assert kinds(kept, call().call_digest) == ["gate.approved" if answer == "approve" else "gate.denied"]


def test_case_77_the_exact_reason_of_a_no_reaches_the_agent(kept: Kept) -> None:
    one = call(gated=True)
    kept.record.decide(ask(kept, one).text, "deny", by=PERSON, reason="wrong IBAN é😀")

    with pytest.raises(ApprovalDenied) as caught:
        kept.record.claim(one, claimant())
    assert (caught.value.reason, caught.value.by) == ("wrong IBAN é😀", PERSON)
    assert "not executed" in caught.value.message
    assert ask(kept, one).reason == "wrong IBAN é😀"


def test_c_b2_a_no_by_ticket_and_what_it_voids_are_one_transaction(kept: Kept) -> None:
    one = call(gated=True)
    approve(kept.record, one)
    kept.record.decide(ask(kept, one).text, "deny", by=PERSON)

    with pytest.raises(ApprovalDenied):
        kept.record.claim(one, claimant())
    assert kept.sql("SELECT state FROM c4a_approval") == [("cancelled",)]
    assert kept.record.verify() == []


def test_case_31_silence_is_no_yes_and_says_so_without_naming_anybody(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one, ttl_seconds=60)
    kept.advance(61)

    assert refused(kept, asked.text).why == "expired"
    assert kinds(kept, asked.id) == ["ticket.opened", "ticket.expired"]
    assert kept.record.ticket(asked.text).decided_by is None
    assert kept.record.tickets() == []
    assert ask(kept, one).number == 2
    with pytest.raises(ApprovalRequired):
        kept.record.claim(one, claimant())


def test_case_82_a_tickets_time_is_judged_by_the_databases_clock(kept: Kept) -> None:
    asked = ask(kept, ttl_seconds=60)
    kept.advance(59)
    assert kept.record.tickets() != []
    kept.advance(2)

    assert refused(kept, asked.text).why == "expired"
    assert kept.record.expire() == 0  # the refusal has written it already


def test_the_sweep_closes_what_nobody_answered(kept: Kept) -> None:
    asked = [ask(kept, call(number, gated=True), ttl_seconds=60) for number in range(3)]
    kept.advance(61)

    assert kept.record.expire() == 3
    assert kept.record.expire() == 0
    assert {kinds(kept, one.id)[-1] for one in asked} == {"ticket.expired"}
    assert kept.record.verify() == []


def test_a_question_taken_back_can_be_asked_again(kept: Kept) -> None:
    asked = ask(kept)
    kept.record.cancel(asked.text, by=AGENT, reason="no need")
    kept.record.cancel(asked.text, by=AGENT)

    assert refused(kept, asked.text).why == "cancelled"
    assert ask(kept).number == 2
    again = ask(kept)
    kept.record.decide(again.text, "approve", by=PERSON)
    with pytest.raises(TicketRefused, match="approved"):
        kept.record.cancel(again.text, by=AGENT)


def test_an_answered_question_is_asked_anew_only_on_purpose(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    kept.record.decide(asked.text, "approve", by=PERSON)
    assert ask(kept, one).state == "approved"
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")

    assert ask(kept, one).id == asked.id
    assert ask(kept, one, again=True).number == 2


@pytest.mark.parametrize("by_ticket", [True, False])
def test_a_yes_that_is_not_spent_can_be_withdrawn(kept: Kept, by_ticket: bool) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    decision = kept.record.decide(asked.text, "approve", by=PERSON)
    for _ in range(2):
        kept.record.withdraw(asked.text if by_ticket else str(decision.approval), run=one.run, by=BOB)

    with pytest.raises(ApprovalRequired):
        kept.record.claim(one, claimant())
    assert kinds(kept, one.call_digest) == ["gate.approved", "gate.withdrawn"]
    assert ask(kept, one).number == 2
    assert kept.record.verify() == []


def test_a_spent_yes_is_not_withdrawn(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    kept.record.decide(asked.text, "approve", by=PERSON)
    begun(kept, one)

    with pytest.raises(TicketRefused) as caught:
        kept.record.withdraw(asked.text, run=one.run, by=BOB)
    assert (caught.value.why, caught.value.key) == ("spent", one.key)
    assert kinds(kept, one.call_digest) == ["gate.approved"]
    assert kept.record.verify() == []


def test_a_yes_that_ran_out_is_asked_for_again(kept: Kept) -> None:
    asked = ask(kept)
    kept.record.decide(asked.text, "approve", by=PERSON, expires_in=60)
    kept.advance(61)

    assert ask(kept).number == 2


def test_a_frozen_run_or_agent_asks_nothing(kept: Kept) -> None:
    ask(kept)
    kept.record.freeze(run="run-1", by=PERSON)
    with pytest.raises(AgentFrozen):
        ask(kept)
    kept.record.thaw(run="run-1", by=PERSON)
    kept.record.freeze(agent=AGENT, by=PERSON)
    with pytest.raises(AgentFrozen):
        ask(kept, call(11, gated=True))
    assert kept.count("c4a_ticket") == 1


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True])
def test_a_tickets_time_is_a_time(kept: Kept, ttl: float) -> None:
    with pytest.raises(RequestRefused):
        ask(kept, ttl_seconds=ttl)


@pytest.mark.parametrize("by", ["", "  "])
def test_nobody_decides_without_a_name(kept: Kept, by: str) -> None:
    asked = ask(kept)
    with pytest.raises(RequestRefused):
        kept.record.decide(asked.text, "approve", by=by)
    assert kept.record.ticket(asked.text).state == "open"


def test_the_sweep_goes_past_a_damaged_ticket(kept: Kept) -> None:
    for number in range(3):
        ask(kept, call(number, gated=True), ttl_seconds=60)
    columns = "seq, prev_digest, last_digest, last_payload_digest"
    (before,) = kept.sql(f"SELECT {columns} FROM c4a_ticket WHERE number = 1 AND call_digest = :digest", digest=call(0).call_digest)
    kept.advance(61)
    assert kept.record.expire() == 3
    assigned = ", ".join(f"{name} = :{name}" for name in columns.split(", "))
    kept.sql(
        f"UPDATE c4a_ticket SET state = 'open', {assigned} WHERE call_digest = :digest",
        digest=call(0).call_digest,
        **dict(zip(columns.split(", "), before, strict=True)),
    )
    kept.advance(-61)
    ask(kept, call(7, gated=True), ttl_seconds=1)
    kept.advance(61)

    assert kept.record.expire() == 1


def test_case_80_a_decision_repeated_after_a_lost_commit_stands_once_and_overtakes_no_newer_answer(
    kept_database: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = call(1, gated=True), call(2, gated=True)
    first, second = ask(kept_database, one), ask(kept_database, two)
    lost_commit(monkeypatch, lambda: deny(kept_database.record, one))
    assert kept_database.record.decide(first.text, "approve", by=PERSON).answer == "approve"
    lost_commit(monkeypatch, lambda: approve(kept_database.record, two))
    assert kept_database.record.decide(second.text, "deny", by=PERSON).answer == "deny"

    assert kinds(kept_database, one.call_digest) == ["gate.approved", "gate.denied"]
    assert kinds(kept_database, two.call_digest) == ["gate.denied", "gate.approved"]
    with pytest.raises(ApprovalDenied):
        kept_database.record.claim(one, claimant())
    assert isinstance(kept_database.record.claim(two, claimant()), Grant)
    assert kept_database.record.verify() == []


def test_case_80_a_question_repeated_after_a_lost_commit_is_one_ticket(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    lost_commit(monkeypatch, lambda: None)

    assert ask(kept_database).number == 1
    assert kept_database.count("c4a_ticket") == kept_database.count() == 1


@pytest.mark.parametrize("deed", ["cancel", "withdraw"])
def test_case_80_what_is_taken_back_twice_after_a_lost_commit_is_taken_back_once(
    kept_database: Kept, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    record = kept_database.record
    asked = ask(kept_database)
    if deed == "withdraw":
        record.decide(asked.text, "approve", by=PERSON)
    lost_commit(monkeypatch, lambda: None)
    if deed == "cancel":
        record.cancel(asked.text, by=AGENT)
    else:
        record.withdraw(asked.text, run="", by=PERSON)

    assert [entry.kind for entry in record.entries()][-1] == {"cancel": "ticket.cancelled", "withdraw": "gate.withdrawn"}[deed]
    assert record.verify() == []


def test_pause_and_decide_take_one_trip_each(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    trips = 0
    whole = PostgresExecutor.trip

    def counted(executor: PostgresExecutor, statements: Any) -> Any:
        nonlocal trips
        trips += 1
        return whole(executor, statements)

    ask(kept_database)  # the connection's first use asks the clock
    monkeypatch.setattr(PostgresExecutor, "trip", counted)
    asked = ask(kept_database, call(11, gated=True))
    assert trips == 1
    kept_database.record.decide(asked.text, "approve", by=PERSON)
    assert trips == 2


def test_a_file_of_the_step_before_is_brought_to_this_one_with_all_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    lite = sqlite3.connect(path, isolation_level=None)
    schema.upgrade(lite, to=1)
    lite.close()

    record = FileRecord(path, secret=SECRET)

    assert record.meta("schema_version") == str(schema.SCHEMA_VERSION)
    assert record.pause(call(gated=True), actor=AGENT).number == 1
    record.close()


def test_a_database_of_the_step_before_is_refused_until_it_is_migrated(postgres_url: str) -> None:
    with connect(postgres_url) as connection, connection.transaction():
        schema.upgrade(connection, to=1)
    with pytest.raises(LedgerError, match="c4a migrate"):
        DatabaseRecord(postgres_url, secret=SECRET)
    assert migrate(postgres_url) == schema.SCHEMA_VERSION - 1
    record = DatabaseRecord(postgres_url, secret=SECRET)

    assert record.pause(call(gated=True), actor=AGENT).number == 1
    record.close()


def test_c_e4_nobody_is_notified_of_an_answer_unless_somebody_waits(kept_database: Kept) -> None:
    kept = kept_database
    with psycopg.connect(kept.address, autocommit=True) as listener:
        listener.execute("LISTEN c4a_effect")
        kept.record.decide(ask(kept, call(1, gated=True)).text, "approve", by=PERSON)
        assert list(listener.notifies(timeout=0.3)) == []
        asked = ask(kept, call(2, gated=True))
        kept.record.wait_ticket(asked.text, 0.01)
        kept.record.decide(asked.text, "approve", by=PERSON)
        assert [notice.payload for notice in listener.notifies(timeout=2, stop_after=1)] == [asked.id]


def test_c_e4_waiting_for_people_costs_a_few_queries(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ask(kept_database)
    trips = 0
    whole = PostgresExecutor.trip

    def counted(executor: PostgresExecutor, statements: Any) -> Any:
        nonlocal trips
        trips += 1
        return whole(executor, statements)

    monkeypatch.setattr(PostgresExecutor, "trip", counted)
    kept_database.record.wait_ticket(asked.text, 1.5)

    assert trips <= 4
