"""`c4a verify`, `c4a rebuild`, `c4a doctor` and `c4a migrate`."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.conftest import doubt_make

SECRET: Final = "0123456789abcdef" * 4


def head_falsify(record: Path) -> None:
    """Say in the head that the action in doubt did not happen."""
    with sqlite3.connect(record) as connection:
        connection.create_function("c4a_entry_digest", 11, lambda *_: "")
        connection.execute("UPDATE c4a_effect SET state = 'not_done' WHERE state = 'in_doubt'")
    connection.close()


def test_verify_finds_nothing_in_a_sound_record(c4a_run: Any, record: Path) -> None:
    answer = c4a_run("verify", record)

    assert (answer.code, answer.out) == (0, "The record is as it was written.\n")


def test_verify_ends_with_4_and_names_the_place(c4a_run: Any, record: Path) -> None:
    head_falsify(record)

    answer = c4a_run("verify", record, "--json")

    assert answer.code == 4
    assert [finding["problem"] for finding in answer.json["findings"]] == ["c4a_effect.state is 'not_done', the entries say 'in_doubt'"]
    assert "c4a_effect.state" in c4a_run("verify", record).out


def test_rebuild_puts_wrong_heads_right(c4a_run: Any, record: Path) -> None:
    head_falsify(record)

    rebuilt = c4a_run("rebuild", record, "--json")

    assert rebuilt.code == 0
    assert rebuilt.json["heads"] >= 2
    assert c4a_run("verify", record).code == 0
    assert c4a_run("status", record, "--json").json["in_doubt"] == 1


def test_doctor_is_content_with_a_sound_record(c4a_run: Any, record: Path) -> None:
    answer = c4a_run("doctor", record, "--json")

    assert answer.code == 0
    assert {finding["state"] for finding in answer.json["findings"]} <= {"ok", "warn"}
    assert "record        ok" in c4a_run("doctor", record).out


def test_doctor_ends_with_4_if_others_can_read_the_secret(c4a_run: Any, record: Path) -> None:
    (record.parent / "secret").chmod(0o644)

    answer = c4a_run("doctor", record)

    assert answer.code == 4
    assert f"chmod 600 {record.parent / 'secret'}" in answer.out


def test_doctor_ends_with_4_if_the_record_does_not_open(c4a_run: Any, tmp_path: Path) -> None:
    answer = c4a_run("doctor", tmp_path / "nothing.sqlite")

    assert answer.code == 4
    assert "there is no record at" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_doctor_without_a_record_looks_at_the_machine_and_makes_nothing(
    c4a_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    answer = c4a_run("doctor")

    assert answer.code == 0
    assert "none at .c4a/ledger.sqlite" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_migrate_makes_a_record_once(c4a_run: Any, postgres_url: str) -> None:
    first, again = c4a_run("migrate", postgres_url, "--json"), c4a_run("migrate", postgres_url)

    assert first.code == 0
    assert first.json["steps"] >= 1
    assert again.code == 0
    assert again.out.endswith("was up to date.\n")


def test_a_shared_database_is_served_like_a_file(c4a_run: Any, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    c4a_run("migrate", postgres_url)
    doubt_make(postgres_url, secret=SECRET)
    monkeypatch.setenv("C4A_SECRET", SECRET)

    key = c4a_run("doubt", postgres_url, "--json").json["in_doubt"][0]["key"]
    resolved = c4a_run("resolve", postgres_url, key[:8], "done", "looked it up")

    assert resolved.code == 0
    assert c4a_run("status", postgres_url, "--json").json["in_doubt"] == 0
    assert c4a_run("verify", postgres_url).code == 0
    assert c4a_run("rebuild", postgres_url).code == 0
    assert c4a_run("doctor", postgres_url).code == 0


def test_a_database_without_a_record_says_what_to_run(c4a_run: Any, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C4A_SECRET", SECRET)

    answer = c4a_run("status", postgres_url)

    assert answer.code == 1
    assert f"c4a migrate {postgres_url}" in answer.err


def test_migrate_refuses_a_file(c4a_run: Any, tmp_path: Path) -> None:
    answer = c4a_run("migrate", tmp_path / "ledger.sqlite")

    assert answer.code == 1
    assert "expected a postgresql:// address" in answer.err
