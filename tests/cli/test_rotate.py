"""`c4a rotate`: another secret, no approval lost, no action run again; and one that is compromised buys nothing more."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any, Final

import pytest

import c4a
from c4a import secrets_beside

NEW: Final = "the new secret of a shared record; 40 by"
OLD: Final = "the old secret of a shared record; 40 by"
ran: list[str] = []


@c4a.effect(approval=True, name="pay")
def pay(to: str) -> str:
    """Needs a yes."""
    ran.append(to)
    return f"paid {to}"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def asked(record: Path) -> str:
    """In the record: bob is paid, alice's payment is approved, carol's is asked about. The text of carol's ticket."""
    c4a.init(record)
    with c4a.run("r"):
        c4a.approve(pay, to="bob")
        pay("bob")
        c4a.approve(pay, to="alice")
        text = c4a.pause(pay, to="carol")
    c4a.current_record().close()
    ran.clear()
    return text


def test_after_a_rotation_everything_signed_before_still_counts(c4a_run: Any, record: Path, asked: str) -> None:
    before = (record.parent / "secret").read_text()

    assert c4a_run("rotate", record).code == 0

    former = record.parent / "secret-former"
    assert (record.parent / "secret").read_text() != before
    assert former.read_text() == before
    assert stat.S_IMODE(former.stat().st_mode) == stat.S_IMODE((record.parent / "secret").stat().st_mode) == 0o600
    c4a.init(record)
    with c4a.run("r"):
        assert pay("bob") == "paid bob"
        assert pay("alice") == "paid alice"
        c4a.decide(asked, "approve", by="ann")
        assert pay("carol") == "paid carol"
    c4a.current_record().close()
    assert ran == ["alice", "carol"]
    assert c4a_run("verify", record).code == 0


def test_a_compromised_secret_buys_nothing_more_and_no_done_action_runs_again(c4a_run: Any, record: Path, asked: str) -> None:
    answer = c4a_run("rotate", record, "--compromised", "--by", "ann", "--json")

    assert answer.json == {"compromised": True, "approvals_withdrawn": 1, "tickets_cancelled": 1}
    assert not (record.parent / "secret-former").exists()
    c4a.init(record)
    with c4a.run("r"):
        assert pay("bob") == "paid bob"
        with pytest.raises(c4a.ApprovalRequired):
            pay("alice")
        with pytest.raises(c4a.TicketRefused):
            c4a.decide(asked, "approve", by="ann")
    kinds = [entry.kind for entry in c4a.current_record().entries(limit=1000)]
    c4a.current_record().close()
    assert kinds.count("gate.withdrawn") == kinds.count("ticket.cancelled") == 1
    assert ran == []
    assert c4a_run("verify", record).code == 0


def test_a_rotation_killed_half_way_loses_nothing(c4a_run: Any, record: Path, asked: str) -> None:
    secrets_beside.secret_replace(record.parent / "secret", record.parent / "secret-former")

    c4a.init(record)
    with c4a.run("r"):
        assert pay("alice") == "paid alice"
    c4a.current_record().close()
    assert c4a_run("rotate", record).code == 0
    assert len((record.parent / "secret-former").read_text().split()) == 2
    c4a.init(record)
    c4a.decide(asked, "approve", by="ann")
    c4a.current_record().close()


def test_a_lost_secret_stops_the_agent_and_runs_nothing_again(record: Path, asked: str) -> None:
    (record.parent / "secret").unlink()

    for options in ({}, {"secret": NEW}):
        with pytest.raises(c4a.LedgerError, match="secret"):
            c4a.init(record, **options)  # type: ignore[arg-type]
    assert ran == []


def test_a_database_takes_the_secret_that_the_environment_gives(
    c4a_run: Any, record_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    c4a_run("migrate", record_postgres_url)
    c4a.init(record_postgres_url, secret=OLD)
    with c4a.run("r"):
        c4a.approve(pay, to="alice")
    c4a.current_record().close()
    monkeypatch.setenv("C4A_SECRET", NEW)
    assert c4a_run("rotate", record_postgres_url).code == 1
    monkeypatch.setenv("C4A_OLD_SECRETS", OLD)

    assert c4a_run("rotate", record_postgres_url).code == 0

    again = c4a_run("rotate", record_postgres_url)
    assert (again.code, "present secret" in again.err) == (1, True)
    with pytest.raises(c4a.LedgerError, match="another secret"):
        c4a.init(record_postgres_url, secret=OLD, old_secrets=[])
    c4a.init(record_postgres_url)
    with c4a.run("r"):
        assert pay("alice") == "paid alice"
    c4a.current_record().close()


def test_a_folder_without_a_record_is_left_as_it_is(c4a_run: Any, tmp_path: Path) -> None:
    assert c4a_run("rotate", tmp_path / "ledger.sqlite").code == 1
    assert list(tmp_path.iterdir()) == []
