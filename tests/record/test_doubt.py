"""Doubt: how an attempt comes to be in doubt, who may ask outside, and who may judge."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from c4a.errors import EffectInDoubt, EffectRunning, EffectUnknown, RecordDamaged, RequestRefused, StaleVerdict
from c4a.record.types import Call, Grant, Recorded
from tests.record.cast import AGENT, PERSON, Kept, begun, call, claimant, in_doubt, micros


def ask(kept: Kept, one: Call, *, attempt: int = 1, token: str | None = None, after: float = 0, lease: float = 15, **options: Any) -> str:
    """Take the sole right to ask outside."""
    token = token or claimant().token
    kept.record.ask(one.run, one.key, attempt=attempt, token=token, actor=AGENT, after_seconds=after, lease_seconds=lease, **options)
    return token


def resolve(kept: Kept, one: Call, verdict: Literal["done", "not_done"], **options: Any) -> Any:
    """A person's verdict on attempt 1."""
    return kept.record.resolve(one.key, verdict, **{"attempt": 1, "note": "looked at the bank", "actor": PERSON, **options})


# -- how it comes to be in doubt ------------------------------------------------------------------------------------------


def test_the_sweep_puts_lapsed_claims_in_doubt_once_and_leaves_live_ones(kept: Kept) -> None:
    lapsed, live = call(1), call(2)
    begun(kept, lapsed, lease_seconds=5)
    begun(kept, live, lease_seconds=60)
    kept.advance(6)

    assert kept.record.sweep() == 1
    assert kept.record.sweep() == 0
    assert (kept.effect(lapsed).state, kept.effect(live).state) == ("in_doubt", "running")
    assert kept.kinds(lapsed) == ["running", "in_doubt"]
    assert kept.record.verify() == []


def test_one_damaged_head_does_not_keep_the_sweep_from_the_others(kept: Kept) -> None:
    damaged, lapsed = call(1), call(2)
    begun(kept, damaged, lease_seconds=4)
    begun(kept, lapsed, lease_seconds=5)
    kept.sql("UPDATE c4a_effect SET seq = 0 WHERE key = :key", key=damaged.key)
    kept.advance(6)

    assert kept.record.sweep() == 1
    assert kept.effect(lapsed).state == "in_doubt"


def test_a_process_proved_gone_is_in_doubt_at_once(kept: Kept) -> None:
    one = call(10)
    begun(kept, one, holder="pid 7")

    kept.record.declare_dead(one.run, one.key, attempt=1, holder="pid 7", actor=AGENT)

    with pytest.raises(EffectInDoubt) as caught:
        kept.record.claim(one, claimant())
    assert (caught.value.reason, caught.value.body_ended) == ("dead", True)
    assert kept.record.verify() == []


@pytest.mark.parametrize(("attempt", "holder"), [(1, "pid 8"), (2, "pid 7"), (0, "pid 7")])
def test_a_proof_about_another_process_or_attempt_changes_nothing(kept: Kept, attempt: int, holder: str) -> None:
    one = call(10)
    begun(kept, one, holder="pid 7")

    kept.record.declare_dead(one.run, one.key, attempt=attempt, holder=holder, actor=AGENT)

    assert kept.effect(one).state == "running"


def test_a_proof_that_comes_after_the_outcome_changes_nothing(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one, holder="pid 7")
    kept.record.complete(one.run, one.key, who.token, result="1")
    kept.record.declare_dead(one.run, one.key, attempt=1, holder="pid 7", actor=AGENT)

    assert kept.effect(one).state == "done"


def test_a_lapsed_claim_whose_process_is_then_proved_gone_needs_no_grace(kept: Kept) -> None:
    one = call(10)
    begun(kept, one, holder="pid 7")
    kept.advance(16)
    kept.record.sweep()
    with pytest.raises(EffectInDoubt):
        ask(kept, one)

    kept.record.declare_dead(one.run, one.key, attempt=1, holder="pid 7", actor=AGENT)

    ask(kept, one)


# -- reconcile: ask and answer --------------------------------------------------------------------------------------------


