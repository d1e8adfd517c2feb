"""Somebody edits heads with a database client: it buys nothing, and the record says so."""

from __future__ import annotations

from typing import Any

import pytest

from c4a.errors import ApprovalRequired, C4AError, RecordDamaged
from c4a.record.types import Call, Grant
from tests.record.cast import PERSON, Kept, approve, begun, call, claimant, deny, in_doubt


def done(kept: Kept, one: Call) -> None:
    """The action ran and is recorded."""
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")


def refused(kept: Kept, one: Call) -> C4AError:
    """The claim buys no attempt: no new intent, whatever is raised."""
    intents = "SELECT COUNT(*) FROM c4a_entry WHERE kind = 'effect.running'"
    before = kept.sql(intents)
    with pytest.raises(C4AError) as caught:
        kept.record.claim(one, claimant())
    assert kept.sql(intents) == before
    return caught.value


def test_a_head_set_to_not_done_starts_nothing(kept: Kept) -> None:
    done(kept, call(10))
    kept.sql("UPDATE c4a_effect SET state = 'not_done'")

    assert isinstance(refused(kept, call(10)), RecordDamaged)
    assert kept.record.verify() != []


def test_a_head_rolled_back_to_an_older_entry_starts_nothing(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.release(one.run, one.key, who.token)
    before = kept.head(one)
    done(kept, one)
    names = ("state", "attempt", "seq", "last_at", "prev_digest", "last_digest", "last_payload_digest", "settled_by", "token_hash")
    kept.sql("UPDATE c4a_effect SET " + ", ".join(f"{name} = :{name}" for name in names), **{name: before[name] for name in names})

    assert isinstance(refused(kept, one), RecordDamaged)


def test_a_deleted_head_starts_nothing(kept: Kept) -> None:
    done(kept, call(10))
    kept.sql("DELETE FROM c4a_effect")

    assert isinstance(refused(kept, call(10)), RecordDamaged)
    assert [finding.problem for finding in kept.record.verify()] == ["c4a_effect has no head for this chain"]


def test_a_deleted_head_and_run_row_start_nothing_under_a_new_yes_either(kept: Kept) -> None:
    one = call(10, gated=True)
    approve(kept.record, one)
    done(kept, one)
    kept.sql("DELETE FROM c4a_effect")
    kept.sql("DELETE FROM c4a_run")
    approve(kept.record, one)

    assert isinstance(refused(kept, one), RecordDamaged)
    assert kept.sql("SELECT COUNT(*) FROM c4a_approval WHERE state = 'unspent'") == [(1,)]


@pytest.mark.parametrize("also", ["", ", result_seq = 1", ", result_seq = NULL", ", result_seq = 7, done_at = 1"])
def test_a_head_set_to_done_does_not_pretend_a_result(kept: Kept, also: str) -> None:
    in_doubt(kept, call(10))
    kept.sql(f"UPDATE c4a_effect SET state = 'done'{also}")

    assert isinstance(refused(kept, call(10)), RecordDamaged)


def test_a_head_set_back_to_running_and_lapsed_does_not_become_an_attempt(kept: Kept) -> None:
    done(kept, call(10))
    kept.sql("UPDATE c4a_effect SET state = 'running', lease_until = 1")

    assert kept.record.sweep() == 0
    assert isinstance(refused(kept, call(10)), RecordDamaged)
    with pytest.raises(RecordDamaged):
        kept.record.reclaim(call(10), claimant(), attempt=1, window_seconds=3600)


def test_a_head_set_back_to_running_grants_its_token_no_second_attempt(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")
    kept.sql("UPDATE c4a_effect SET state = 'running'")

    with pytest.raises(RecordDamaged):
        kept.record.claim(one, who)


def test_a_head_made_by_hand_grants_nothing_without_a_yes(kept: Kept) -> None:
    gated = call(99, gated=True)
    who, _ = begun(kept, call(10))
    kept.sql("UPDATE c4a_effect SET key = :key, call_digest = :digest, args_digest = :digest", key=gated.key, digest=gated.call_digest)

    with pytest.raises(RecordDamaged):
        kept.record.claim(gated, who)


def test_an_approval_row_set_back_to_unspent_buys_nothing(kept: Kept) -> None:
    one = call(10, gated=True)
    approve(kept.record, one)
    done(kept, one)
    kept.sql("UPDATE c4a_approval SET state = 'unspent', spent_by = NULL")

    assert isinstance(refused(kept, call(10, gated=True, key="again")), ApprovalRequired)


def test_an_approval_row_set_back_after_a_no_buys_nothing(kept: Kept) -> None:
    one = call(10, gated=True)
    approve(kept.record, one)
    deny(kept.record, one)
    kept.sql("UPDATE c4a_approval SET state = 'unspent'")
    kept.sql("UPDATE c4a_gate SET answer = 'approved', reason = NULL")

    assert isinstance(refused(kept, one), ApprovalRequired)


def test_a_gate_whose_answer_is_flipped_buys_nothing(kept: Kept) -> None:
    one = call(10, gated=True)
    deny(kept.record, one)
    kept.sql("UPDATE c4a_gate SET answer = 'approved'")

    assert isinstance(refused(kept, one), ApprovalRequired)
    assert kept.record.verify() != []


def copied(kept: Kept, **changed: Any) -> None:
    """Another approval row with some columns changed."""
    columns = "organization, run, approval, key, tool, explicit_key, state, approved_by, approved_at, expires_at, mac, key_id, gate_seq"
    chosen = ", ".join(f":{name}" if name in changed else name for name in columns.split(", "))
    kept.sql(f"INSERT INTO c4a_approval ({columns}) SELECT {chosen} FROM c4a_approval LIMIT 1", **changed)


def test_c_b1_a_copied_yes_does_not_buy_a_second_action(kept: Kept) -> None:
    one = call(10, gated=True)
    approve(kept.record, one)
    copied(kept, approval="yes_copy")
    done(kept, call(10, gated=True, key="first"))

    assert isinstance(refused(kept, call(10, gated=True, key="second")), ApprovalRequired)


def test_c_b1_a_yes_copied_into_another_run_buys_nothing(kept: Kept) -> None:
    approve(kept.record, call(10, gated=True))
    copied(kept, run="run-2")

    assert isinstance(refused(kept, call(10, gated=True, run="run-2")), ApprovalRequired)


def forged_gate_entry(kept: Kept, one: Call, yes: str) -> None:
    """An entry that says the yes, as somebody with INSERT could add it: the signature is what they can't make."""
    columns = "organization, run, key, seq, kind, attempt, approval, payload, salt, payload_digest, actor, recorded_at, prev, digest"
    kept.sql(
        f"INSERT INTO c4a_entry ({columns}) SELECT organization, :run, :key, 1, kind, attempt, :yes, payload, salt, payload_digest, actor, "
        "recorded_at, '', 'x' FROM c4a_entry WHERE kind = 'gate.approved' LIMIT 1",
        run=one.run, key=one.call_digest, yes=yes,
    )  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [call(10, gated=True, run="run-2"), call(99, gated=True)],
    ids=["another run", "another amount"],
)
def test_c_b1_a_signature_moved_with_its_entry_buys_nothing(kept: Kept, other: Call) -> None:
    yes = approve(kept.record, call(10, gated=True))
    forged_gate_entry(kept, other, yes)
    if other.run == "run-2":
        copied(kept, run=other.run)
    else:
        copied(kept, approval=yes + "-2", key=other.call_digest)
        kept.sql("UPDATE c4a_approval SET approval = :new WHERE key <> :key", new=yes + "-gone", key=other.call_digest)
        kept.sql("UPDATE c4a_approval SET approval = :yes WHERE key = :key", yes=yes, key=other.call_digest)

    assert isinstance(refused(kept, other), ApprovalRequired)


def test_c_b1_a_signature_under_a_fresh_id_buys_nothing(kept: Kept) -> None:
    one = call(10, gated=True)
    approve(kept.record, one)
    done(kept, one)
    # The spent one's signature under a new id, with an entry of its own in the gate's chain.
    columns = "organization, run, key, seq, kind, attempt, approval, payload, salt, payload_digest, actor, recorded_at, prev, digest"
    kept.sql(
        f"INSERT INTO c4a_entry ({columns}) SELECT organization, run, key, 2, kind, attempt, 'yes_new', payload, salt, payload_digest, "
        "actor, "
        "recorded_at, digest, 'x' FROM c4a_entry WHERE kind = 'gate.approved'"
    )
    copied(kept, approval="yes_new", gate_seq=2, state="unspent")

    assert isinstance(refused(kept, call(10, gated=True, key="second")), ApprovalRequired)


@pytest.mark.parametrize(
    "change",
    ["expires_at = NULL", "explicit_key = NULL", "explicit_key = 'other'", "approved_by = 'person:boss'", "approved_at = approved_at + 1",
     "mac = 'ff'", "key_id = 'other'"],
)  # fmt: skip
def test_a_yes_with_any_bound_field_changed_buys_nothing(kept: Kept, change: str) -> None:
    one = call(10, gated=True, key="other" if "other" in change else "order-1")
    kept.record.approve(
        run=one.run, tool=one.tool, arguments=one.arguments, call_digest=one.call_digest, explicit_key="order-1", by=PERSON, expires_in=900
    )
    kept.sql(f"UPDATE c4a_approval SET {change}")

    assert isinstance(refused(kept, one), ApprovalRequired)


def test_a_yes_moved_forward_in_the_gates_chain_does_not_pass_a_no(kept: Kept) -> None:
    one = call(10, gated=True)
    approve(kept.record, one)
    deny(kept.record, one)
    kept.sql("UPDATE c4a_approval SET state = 'unspent', gate_seq = 3")

    assert isinstance(refused(kept, one), ApprovalRequired)


def test_a_head_that_names_somebody_elses_spent_yes_gets_no_retry(kept: Kept) -> None:
    first, second = call(10, gated=True, key="first"), call(10, gated=True, key="second")
    yes = approve(kept.record, first)
    done(kept, first)
    approve(kept.record, second, expires_in=60)
    who, _ = begun(kept, second)
    kept.record.release(second.run, second.key, who.token)
    kept.advance(120)
    kept.sql("UPDATE c4a_effect SET approval = :yes WHERE key = :key", yes=yes, key=second.key)

    assert isinstance(refused(kept, second), ApprovalRequired)


def test_a_thawed_head_is_found_by_verify(kept: Kept) -> None:
    begun(kept, call(10))
    kept.record.freeze(run=call(10).run, by=PERSON)
    kept.sql("UPDATE c4a_run SET frozen_at = NULL")

    assert [finding.problem.split(" is ")[0] for finding in kept.record.verify()] == ["c4a_run.frozen_at"]


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE c4a_effect SET attempt = 7",
        "UPDATE c4a_effect SET token_hash = 'x'",
        "UPDATE c4a_effect SET last_digest = 'x'",
        "UPDATE c4a_effect SET actor = 'agent:other'",
        "UPDATE c4a_effect SET epoch = 1",
        "UPDATE c4a_effect SET happened_twice = 1",
        "UPDATE c4a_gate SET answered_by = 'person:boss'",
        "UPDATE c4a_approval SET state = 'unspent'",
        "UPDATE c4a_approval SET approved_by = 'person:boss'",
        "UPDATE c4a_approval SET explicit_key = 'x'",
        "DELETE FROM c4a_approval",
        "DELETE FROM c4a_gate",
        "INSERT INTO c4a_subject (organization, run, key, seq, last_at, prev_digest, last_digest, last_payload_digest) "
        "SELECT organization, '', 'agent:x', 1, 1, '', '', '' FROM c4a_run",
    ],
)
def test_verify_names_every_edited_head_and_rebuild_mends_it(kept: Kept, edit: str) -> None:
    one = call(10, gated=True)
    approve(kept.record, one)
    done(kept, one)
    heads = kept.heads()
    kept.sql(edit)

    assert kept.record.verify() != []
    kept.record.rebuild()

    assert kept.record.verify() == []
    assert kept.heads() == heads


@pytest.mark.parametrize("wreck", ["DELETE FROM c4a_effect", "UPDATE c4a_effect SET seq = 0"])
def test_after_a_rebuild_the_record_goes_on(kept: Kept, wreck: str) -> None:
    running, ended = call(1), call(2)
    who, _ = begun(kept, running)
    done(kept, ended)
    kept.sql(wreck)
    with pytest.raises(RecordDamaged):
        kept.record.complete(running.run, running.key, who.token, result="1")
    kept.record.rebuild()

    assert kept.record.complete(running.run, running.key, who.token, result="1") == "done"
    assert not isinstance(kept.record.claim(ended, claimant()), Grant)
    assert kept.record.verify() == []
