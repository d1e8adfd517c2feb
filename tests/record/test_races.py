"""Races between real processes: whatever arrives together, one acts and the record stays whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.record.cast import AGENT, PERSON, Kept, approve, begun, call, deny, in_doubt
from tests.record.racing import Racers

ROUNDS = 6


@pytest.fixture(scope="session")
def racers() -> Iterator[Racers]:
    """The racing processes of this worker."""
    made = Racers()
    yield made
    made.close()


@pytest.fixture
def processes(kept: Kept) -> int:
    """4 on a file, 8 on a database."""
    return 4 if kept.kind == "file" else 8


def test_of_100_callers_of_one_action_one_is_granted(kept: Kept, racers: Racers, processes: int) -> None:
    (told,) = racers.race(kept.address, "claim", processes=processes, threads=100 // processes + 1, settle=True)
    count = Counter(told)

    assert len(told) >= 100
    assert count["granted"] == 1
    assert set(count) <= {"granted", "recorded", "effect-running"}
    assert kept.kinds(call(0)) == ["running", "done"]
    assert kept.record.verify() == []


def test_of_100_callers_of_one_approved_action_one_is_granted(kept: Kept, racers: Racers, processes: int) -> None:
    approve(kept.record, call(0))
    (told,) = racers.race(kept.address, "claim", processes=processes, threads=100 // processes + 1, gated=True, settle=True)
    count = Counter(told)

    assert count["granted"] == 1
    assert set(count) <= {"granted", "recorded", "effect-running"}
    assert kept.record.verify() == []


@pytest.mark.parametrize("yeses", [1, 4])
def test_c_b9_of_8_callers_with_yeses_one_runs_and_spends_one(kept: Kept, racers: Racers, processes: int, yeses: int) -> None:
    for number in range(ROUNDS):
        for _ in range(yeses):
            approve(kept.record, call(number))
    for told in racers.race(kept.address, "claim", processes=processes, threads=8 // processes, rounds=ROUNDS, gated=True):
        count = Counter(told)
        assert count["granted"] == 1
        assert set(count) <= {"granted", "effect-running"}

    assert kept.sql("SELECT COUNT(*) FROM c4a_approval WHERE state = 'spent'") == [(ROUNDS,)]
    assert kept.record.verify() == []


def test_one_yes_for_8_callers_with_keys_of_their_own_buys_one(kept: Kept, racers: Racers, processes: int) -> None:
    """Effects differ, the call is one: only the action lock and the unique spend stand between them and two payments."""
    approve(kept.record, call(0))
    for number in range(1, ROUNDS):
        approve(kept.record, call(number))
    for told in racers.race(kept.address, "claim", processes=processes, threads=2, rounds=ROUNDS, gated=True, keyed=True):
        count = Counter(told)
        assert count["granted"] == 1
        assert set(count) == {"granted", "approval-required"}

    assert len(kept.record.effects()) == ROUNDS
    assert kept.record.verify() == []


def test_case_50_yes_and_no_at_the_same_instant_leave_heads_that_entries_fold_to(kept: Kept, racers: Racers) -> None:
    told = racers.race(kept.address, "yes_or_no", processes=2, threads=2, rounds=20)

    assert [said for each in told for said in each if said != "both"] == []
    assert kept.record.verify() == []
    for number in range(20):
        chain = kept.record.entries(key=call(number).call_digest)
        answer = kept.sql("SELECT answer FROM c4a_gate WHERE key = :key", key=call(number).call_digest)
        assert answer == [(chain[-1].kind.removeprefix("gate."),)]


def test_c_a1_of_several_reconcilers_one_asks_and_one_attempt_follows(kept: Kept, racers: Racers, processes: int) -> None:
    for number in range(ROUNDS):
        in_doubt(kept, call(number))
    for told in racers.race(kept.address, "ask", processes=processes, rounds=ROUNDS):
        count = Counter(told)
        assert count["asked"] == 1
        assert set(count) <= {"asked", "effect-in-doubt", "stale-verdict"}
    for told in racers.race(kept.address, "claim", processes=processes, rounds=ROUNDS):
        assert Counter(told)["granted"] == 1

    assert {kept.effect(call(number)).attempt for number in range(ROUNDS)} == {2}
    assert kept.record.verify() == []


def test_c_a2_of_several_resenders_one_sends_again(kept: Kept, racers: Racers, processes: int) -> None:
    for number in range(ROUNDS):
        in_doubt(kept, call(number))
    for told in racers.race(kept.address, "reclaim", processes=processes, rounds=ROUNDS):
        count = Counter(told)
        assert count["granted"] == 1
        assert set(count) <= {"granted", "effect-in-doubt", "effect-running"}

    assert {kept.effect(call(number)).attempt for number in range(ROUNDS)} == {2}
    assert kept.count() == ROUNDS * 3
    assert kept.record.verify() == []


def test_c_a3_resenders_leave_a_live_claim_alone(kept: Kept, racers: Racers, processes: int) -> None:
    begun(kept, call(0))
    (told,) = racers.race(kept.address, "reclaim", processes=processes)

    assert set(told) == {"effect-running"}
    assert kept.kinds(call(0)) == ["running"]


def test_c_a9_of_several_verdicts_one_counts(kept: Kept, racers: Racers, processes: int) -> None:
    for number in range(ROUNDS):
        in_doubt(kept, call(number))
    for told in racers.race(kept.address, "resolve", processes=processes, rounds=ROUNDS):
        count = Counter(told)
        assert count["resolved"] == 1
        assert set(count) <= {"resolved", "stale-verdict"}
    assert kept.record.verify() == []


def test_after_a_not_done_one_of_several_callers_gets_the_retry(kept: Kept, racers: Racers, processes: int) -> None:
    for number in range(ROUNDS):
        in_doubt(kept, call(number))
        kept.record.resolve(call(number).key, "not_done", attempt=1, note="looked", actor=PERSON)
    for told in racers.race(kept.address, "claim", processes=processes, rounds=ROUNDS):
        assert Counter(told)["granted"] == 1
    assert kept.record.verify() == []


def test_c_b9_a_retry_under_a_new_yes_is_given_to_one_and_the_others_are_told_that_it_runs(
    kept: Kept, racers: Racers, processes: int
) -> None:
    for number in range(ROUNDS):
        one = call(number, gated=True)
        approve(kept.record, one)
        who, _ = begun(kept, one)
        kept.record.release(one.run, one.key, who.token)
        deny(kept.record, one)
        approve(kept.record, one)
    for told in racers.race(kept.address, "claim", processes=processes, rounds=ROUNDS, gated=True):
        count = Counter(told)
        assert count["granted"] == 1
        assert set(count) <= {"granted", "effect-running"}
    assert kept.record.verify() == []


def test_several_sweepers_put_each_lapsed_claim_in_doubt_once(kept: Kept, racers: Racers, processes: int) -> None:
    for number in range(10):
        begun(kept, call(number), lease_seconds=0.01)
    (told,) = racers.race(kept.address, "sweep", processes=processes)

    assert sum(int(said.removeprefix("swept ")) for said in told) == 10
    assert kept.count() == 20
    assert kept.record.verify() == []


def test_case_52_many_claims_and_settlements_at_once_never_show_a_locked_database(kept: Kept, racers: Racers) -> None:
    (told,) = racers.race(kept.address, "mixed", processes=2, threads=8)

    assert set(told) == {"worked"}
    assert [len(kept.kinds(call(each))) for each in range(20)] == [2] * 20
    assert kept.record.verify() == []


def tickets(kept: Kept, rounds: int) -> list[str]:
    """A ticket for each round."""
    return [kept.record.pause(call(number, gated=True), actor=AGENT).text for number in range(rounds)]


def test_c_b8_of_8_callers_who_ask_at_once_all_have_one_ticket(kept: Kept, racers: Racers, processes: int) -> None:
    for told in racers.race(kept.address, "pause", processes=processes, threads=8 // processes, rounds=ROUNDS):
        assert len(told) == 8
        assert len(set(told)) == 1
        assert told[0].startswith("tkt_")

    assert kept.count("c4a_ticket") == ROUNDS
    assert kept.record.verify() == []


def test_case_50_yes_and_no_to_one_ticket_at_the_same_instant_are_one_decision(kept: Kept, racers: Racers) -> None:
    rounds = 20
    texts = tickets(kept, rounds)
    for number, told in enumerate(racers.race(kept.address, "decide", processes=2, rounds=rounds, tickets=texts)):
        assert Counter(told) in (Counter({"approve": 1, "ticket-refused": 1}), Counter({"deny": 1, "ticket-refused": 1}))
        (answer,) = set(told) - {"ticket-refused"}
        assert len(kept.record.entries(key=call(number).call_digest)) == 1
        assert kept.record.ticket(texts[number]).state == {"approve": "approved", "deny": "denied"}[answer]
    agreed = kept.sql("SELECT COUNT(*) FROM c4a_gate AS g JOIN c4a_ticket AS t ON t.call_digest = g.key AND t.state = g.answer")

    assert agreed == [(rounds,)]
    assert kept.record.verify() == []


@pytest.mark.prove
def test_case_50_two_hundred_times(kept: Kept, racers: Racers) -> None:
    texts = tickets(kept, 200)
    for told in racers.race(kept.address, "decide", processes=2, rounds=200, tickets=texts):
        assert Counter(told)["ticket-refused"] == 1
    assert kept.record.verify() == []


def test_case_67_many_clicks_at_once_are_one_receipt(kept: Kept, racers: Racers, processes: int) -> None:
    texts = tickets(kept, ROUNDS)
    for told in racers.race(kept.address, "click", processes=processes, threads=2, rounds=ROUNDS, tickets=texts):
        assert len(set(told)) == 1
        assert told[0].startswith("Decision(")

    assert kept.count("c4a_approval") == ROUNDS


def test_a_yes_is_spent_or_taken_back_and_never_both(kept: Kept, racers: Racers) -> None:
    texts = tickets(kept, ROUNDS * 2)
    for text in texts:
        kept.record.decide(text, "approve", by=PERSON)
    for told in racers.race(kept.address, "spend_or_withdraw", processes=2, rounds=ROUNDS * 2, tickets=texts):
        assert sorted(told) in (["approval-required", "withdrawn"], ["granted", "ticket-refused"])

    assert kept.record.verify() == []
