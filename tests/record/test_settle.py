"""Settle: what the holder of a claim says about its own attempt, in time, twice, late, or after it was fenced off."""

from __future__ import annotations

import pytest

from c4a.errors import ClaimLost, EffectInDoubt, EffectRunning, LedgerError
from c4a.record.types import Grant, Recorded
from tests.record.cast import AGENT, PERSON, Kept, begun, call, claimant, in_doubt


def test_complete_settles_with_the_result_and_who_did_it(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)

    assert kept.record.complete(one.run, one.key, who.token, result='{"id":7}') == "done"

    found = kept.effect(one)
    assert (found.state, found.result, found.note, found.actor) == ("done", '{"id":7}', None, AGENT)
    assert found.done_at == found.last_at
    assert kept.record.entries()[-1].actor == AGENT
    assert kept.record.verify() == []


def test_a_result_that_cannot_be_kept_says_why(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result=None, note="unrecordable")

    again = kept.record.claim(one, claimant())

    assert isinstance(again, Recorded)
    assert (again.result, again.note) == (None, "unrecordable")
    assert kept.record.verify() == []


def test_an_outcome_said_twice_is_written_once(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")

    assert kept.record.complete(one.run, one.key, who.token, result="1") == "repeated"
    assert kept.kinds(one) == ["running", "done"]


@pytest.mark.parametrize("nothing_happened", [True, False])
def test_a_failure_said_twice_is_written_once(kept: Kept, nothing_happened: bool) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    for _ in range(2):
        kept.record.fail(one.run, one.key, who.token, error="boom", nothing_happened=nothing_happened)

    assert kept.kinds(one) == ["running", "not_done" if nothing_happened else "in_doubt"]


def test_a_release_said_twice_is_written_once_and_keeps_the_attempts_count(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.release(one.run, one.key, who.token)
    kept.record.release(one.run, one.key, who.token)

    assert kept.kinds(one) == ["running", "not_done"]
    assert isinstance(kept.record.claim(one, claimant()), Grant)


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_a_token_that_never_held_the_claim_is_fenced_off(kept: Kept, verb: str) -> None:
    one = call(10)
    begun(kept, one)
    wrong = claimant().token
    said = {
        "complete": lambda: kept.record.complete(one.run, one.key, wrong, result="1"),
        "fail": lambda: kept.record.fail(one.run, one.key, wrong, error="x"),
        "release": lambda: kept.record.release(one.run, one.key, wrong),
    }
    with pytest.raises(ClaimLost):
        said[verb]()

    assert kept.kinds(one) == ["running"]
    assert kept.effect(one).state == "running"


def test_an_effect_nobody_claimed_is_not_settled(kept: Kept) -> None:
    with pytest.raises(ClaimLost, match="unknown"):
        kept.record.complete("run-1", "0" * 64, claimant().token, result="1")
    assert kept.count() == 0


def test_a_heartbeat_extends_the_lease_of_a_live_claim(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one, lease_seconds=15)
    for _ in range(4):
        kept.advance(10)
        assert kept.record.heartbeat([(one.run, one.key, who.token)], 15) == []

    with pytest.raises(EffectRunning):
        kept.record.claim(one, claimant())
    assert kept.count() == 1


def test_a_body_that_still_runs_after_its_caller_gave_up_is_neither_asked_about_nor_sent_again(kept: Kept) -> None:
    one = call(10)
    who, grant = begun(kept, one, lease_seconds=15)
    kept.record.fail(one.run, one.key, who.token, error="timeout", reason="cancelled")
    for _ in range(8):
        kept.advance(10)
        assert kept.record.heartbeat([(one.run, one.key, who.token)], 15) == []

    with pytest.raises(EffectInDoubt):
        kept.record.reclaim(one, claimant(), attempt=grant.attempt, window_seconds=3600, grace_seconds=30)
    kept.advance(50)
    assert kept.record.reclaim(one, claimant(), attempt=grant.attempt, window_seconds=3600, grace_seconds=30).attempt == 2


def test_a_heartbeat_tells_which_claims_are_no_longer_held(kept: Kept) -> None:
    mine, lost, done = call(1), call(2), call(3)
    tokens = {one.key: begun(kept, one)[0].token for one in (mine, lost, done)}
    kept.record.complete(done.run, done.key, tokens[done.key], result="1")
    tokens[lost.key] = claimant().token
    beats = [(one.run, one.key, tokens[one.key]) for one in (mine, lost, done)]

    assert sorted(kept.record.heartbeat(beats, 15)) == sorted([lost.key, done.key])
    assert kept.record.heartbeat([], 15) == []


def test_another_callers_heartbeat_keeps_nobody_elses_claim_alive(kept: Kept) -> None:
    one = call(10)
    begun(kept, one, lease_seconds=15)
    kept.record.heartbeat([(one.run, one.key, claimant().token)], 3600)
    kept.advance(16)

    assert kept.record.sweep() == 1


def test_its_own_late_result_settles_a_lapsed_claim(kept: Kept) -> None:
    one = call(10)
    who, _ = in_doubt(kept, one, reason="lapsed")

    assert kept.record.complete(one.run, one.key, who.token, result="7") == "late"

    assert kept.effect(one).state == "done"
    assert kept.kinds(one) == ["running", "in_doubt", "done"]
    assert kept.record.entries()[-1].payload == {"by": "agent", "late": True, "result": "7"}
    assert kept.record.verify() == []


@pytest.mark.parametrize("verdict", ["done", "not_done"])
def test_c_a4_its_own_late_result_overrules_a_judgement_visibly(kept: Kept, verdict: str) -> None:
    one = call(10)
    who, _ = in_doubt(kept, one, reason="cancelled")
    kept.record.resolve(one.key, verdict, attempt=1, note="looked", actor=PERSON, confirm_lapsed=True)  # type: ignore[arg-type]

    assert kept.record.complete(one.run, one.key, who.token, result="7") == "late"

    assert (kept.effect(one).state, kept.effect(one).result) == ("done", "7")
    assert kept.kinds(one) == ["running", "in_doubt", verdict, "done"]
    assert kept.record.verify() == []


def test_a_late_failure_puts_a_judged_not_done_back_in_doubt(kept: Kept) -> None:
    one = call(10)
    who, _ = in_doubt(kept, one, reason="lapsed")
    kept.record.resolve(one.key, "not_done", attempt=1, note="looked", actor=PERSON, confirm_lapsed=True)

    kept.record.fail(one.run, one.key, who.token, error="reset by peer")

    with pytest.raises(EffectInDoubt, match="reset by peer"):
        kept.record.claim(one, claimant())
    assert kept.record.verify() == []


def test_a_late_failure_does_not_undo_what_was_judged_done(kept: Kept) -> None:
    one = call(10)
    who, _ = in_doubt(kept, one, reason="lapsed")
    kept.record.resolve(one.key, "done", attempt=1, note="seen at the bank", actor=PERSON)

    assert kept.record.fail(one.run, one.key, who.token, error="reset") == "repeated"
    assert kept.effect(one).state == "done"


def test_a_result_after_a_newer_attempt_began_is_the_finding_happened_twice(kept: Kept) -> None:
    one = call(10)
    first, _ = in_doubt(kept, one, reason="lapsed")
    kept.record.resolve(one.key, "not_done", attempt=1, note="looked", actor=PERSON, confirm_lapsed=True)
    second, _ = begun(kept, one)

    assert kept.record.complete(one.run, one.key, first.token, result="7") == "happened_twice"
    assert kept.record.complete(one.run, one.key, first.token, result="7") == "happened_twice"

    found = kept.effect(one)
    assert (found.state, found.attempt, found.happened_twice) == ("running", 2, True)
    assert kept.record.complete(one.run, one.key, second.token, result="8") == "done"
    assert kept.kinds(one) == ["running", "in_doubt", "not_done", "running", "happened_twice", "done"]
    assert kept.effect(one).happened_twice
    assert kept.record.verify() == []


def test_each_older_attempt_that_did_it_is_found_with_its_own_result_and_name(kept: Kept) -> None:
    one = call(10)
    tokens = []
    for attempt in (1, 2):
        who, _ = begun(kept, one, actor=f"agent:{attempt}")
        tokens.append(who.token)
        kept.record.fail(one.run, one.key, who.token, error="gave up", reason="cancelled")
        kept.record.resolve(one.key, "not_done", attempt=attempt, note="looked", actor=PERSON, confirm_lapsed=True)
    begun(kept, one, actor="agent:3")

    for token, result in zip(tokens * 2, ['"ch_1"', '"ch_2"'] * 2, strict=True):
        assert kept.record.complete(one.run, one.key, token, result=result) == "happened_twice"

    found = [entry for entry in kept.record.entries(key=one.key) if entry.kind == "effect.happened_twice"]
    told = [(entry.actor, (entry.payload or {}).get("attempt"), (entry.payload or {}).get("result")) for entry in found]
    assert told == [("agent:1", 1, '"ch_1"'), ("agent:2", 2, '"ch_2"')]
    assert kept.record.verify() == []


def test_a_failure_after_a_newer_attempt_began_says_the_claim_is_lost(kept: Kept) -> None:
    one = call(10)
    first, _ = in_doubt(kept, one, reason="lapsed")
    kept.record.resolve(one.key, "not_done", attempt=1, note="looked", actor=PERSON, confirm_lapsed=True)
    begun(kept, one)

    for verb in (kept.record.release, lambda *place: kept.record.fail(*place, error="x")):
        with pytest.raises(ClaimLost):
            verb(one.run, one.key, first.token)
    assert kept.effect(one).state == "running"


def test_an_older_attempts_result_stops_a_third_attempt(kept: Kept) -> None:
    """Attempt 1 did it, attempt 2 is proved not to have: the action must not run a third time, nor is the record damaged."""
    one = call(10)
    first, _ = in_doubt(kept, one, reason="lapsed")
    kept.record.resolve(one.key, "not_done", attempt=1, note="looked", actor=PERSON, confirm_lapsed=True)
    second, _ = begun(kept, one)
    kept.record.fail(one.run, one.key, second.token, error="refused", nothing_happened=True)
    kept.record.complete(one.run, one.key, first.token, result="7")

    with pytest.raises(EffectInDoubt):
        kept.record.claim(one, claimant())

    assert kept.effect(one).happened_twice
    assert kept.record.verify() == []
    settled = kept.record.resolve(one.key, "done", attempt=2, note="attempt 1 did it", actor=PERSON, result="7")
    assert settled.state == "done"
    assert kept.record.verify() == []


@pytest.mark.parametrize("verb", ["fail", "release"])
def test_a_newer_attempt_that_did_not_happen_is_not_tried_again_once_the_older_one_is_done(kept: Kept, verb: str) -> None:
    one = call(10)
    first, _ = in_doubt(kept, one, reason="lapsed")
    kept.record.resolve(one.key, "not_done", attempt=1, note="looked", actor=PERSON, confirm_lapsed=True)
    second, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, first.token, result="7")
    if verb == "fail":
        kept.record.fail(one.run, one.key, second.token, error="refused", nothing_happened=True)
    else:
        kept.record.release(one.run, one.key, second.token)

    with pytest.raises(EffectInDoubt):
        kept.record.claim(one, claimant())
    asker = claimant().token
    kept.record.ask(one.run, one.key, attempt=2, token=asker, actor=AGENT, after_seconds=0, lease_seconds=15)
    kept.record.answer(one.run, one.key, asker, verdict="not_done", actor=AGENT)
    with pytest.raises(EffectInDoubt):
        kept.record.claim(one, claimant())
    assert kept.record.verify() == []


def test_a_late_failure_makes_the_answer_of_whoever_asked_meanwhile_stale(kept: Kept) -> None:
    """The body was still at work while somebody asked outside, so 'not found' proves nothing any more."""
    from c4a.errors import StaleVerdict

    one = call(10)
    who, _ = in_doubt(kept, one, reason="lapsed")
    kept.advance(60)
    asker = claimant().token
    kept.record.ask(one.run, one.key, attempt=1, token=asker, actor=AGENT, after_seconds=0, lease_seconds=15)
    kept.record.fail(one.run, one.key, who.token, error="reset by peer")

    with pytest.raises(StaleVerdict):
        kept.record.answer(one.run, one.key, asker, verdict="not_done", actor=AGENT)
    assert kept.effect(one).state == "in_doubt"


@pytest.mark.parametrize("text", ["", "é😀", "nul\0inside", "lone \ud800 surrogate", "x" * 100_000, 'quote " and \\'])
def test_case_20_odd_error_texts_are_recorded_alike_on_both_databases(kept: Kept, text: str) -> None:
    one = call(10)
    who, _ = begun(kept, one)

    kept.record.fail(one.run, one.key, who.token, error=text)

    assert kept.effect(one).state == "in_doubt"
    assert kept.record.verify() == []


@pytest.mark.parametrize("result", ['{"log":"a\\u0000b"}', '"\\ud800"', '"é😀"', '""', "x" * 1_000_000])
def test_case_20_odd_results_settle_as_done_alike_on_both_databases(kept: Kept, result: str) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result=result)

    again = kept.record.claim(one, claimant())

    assert isinstance(again, Recorded)
    assert again.result == result
    assert kept.record.verify() == []


def test_an_outcome_the_record_did_not_take_is_not_called_repeated(kept: Kept) -> None:
    """Whoever folds heads anew at this moment may take the row from under the outcome; the outbox must then try again."""
    one = call(10)
    who, _ = begun(kept, one)
    with kept.executor() as inner:
        from c4a.record import settle

        class Blind:
            """The write finds no row, as under a rebuild at the same moment."""

            dialect = inner.dialect
            read = staticmethod(inner.read)

            @staticmethod
            def trip(statements: list[object]) -> list[object]:
                from c4a.record.dialects import NOTHING

                return [NOTHING for _ in statements]

        with pytest.raises(LedgerError):
            settle.complete(Blind(), kept.record.organization, one.run, one.key, who.token, result="1")  # type: ignore[arg-type]
