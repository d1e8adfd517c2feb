"""What a database editor, a copy or another record can make of a ticket: nothing that can be answered."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from c4a.errors import ApprovalDenied, ApprovalRequired, C4AError, RecordDamaged, TicketRefused
from c4a.record.sqlite import FileRecord
from tests.record.cast import AGENT, PERSON, SECRET, Kept, begun, call, claimant
from tests.record.test_tickets import ask, kinds, refused

ID, MAC = "tkt_" + "0" * 24, "0" * 64

# What the row may be changed to, and what the ticket would then ask about.
EDITS = {
    "tool": "'refund'",
    "call_digest": f"'{call(9999).call_digest}'",
    "explicit_key": "'order-9'",
    "run": "'run-2'",
    "expires_at": "expires_at + 1",
    "mac": f"'{MAC}'",
    "key_id": "'0000000000000000'",
}


def row(kept: Kept, column: str) -> Any:
    """One column of the only ticket."""
    return kept.sql(f"SELECT {column} FROM c4a_ticket")[0][0]


@pytest.mark.parametrize(
    "text", ["", "x", "c4a1", f"c4a2.{ID}.{MAC}", f"c4a1.{ID}", f"c4a1.{ID}.{MAC}.", f"c4a1.{ID}\0.{MAC}", "c4a1.\ud800.x", 7]
)
def test_what_is_no_ticket_is_refused(kept: Kept, text: Any) -> None:
    assert refused(kept, text).why == "malformed"


def test_a_made_up_ticket_is_unknown(kept: Kept) -> None:
    ask(kept)

    assert refused(kept, f"c4a1.{ID}.{MAC}").why == "unknown"


def test_a_ticket_whose_text_was_edited_is_refused(kept: Kept) -> None:
    asked = ask(kept)
    last = "0" if asked.text[-1] != "0" else "1"

    assert refused(kept, asked.text[:-1] + last).why == "changed"
    with pytest.raises(TicketRefused):
        kept.record.ticket(asked.text[:-1] + last)
    with pytest.raises(TicketRefused):
        kept.record.cancel(asked.text[:-1] + last, by=AGENT)
    assert kinds(kept, asked.id) == ["ticket.opened"]


@pytest.mark.parametrize("column", EDITS)
@pytest.mark.parametrize("seen_before", [True, False], ids=["by the process that asked", "by another process"])
def test_a_ticket_whose_row_was_edited_buys_nothing(kept: Kept, column: str, seen_before: bool) -> None:
    asked = ask(kept)
    kept.sql(f"UPDATE c4a_ticket SET {column} = {EDITS[column]}")
    if not seen_before:
        _forget()

    with pytest.raises(C4AError):
        kept.record.decide(asked.text, "approve", by=PERSON)
    assert kept.count("c4a_approval") == 0
    assert kept.record.verify() != []


def test_a_row_copied_into_another_run_can_not_be_answered(kept: Kept) -> None:
    asked = ask(kept)
    names = [name for (name,) in kept.sql(_NAMES[kept.kind])]
    copied = ", ".join({"id": "id + 1000", "run": "'run-2'", "key": f"'{ID}'"}.get(name, name) for name in names)
    kept.sql(f"INSERT INTO c4a_ticket ({', '.join(names)}) SELECT {copied} FROM c4a_ticket")

    for text in (f"c4a1.{ID}.{row(kept, 'mac')}", f"c4a1.{ID}.{MAC}"):
        assert refused(kept, text).why == "changed"
    assert [one.id for one in kept.record.tickets()] == [asked.id]


_NAMES = {
    "file": "SELECT name FROM pragma_table_info('c4a_ticket')",
    "database": "SELECT column_name FROM information_schema.columns WHERE table_name = 'c4a_ticket' ORDER BY ordinal_position",
}


def test_case_28_a_ticket_set_back_to_open_by_hand_can_not_be_answered_again(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    kept.record.decide(asked.text, "deny", by=PERSON)
    kept.sql("UPDATE c4a_ticket SET state = 'open', decided_by = NULL, decided_at = NULL, reason = NULL")

    with pytest.raises(RecordDamaged):
        kept.record.decide(asked.text, "approve", by="person:bob")
    with pytest.raises(ApprovalDenied):
        kept.record.claim(one, claimant())
    assert kept.record.verify() != []


def test_a_ticket_set_back_with_its_whole_head_can_not_be_answered_again(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    columns = "state, seq, last_at, prev_digest, last_digest, last_payload_digest, decided_by, decided_at, reason"
    before = kept.sql(f"SELECT {columns} FROM c4a_ticket")[0]
    kept.record.decide(asked.text, "deny", by=PERSON)
    assigned = ", ".join(f"{name} = :{name}" for name in columns.split(", "))
    kept.sql(f"UPDATE c4a_ticket SET {assigned}", **dict(zip(columns.split(", "), before, strict=True)))

    with pytest.raises(RecordDamaged):
        kept.record.decide(asked.text, "approve", by="person:bob")
    with pytest.raises(ApprovalDenied):
        kept.record.claim(one, claimant())
    assert kinds(kept, asked.id) == ["ticket.opened", "ticket.denied"]


def test_a_yes_written_into_the_ticket_by_hand_is_none(kept: Kept) -> None:
    one = call(gated=True)
    ask(kept, one)
    kept.sql("UPDATE c4a_ticket SET state = 'approved', decided_by = 'person:ann', approval = 'yes_1'")

    with pytest.raises(ApprovalRequired):
        kept.record.claim(one, claimant())


def test_case_29_a_spent_yes_set_back_by_hand_is_not_spent_again(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    kept.record.decide(asked.text, "approve", by=PERSON)
    begun(kept, one)
    kept.sql("UPDATE c4a_approval SET state = 'unspent', spent_by = NULL")

    with pytest.raises(ApprovalRequired):
        kept.record.claim(call(gated=True, key="another"), claimant())
    kept.record.decide(asked.text, "approve", by=PERSON)  # the same receipt, no second yes
    assert kept.count("c4a_approval") == 1


def test_case_11_a_ticket_of_another_organization_is_unknown(kept: Kept, tmp_path: Path) -> None:
    other = FileRecord(tmp_path / "other" / "ledger.sqlite", secret=SECRET)
    theirs = other.pause(call(gated=True), actor=AGENT)

    for ask_about in (lambda: kept.record.ticket(theirs.text), lambda: kept.record.withdraw(theirs.text, run="run-1", by=PERSON)):
        with pytest.raises(TicketRefused) as caught:
            ask_about()
        assert caught.value.why == "unknown"
    assert refused(kept, theirs.text).why == "unknown"
    assert other.ticket(theirs.text).state == "open"
    other.close()


def test_a_spent_yes_set_back_by_hand_can_not_be_withdrawn(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    kept.record.decide(asked.text, "approve", by=PERSON)
    begun(kept, one)
    kept.sql("UPDATE c4a_approval SET state = 'unspent', spent_by = NULL")

    with pytest.raises(TicketRefused) as caught:
        kept.record.withdraw(asked.text, run="", by=PERSON)
    assert caught.value.why == "spent"
    assert kinds(kept, one.call_digest) == ["gate.approved"]


def test_the_schema_refuses_a_second_open_ticket_and_a_second_of_one_number(kept: Kept) -> None:
    ask(kept)
    names = [name for (name,) in kept.sql(_NAMES[kept.kind])]
    for changed in ({"number": "2"}, {"state": "'denied'"}):
        copied = ", ".join({"id": "id + 1000", "key": f"'{ID}'", **changed}.get(name, name) for name in names)
        with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
            kept.sql(f"INSERT INTO c4a_ticket ({', '.join(names)}) SELECT {copied} FROM c4a_ticket")


@pytest.mark.parametrize("mac", ["é", "", "0"])
def test_a_signature_that_is_none_is_refused_and_not_stumbled_over(kept: Kept, mac: str) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    kept.record.decide(asked.text, "approve", by=PERSON)
    kept.sql("UPDATE c4a_approval SET mac = :mac", mac=mac)
    kept.sql("UPDATE c4a_ticket SET mac = :mac", mac=mac)

    with pytest.raises(ApprovalRequired):
        kept.record.claim(one, claimant())
    with pytest.raises(TicketRefused):
        kept.record.ticket(asked.text)
    assert ask(kept, one).number == 2


def test_arguments_that_are_not_those_asked_about_are_not_shown(kept_file: Kept) -> None:
    """Whoever takes the triggers off can edit an entry; what people see is compared with what they would say yes to."""
    ask(kept_file)
    kept_file.sql("DROP TRIGGER c4a_entry_no_update")
    kept_file.sql("UPDATE c4a_entry SET payload = replace(payload, 'alice', 'mallo') WHERE kind = 'ticket.opened'")

    with pytest.raises(RecordDamaged):
        kept_file.record.tickets()


def test_a_ticket_signed_with_a_secret_that_is_gone_gives_way_to_a_new_one(kept: Kept) -> None:
    one = call(gated=True)
    asked = ask(kept, one)
    rotated = kept.open(secret=b"another secret of 32 bytes, new!", old_secrets=[SECRET])
    rotated.adopt_secret()
    forgetful = kept.open(secret=b"another secret of 32 bytes, new!")

    assert rotated.pause(one, actor=AGENT).id == asked.id
    anew = forgetful.pause(one, actor=AGENT)
    assert anew.number == 2
    assert kinds(kept, asked.id) == ["ticket.opened", "ticket.superseded"]
    forgetful.decide(anew.text, "approve", by=PERSON)
    assert forgetful.claim(one, claimant())
    assert forgetful.verify() == []


def test_a_yes_by_a_rotated_secret_counts_while_that_is_at_hand(kept: Kept) -> None:
    one, two = call(1, gated=True), call(2, gated=True)
    for each in (one, two):
        kept.record.decide(ask(kept, each).text, "approve", by=PERSON)
    rotated = kept.open(secret=b"another secret of 32 bytes, new!", old_secrets=[SECRET])
    rotated.adopt_secret()
    forgetful = kept.open(secret=b"another secret of 32 bytes, new!")

    with pytest.raises(ApprovalRequired):
        forgetful.claim(one, claimant())
    assert rotated.claim(one, claimant())
    assert forgetful.pause(two, actor=AGENT).number == 2


def test_a_compromised_secrets_yeses_and_questions_are_taken_back_by_entries(kept: Kept) -> None:
    one, two, done = (call(number, gated=True) for number in range(3))
    for each in (one, done):
        kept.record.decide(ask(kept, each).text, "approve", by=PERSON)
    asked = ask(kept, two)
    who, _ = begun(kept, done)
    kept.record.complete(done.run, done.key, who.token, result="1")

    assert kept.record.void_all(by=PERSON, reason="leaked") == (1, 1)

    assert kinds(kept, one.call_digest) == ["gate.approved", "gate.withdrawn"]
    assert kinds(kept, asked.id) == ["ticket.opened", "ticket.cancelled"]
    with pytest.raises(ApprovalRequired):
        kept.record.claim(one, claimant())
    assert getattr(kept.record.claim(done, claimant()), "result", None) == "1"
    assert kept.record.verify() == []
    assert kept.record.void_all(by=PERSON, reason="leaked") == (0, 0)


def _forget() -> None:
    """As a process that never saw the ticket."""
    from c4a.record import ticket_row

    ticket_row._seen.clear()
