"""Claim and reclaim: one attempt for one caller, or what was recorded."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from c4a.errors import EffectInDoubt, EffectRunning, EffectUndone, KeyConflict, RequestRefused
from c4a.outbox import Outcome
from c4a.record.claim import claim
from c4a.record.types import Call, Grant, Recorded
from tests.record.cast import AGENT, PERSON, Counting, Kept, approve, begun, call, claimant, in_doubt, micros


def test_a_first_claim_is_granted_and_leaves_its_intent(kept: Kept) -> None:
    one = call(10)
    _, grant = begun(kept, one)

    assert grant == Grant(run=one.run, key=one.key, attempt=1, epoch=0)
    (entry,) = kept.record.entries()
    assert (entry.kind, entry.run, entry.key, entry.seq, entry.attempt, entry.actor) == ("effect.running", one.run, one.key, 1, 1, AGENT)
    assert entry.payload is not None
    assert entry.payload["arguments"] == one.arguments
    assert abs(entry.recorded_at - kept.now()) < micros(20)
    assert kept.record.verify() == []


def test_the_token_itself_is_stored_and_shown_nowhere(kept: Kept) -> None:
    who, _ = begun(kept, call(10))
    stored = [
        str(row)
        for table in ("c4a_entry", "c4a_effect", "c4a_run", "c4a_meta")
        for row in kept.sql(f"SELECT * FROM {table}")  # every column
    ]

    assert not [row for row in stored if who.token in row]
    assert who.token not in repr(who) + repr(Outcome("release", "run-1", "k", who.token))


def test_a_second_caller_is_told_who_runs_it_and_until_when(kept: Kept) -> None:
    begun(kept, call(10), holder="somewhere")

    with pytest.raises(EffectRunning) as caught:
        kept.record.claim(call(10), claimant(actor="agent:other"))

    assert (caught.value.actor, caught.value.holder, caught.value.attempt) == (AGENT, "somewhere", 1)
    assert caught.value.body_ended is False
    assert caught.value.lease_until > kept.now()
    assert kept.count() == 1


def test_a_recorded_action_returns_its_result_and_writes_nothing(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result='{"id":7}')

    again = kept.record.claim(one, claimant())

    assert isinstance(again, Recorded)
    assert (again.attempt, again.result, again.note) == (1, '{"id":7}', None)
    assert abs(again.done_at - kept.now()) < micros(20)
    assert kept.kinds(one) == ["running", "done"]


def test_the_same_token_asking_again_gets_the_same_grant(kept: Kept) -> None:
    one = call(10)
    who, grant = begun(kept, one)

    assert kept.record.claim(one, who) == grant
    assert kept.count() == 1


def test_a_gated_claim_asked_again_with_the_same_token_spends_one_yes(kept: Kept) -> None:
    one = call(10, gated=True)
    for _ in range(3):
        approve(kept.record, one)
    who = claimant()

    first = kept.record.claim(one, who)

    assert isinstance(first, Grant)
    assert kept.record.claim(one, who) == first
    assert kept.sql("SELECT COUNT(*) FROM c4a_approval WHERE state = 'spent'") == [(1,)]
    assert kept.record.verify() == []


def test_a_token_holds_nothing_but_the_call_it_was_granted_for(kept: Kept) -> None:
    shown = call(10, key="order-1", gated=True, note="a")
    approve(kept.record, shown)
    who, grant = begun(kept, shown)

    for other in (call(1000, key="order-1", gated=True), call(1000, key="order-1")):
        with pytest.raises(KeyConflict):
            kept.record.claim(other, who)
    with pytest.raises(RequestRefused, match="token"):
        kept.record.claim(call(10, key="order-1", gated=True, note="b"), who)
    assert kept.record.claim(shown, who) == grant


def test_an_action_in_doubt_is_refused_naming_the_error(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)

    with pytest.raises(EffectInDoubt, match="TimeoutError") as caught:
        kept.record.claim(one, claimant())

    assert type(caught.value) is EffectInDoubt
    assert (caught.value.reason, caught.value.body_ended, caught.value.attempt) == ("raised", True, 1)


def test_case_12_a_killed_withdrawal_is_in_doubt_after_its_lease_and_never_repeated_by_time_alone(kept: Kept) -> None:
    one = call(10, tool="withdraw")
    begun(kept, one, lease_seconds=5)
    for seconds in (6, 3600, 90 * 86400):
        kept.advance(seconds)
        with pytest.raises(EffectInDoubt) as caught:
            kept.record.claim(one, claimant())
        assert type(caught.value) is EffectInDoubt

    assert caught.value.reason == "lapsed"
    assert kept.kinds(one) == ["running", "in_doubt"]


def test_a_lapsed_claim_is_in_doubt_at_the_next_read_and_not_before(kept: Kept) -> None:
    one = call(10)
    begun(kept, one, lease_seconds=15)
    kept.advance(14)
    with pytest.raises(EffectRunning):
        kept.record.claim(one, claimant())
    kept.advance(2)

    with pytest.raises(EffectInDoubt) as caught:
        kept.record.claim(one, claimant())

    assert (caught.value.reason, caught.value.body_ended) == ("lapsed", False)
    assert kept.effect(one).state == "in_doubt"


def test_an_action_proved_not_done_gets_one_more_attempt_under_the_same_epoch(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.fail(one.run, one.key, who.token, error="refused", nothing_happened=True)

    grant = kept.record.claim(one, claimant())

    assert isinstance(grant, Grant)
    assert (grant.attempt, grant.epoch) == (2, 0)
    assert kept.kinds(one) == ["running", "not_done", "running"]
    assert kept.record.verify() == []


def test_an_undone_action_neither_runs_nor_returns_the_reversed_result(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="7")
    for state in ("undoing", "undone"):
        kept.sql("UPDATE c4a_effect SET state = :state", state=state)
        with pytest.raises(EffectUndone):
            kept.record.claim(one, claimant())


@pytest.mark.parametrize("gated", [False, True])
def test_an_explicit_key_used_for_other_arguments_is_a_conflict_with_both(kept: Kept, gated: bool) -> None:
    first, second = call(10, key="order-1", gated=gated), call(11, key="order-1", gated=gated)
    approve(kept.record, first)
    approve(kept.record, second)
    who, _ = begun(kept, first)
    kept.record.complete(first.run, first.key, who.token, result="1")
    before = kept.count()

    with pytest.raises(KeyConflict) as caught:
        kept.record.claim(second, claimant())

    assert (caught.value.recorded_arguments, caught.value.given_arguments) == (first.arguments, second.arguments)
    assert caught.value.explicit_key == "order-1"
    assert kept.count() == before


def test_a_conflict_is_told_while_the_first_runs_and_while_it_is_not_done(kept: Kept) -> None:
    first, second = call(10, key="order-1"), call(11, key="order-1")
    who, _ = begun(kept, first)
    with pytest.raises(KeyConflict):
        kept.record.claim(second, claimant())
    kept.record.release(first.run, first.key, who.token)
    with pytest.raises(KeyConflict):
        kept.record.claim(second, claimant())

    assert kept.effect(first).attempt == 1


def test_arguments_left_out_of_the_key_may_differ(kept: Kept) -> None:
    first, second = call(10, note="first try"), call(10, note="second try")
    who, _ = begun(kept, first)
    kept.record.complete(first.run, first.key, who.token, result="1")

    assert first.call_digest != second.call_digest
    assert isinstance(kept.record.claim(second, claimant()), Recorded)


def test_runs_and_organizations_do_not_share_effects(kept: Kept) -> None:
    one = call(10)
    begun(kept, one)
    with kept.executor() as executor:
        other = claim(executor, "org_other", one, claimant(), kept.record._keyring)

    assert isinstance(other, Grant)
    assert isinstance(kept.record.claim(call(10, run="run-2"), claimant()), Grant)
    assert len(kept.record.entries()) == 2
    assert kept.record.effects(run="run-2") != []


def test_one_organization_reads_and_settles_nothing_of_another(kept: Kept) -> None:
    from c4a.errors import ClaimLost, EffectUnknown
    from c4a.record import doubt, reads, settle, verify

    one = call(10)
    who, _ = in_doubt(kept, one)
    with kept.executor() as executor:
        assert reads.effect(executor, "org_other", one.key) is None
        assert reads.effects(executor, "org_other") == []
        assert reads.entries(executor, "org_other") == []
        assert reads.keys_starting(executor, "org_other", one.key[:4]) == []
        assert reads.counts(executor, "org_other") == {"running": 0, "in_doubt": 0}
        with pytest.raises(EffectUnknown):
            doubt.resolve(executor, "org_other", one.key, "not_done", attempt=1, note="x", actor=PERSON)
        with pytest.raises(ClaimLost):
            settle.complete(executor, "org_other", one.run, one.key, who.token, result="1")
        assert settle.heartbeat(executor, "org_other", [(one.run, one.key, who.token)], 15) == [one.key]
        doubt.declare_dead(executor, "org_other", one.run, one.key, attempt=1, holder="", actor="x")
        assert verify.rebuild(executor, "org_other") == 0

    assert kept.kinds(one) == ["running", "in_doubt"]
    assert kept.record.verify() == []


def test_case_82_only_the_records_clock_counts(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a file the machine's clock is the record's, so only a database can differ from its callers.
    one = call(10)
    begun(kept, one, lease_seconds=15)
    kept.advance(-120)
    with pytest.raises(EffectRunning):
        kept.record.claim(one, claimant())
    kept.advance(240)
    with pytest.raises(EffectInDoubt) as caught:
        kept.record.claim(one, claimant())
    assert type(caught.value) is EffectInDoubt


def test_time_never_runs_backwards_within_a_chain(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.advance(-3600)
    kept.record.fail(one.run, one.key, who.token, error="x")
    kept.record.resolve(one.key, "done", attempt=1, note="seen", actor=PERSON)

    times = [entry.recorded_at for entry in kept.record.entries(key=one.key)]
    assert times == sorted(times)
    assert kept.record.verify() == []


def test_a_nested_effect_names_its_parent(kept: Kept) -> None:
    outer = call(10, tool="checkout")
    begun(kept, outer)
    inner = call(10, parent=outer.key)
    begun(kept, inner)

    assert kept.effect(inner).parent == outer.key


# -- reclaim (idempotent_for) -------------------------------------------------------------------------------------------


def reclaim(kept: Kept, one: Call, *, attempt: int = 1, window: float = 3600, **options: Any) -> Grant:
    """Send the same outside key again."""
    return kept.record.reclaim(one, claimant(), attempt=attempt, window_seconds=window, **options)


def test_c_a2_an_attempt_in_doubt_is_sent_again_within_the_window(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)

    grant = reclaim(kept, one)

    assert (grant.attempt, grant.epoch) == (2, 0)
    assert kept.kinds(one) == ["running", "in_doubt", "running"]
    assert kept.record.verify() == []


def test_c_a2_the_window_counts_from_the_first_intent_whatever_came_between(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    for attempt in (1, 2, 3):
        kept.advance(900)
        who = claimant()
        kept.record.reclaim(one, who, attempt=attempt, window_seconds=3600)
        kept.record.fail(one.run, one.key, who.token, error="again")
    kept.advance(950)

    with pytest.raises(EffectInDoubt):
        reclaim(kept, one, attempt=4)
    assert kept.effect(one).attempt == 4


def test_c_a3_a_live_claim_is_never_sent_again(kept: Kept) -> None:
    one = call(10)
    begun(kept, one)

    with pytest.raises(EffectRunning):
        reclaim(kept, one)
    assert kept.kinds(one) == ["running"]


@pytest.mark.parametrize("reason", ["lapsed", "cancelled"])
def test_c_a3_an_attempt_that_may_still_run_is_sent_again_only_after_lease_and_grace(kept: Kept, reason: str) -> None:
    one = call(10)
    in_doubt(kept, one, reason=reason)
    kept.advance(0 if reason == "lapsed" else 16)
    with pytest.raises(EffectInDoubt):
        reclaim(kept, one, grace_seconds=30)
    kept.advance(31)

    assert reclaim(kept, one, grace_seconds=30).attempt == 2


def test_c_a3_a_process_proved_dead_needs_no_grace(kept: Kept) -> None:
    one = call(10)
    begun(kept, one, holder="the dead one")
    kept.record.declare_dead(one.run, one.key, attempt=1, holder="the dead one", actor=AGENT)

    assert reclaim(kept, one).attempt == 2


def test_a_reclaim_that_names_an_older_attempt_is_refused(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    who = claimant()
    kept.record.reclaim(one, who, attempt=1, window_seconds=3600)
    kept.record.fail(one.run, one.key, who.token, error="again")

    with pytest.raises(EffectInDoubt):
        reclaim(kept, one, attempt=1)
    assert kept.effect(one).attempt == 2


def test_a_reclaim_asked_again_with_its_token_gets_the_same_grant(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    who = claimant()
    first = kept.record.reclaim(one, who, attempt=1, window_seconds=3600)

    assert kept.record.reclaim(one, who, attempt=1, window_seconds=3600) == first
    assert kept.kinds(one) == ["running", "in_doubt", "running"]


def test_while_somebody_asks_outside_nobody_sends_it_again(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    kept.record.ask(one.run, one.key, attempt=1, token="a" * 32, actor=AGENT, after_seconds=0, lease_seconds=15)
    with pytest.raises(EffectInDoubt):
        reclaim(kept, one)
    kept.advance(16)

    assert reclaim(kept, one).attempt == 2


def test_a_gated_action_is_sent_again_only_under_the_yes_it_spent(kept: Kept) -> None:
    one = call(10, gated=True)
    yes = approve(kept.record, one)
    in_doubt(kept, one)

    grant = reclaim(kept, one)

    assert (grant.attempt, grant.approval) == (2, yes)
    assert kept.record.verify() == []


def test_a_conflicting_call_is_not_sent_again(kept: Kept) -> None:
    in_doubt(kept, call(10, key="k"))

    with pytest.raises(KeyConflict):
        reclaim(kept, call(11, key="k"))


# -- cost ---------------------------------------------------------------------------------------------------------------


def test_a_claim_and_a_repeat_cost_few_trips(kept: Kept) -> None:
    one, keyring = call(10), kept.record._keyring
    begun(kept, call(9))
    who = claimant()
    with kept.executor() as inner:
        new = Counting(inner)
        claim(new, kept.record.organization, one, who, keyring)
        kept.record.complete(one.run, one.key, who.token, result="1")
        repeat = Counting(inner)
        claim(repeat, kept.record.organization, one, claimant(), keyring)

    # A file looks before it takes the write lock, where a look costs no trip.
    assert new.trips <= (2 if kept.kind == "file" else 1)
    assert repeat.trips == 1


def test_an_approved_claim_costs_at_most_two_trips_where_a_trip_is_far(kept_database: Kept) -> None:
    one, keyring = call(10, gated=True), kept_database.record._keyring
    approve(kept_database.record, one)
    with kept_database.executor() as inner:
        counting = Counting(inner)
        claim(counting, kept_database.record.organization, one, claimant(), keyring)

    assert counting.trips <= 2


def test_a_call_that_says_what_is_in_the_record_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        call(10).arguments = "{}"  # type: ignore[misc]