def test_c_a1_one_caller_asks_outside_and_the_others_are_refused(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    ask(kept, one)

    for _ in range(3):
        with pytest.raises(EffectInDoubt, match="somebody is asking"):
            ask(kept, one)


def test_the_same_asker_may_ask_again_and_another_once_its_lease_ran_out(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    first = ask(kept, one, lease=15)
    assert ask(kept, one, token=first) == first
    kept.advance(16)
    second = ask(kept, one)

    with pytest.raises(StaleVerdict):
        kept.record.answer(one.run, one.key, first, verdict="not_done", actor=AGENT)
    kept.record.answer(one.run, one.key, second, verdict="done", result="7", actor=AGENT)
    assert kept.effect(one).result == "7"


def test_nobody_asks_about_an_action_that_runs_or_may_still_run(kept: Kept) -> None:
    running, lapsed = call(1), call(2)
    in_doubt(kept, lapsed, reason="lapsed")
    begun(kept, running)

    with pytest.raises(StaleVerdict):
        ask(kept, running)
    with pytest.raises(EffectInDoubt):
        ask(kept, lapsed, grace_seconds=30)
    kept.advance(31)
    ask(kept, lapsed, grace_seconds=30)


def test_nobody_asks_before_the_providers_read_lag_is_over(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    with pytest.raises(EffectInDoubt, match="too early"):
        ask(kept, one, after=60)
    kept.advance(61)
    ask(kept, one, after=60)


@pytest.mark.parametrize("attempt", [0, 2])
def test_nobody_asks_about_an_attempt_that_is_not_the_last(kept: Kept, attempt: int) -> None:
    one = call(10)
    in_doubt(kept, one)
    with pytest.raises(StaleVerdict) as caught:
        ask(kept, one, attempt=attempt)
    assert (caught.value.attempt, caught.value.state) == (1, "in_doubt")


def test_an_unknown_effect_cannot_be_asked_about(kept: Kept) -> None:
    with pytest.raises(StaleVerdict):
        ask(kept, call(10))


def test_the_outside_says_done(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    asker = ask(kept, one)
    kept.record.answer(one.run, one.key, asker, verdict="done", result='"tx-1"', actor=AGENT)

    again = kept.record.claim(one, claimant())

    assert isinstance(again, Recorded)
    assert again.result == '"tx-1"'
    assert kept.record.verify() == []


def test_the_outside_says_not_done_and_one_new_attempt_follows(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    kept.record.answer(one.run, one.key, ask(kept, one), verdict="not_done", actor=AGENT)

    grant = kept.record.claim(one, claimant())

    assert isinstance(grant, Grant)
    assert grant.attempt == 2
    with pytest.raises(EffectRunning):
        kept.record.claim(one, claimant())
    assert kept.record.verify() == []


def test_the_outside_does_not_know_and_it_stays_in_doubt(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    kept.record.answer(one.run, one.key, ask(kept, one), verdict="unknown", actor=AGENT)

    with pytest.raises(EffectInDoubt) as caught:
        kept.record.claim(one, claimant())
    assert (caught.value.reason, caught.value.error) == ("unknown", "TimeoutError: no answer")
    ask(kept, one)  # anybody may try again
    assert kept.record.verify() == []


@pytest.mark.parametrize("verdict", ["done", "not_done", "unknown"])
def test_an_answer_said_twice_is_written_once(kept: Kept, verdict: Any) -> None:
    """A lost answer makes the same statements run again."""
    one = call(10)
    in_doubt(kept, one)
    asker = ask(kept, one)
    kept.record.answer(one.run, one.key, asker, verdict=verdict, actor=AGENT)
    before = kept.count()

    with pytest.raises(StaleVerdict):
        kept.record.answer(one.run, one.key, asker, verdict=verdict, actor=AGENT)
    assert kept.count() == before


def test_nobody_answers_who_did_not_ask(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    ask(kept, one)

    with pytest.raises(StaleVerdict):
        kept.record.answer(one.run, one.key, claimant().token, verdict="not_done", actor=AGENT)
    assert kept.effect(one).state == "in_doubt"


def test_an_answer_after_a_person_resolved_is_stale(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    asker = ask(kept, one)
    resolve(kept, one, "done")

    with pytest.raises(StaleVerdict):
        kept.record.answer(one.run, one.key, asker, verdict="not_done", actor=AGENT)
    assert kept.effect(one).state == "done"


# -- resolve --------------------------------------------------------------------------------------------------------------


def test_c_h2_a_person_may_say_done_with_the_result(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    found = resolve(kept, one, "done", result='"tx-1"')

    assert (found.state, found.result) == ("done", '"tx-1"')
    again = kept.record.claim(one, claimant())
    assert isinstance(again, Recorded)
    assert (again.result, again.note) == ('"tx-1"', None)
    assert kept.record.entries()[-1].actor == PERSON
    assert kept.record.verify() == []


def test_a_person_may_say_done_without_a_result(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    resolve(kept, one, "done")

    again = kept.record.claim(one, claimant())

    assert isinstance(again, Recorded)
    assert (again.result, again.note) == (None, "resolved")
    assert kept.record.verify() == []


@pytest.mark.parametrize("new", [False, True])
def test_a_person_may_say_not_done_and_ask_for_a_new_outside_key(kept: Kept, new: bool) -> None:
    one = call(10)
    in_doubt(kept, one)
    resolve(kept, one, "not_done", new_outside_key=new)

    grant = kept.record.claim(one, claimant())

    assert isinstance(grant, Grant)
    assert (grant.attempt, grant.epoch) == (2, int(new))
    assert kept.record.verify() == []


def test_c_a4_a_running_action_is_not_resolved(kept: Kept) -> None:
    one = call(10)
    begun(kept, one)
    for verdict in ("done", "not_done"):
        with pytest.raises(EffectRunning):
            resolve(kept, one, verdict, confirm_lapsed=True)

    assert kept.kinds(one) == ["running"]


def test_c_a9_a_second_verdict_while_the_retry_runs_is_refused(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    resolve(kept, one, "not_done")
    begun(kept, one)

    with pytest.raises((StaleVerdict, EffectRunning)):
        resolve(kept, one, "not_done")
    assert kept.effect(one).state == "running"
    with pytest.raises(EffectRunning):
        kept.record.claim(one, claimant())


def test_c_a9_a_verdict_about_an_older_attempt_is_refused_even_when_the_newer_is_in_doubt(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    resolve(kept, one, "not_done")
    in_doubt(kept, one)

    with pytest.raises(StaleVerdict) as caught:
        resolve(kept, one, "not_done", attempt=1)
    assert caught.value.attempt == 2
    assert kept.effect(one).state == "in_doubt"


@pytest.mark.parametrize("state", ["done", "not_done"])
def test_a_verdict_on_what_is_settled_is_stale(kept: Kept, state: str) -> None:
    one = call(10)
    in_doubt(kept, one)
    resolve(kept, one, state)  # type: ignore[arg-type]

    for verdict in ("done", "not_done"):
        with pytest.raises(StaleVerdict):
            resolve(kept, one, verdict)
    assert len(kept.kinds(one)) == 3


@pytest.mark.parametrize("blank", ["", "   ", "\n"])
@pytest.mark.parametrize("field", ["note", "actor"])
def test_a_verdict_needs_a_note_and_a_name(kept_file: Kept, field: str, blank: str) -> None:
    one = call(10)
    in_doubt(kept_file, one)
    with pytest.raises(RequestRefused, match=field):
        resolve(kept_file, one, "done", **{field: blank})
    assert kept_file.effect(one).state == "in_doubt"


def test_a_verdict_of_another_kind_is_refused(kept_file: Kept) -> None:
    in_doubt(kept_file, call(10))
    with pytest.raises(RequestRefused, match="maybe"):
        resolve(kept_file, call(10), "maybe")  # type: ignore[arg-type]


def test_an_unknown_key_is_not_resolved(kept: Kept) -> None:
    with pytest.raises(EffectUnknown):
        kept.record.resolve("0" * 64, "done", attempt=1, note="x", actor=PERSON)
    in_doubt(kept, call(10))
    with pytest.raises(EffectUnknown):
        resolve(kept, call(10), "done", run="another run")


@pytest.mark.parametrize("reason", ["lapsed", "cancelled"])
def test_not_done_on_what_may_still_run_needs_a_confirmation(kept: Kept, reason: str) -> None:
    one = call(10)
    in_doubt(kept, one, reason=reason)
    with pytest.raises(RequestRefused) as caught:
        resolve(kept, one, "not_done")
    assert caught.value.needs == "confirm_lapsed"
    assert kept.effect(one).state == "in_doubt"

    assert resolve(kept, one, "not_done", confirm_lapsed=True).state == "not_done"


def test_not_done_needs_no_confirmation_once_lease_and_grace_are_over(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one, reason="lapsed")
    kept.advance(60)

    assert resolve(kept, one, "not_done").state == "not_done"


@pytest.mark.parametrize("text", ["é😀", "nul\0inside", "lone \ud800 surrogate"])
def test_odd_notes_are_recorded_alike_on_both_databases(kept: Kept, text: str) -> None:
    in_doubt(kept, call(10))
    resolve(kept, call(10), "done", note=text)

    assert kept.record.entries()[-1].payload["note"] == text  # type: ignore[index]
    assert kept.record.verify() == []


# -- tampering with heads buys no verdict -----------------------------------------------------------------------------------


def test_a_head_set_to_in_doubt_by_hand_is_neither_asked_about_nor_resolved(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")
    kept.sql("UPDATE c4a_effect SET state = 'in_doubt', reason = 'raised'")

    with pytest.raises(RecordDamaged):
        ask(kept, one)
    with pytest.raises(RecordDamaged):
        resolve(kept, one, "not_done")
    with pytest.raises(EffectInDoubt):
        kept.record.reclaim(one, claimant(), attempt=1, window_seconds=3600)
    assert kept.kinds(one) == ["running", "done"]


def test_doubt_is_counted_and_listed(kept: Kept) -> None:
    from c4a.record.reads import counts

    in_doubt(kept, call(1))
    begun(kept, call(2))
    with kept.executor() as executor:
        assert counts(executor, kept.record.organization) == {"running": 1, "in_doubt": 1}
    assert [one.key for one in kept.record.effects(state="in_doubt")] == [call(1).key]
    assert [one.key for one in kept.record.effects(state="running")] == [call(2).key]
    assert abs(kept.effect(call(1)).last_at - kept.now()) < micros(20)
