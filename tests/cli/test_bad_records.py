"""A record that is missing, foreign, newer or out of reach: one clear line, nothing made, no traceback."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

READING: Final = ("status", "doubt", "verify", "rebuild")


def one_line(text: str) -> str:
    assert text.startswith("c4a: ")
    assert text.count("\n") == 1
    return text


def table_make(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


@pytest.mark.parametrize("command", READING)
def test_a_missing_record_is_not_made(c4a_run: Any, tmp_path: Path, command: str) -> None:
    answer = c4a_run(command, tmp_path / "ledger.sqlite")

    assert answer.code == 1
    assert "there is no record at" in one_line(answer.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", READING)
def test_a_file_that_is_no_record_is_refused_and_left_alone(c4a_run: Any, tmp_path: Path, command: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary")

    answer = c4a_run(command, path)

    assert answer.code == 1
    assert "is not a record" in one_line(answer.err)
    assert path.read_text() == "dear diary"
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_is_refused(c4a_run: Any, tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").touch()

    assert "is not a record" in one_line(c4a_run("status", tmp_path / "ledger.sqlite").err)


def test_a_folder_is_refused(c4a_run: Any, tmp_path: Path) -> None:
    answer = c4a_run("status", tmp_path)

    assert answer.code == 1
    assert "can't be read" in one_line(answer.err)


def test_another_programs_database_is_refused(c4a_run: Any, tmp_path: Path) -> None:
    path = table_make(tmp_path / "shop.sqlite", "CREATE TABLE orders (id INTEGER)")

    assert "another program's database" in one_line(c4a_run("status", path).err)


def test_a_servers_own_database_is_refused(c4a_run: Any, record: Path) -> None:
    table_make(record, "INSERT INTO c4a_meta (name, value) VALUES ('server', '1')")

    assert "belongs to a server" in one_line(c4a_run("status", record).err)


def test_a_newer_record_is_refused(c4a_run: Any, record: Path) -> None:
    table_make(record, "UPDATE c4a_meta SET value = '999' WHERE name = 'schema_version'")

    assert "upgrade C4A" in one_line(c4a_run("status", record).err)


def test_a_record_whose_secret_is_lost_is_refused(c4a_run: Any, record: Path) -> None:
    (record.parent / "secret").unlink()

    answer = c4a_run("status", record)

    assert "the file is missing" in one_line(answer.err)
    assert not (record.parent / "secret").exists()


def test_a_truncated_record_is_refused(c4a_run: Any, record: Path) -> None:
    record.write_bytes(record.read_bytes()[:3000])
    for extra in ("-wal", "-shm"):
        record.with_name(record.name + extra).unlink(missing_ok=True)

    answer = c4a_run("verify", record)

    assert answer.code == 1
    assert "Traceback" not in answer.err
    one_line(answer.err)


def test_an_address_of_no_known_kind_is_refused(c4a_run: Any) -> None:
    assert "expected a file path" in one_line(c4a_run("status", "mysql://root@localhost/c4a").err)


def test_a_database_without_a_secret_says_which_variable(c4a_run: Any) -> None:
    assert "C4A_SECRET" in one_line(c4a_run("status", "postgresql://root@localhost/c4a").err)


def test_a_server_without_a_key_says_which_variable(c4a_run: Any) -> None:
    assert "C4A_KEY" in one_line(c4a_run("status", "https://c4a.example").err)


def test_a_database_out_of_reach_is_one_line(c4a_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C4A_SECRET", "0123456789abcdef" * 4)

    answer = c4a_run("status", "postgresql://root:hidden@127.0.0.1:1/c4a")

    assert answer.code == 1
    assert "hidden" not in one_line(answer.err)


def test_with_json_an_error_is_a_document_too(c4a_run: Any, tmp_path: Path) -> None:
    answer = c4a_run("status", tmp_path / "nothing", "--json")

    assert answer.code == 1
    assert answer.out == ""
    assert json.loads(answer.err)["code"] == "ledger-error"


@pytest.mark.parametrize("arguments", [[], ["dance"], ["resolve"], ["resolve", "a", "b", "perhaps", "note"], ["doubt", "--fail"]])
def test_a_wrong_command_line_ends_with_2(c4a_run: Any, arguments: list[str]) -> None:
    answer = c4a_run(*arguments)

    assert answer.code == 2
    assert answer.err.startswith("usage: c4a")


def test_the_help_ends_with_0_and_lists_the_exit_codes(c4a_run: Any) -> None:
    answer = c4a_run("--help")

    assert answer.code == 0
    assert "exit codes: 0 all is well" in answer.out
