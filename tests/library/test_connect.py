"""`c4a.init`: which record, and what makes it unsafe to use."""

from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import c4a
from c4a import connect, secrets_beside
from tests.library.conftest import ROOT, Library


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    for name in ("C4A_SECRET", "C4A_OLD_SECRETS", "C4A_DIGEST_KEY"):
        monkeypatch.delenv(name, raising=False)
    before = connect._current
    yield
    if connect._current is not None and connect._current is not before:
        connect._current.record.close()
    connect._current = before


@c4a.effect(approval=True, name="pay")
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def mode(path: str) -> int:
    """Permission bits."""
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_c_f2_init_makes_a_private_record_secret_and_digest_key(tmp_path: Path) -> None:
    c4a.init()
    assert (mode(".c4a"), mode(".c4a/ledger.sqlite"), mode(".c4a/secret"), mode(".c4a/digest-key")) == (0o700, 0o600, 0o600, 0o600)
    assert len(Path(".c4a/secret").read_text().strip()) == 64
    assert c4a.current_record().place.endswith("ledger.sqlite")


def test_a_call_before_init_says_to_call_init(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_current", None)
    with c4a.run("r"), pytest.raises(c4a.LedgerError, match=r"c4a\.init\(\)"):
        pay(1)
    with pytest.raises(c4a.LedgerError, match=r"c4a\.init\(\)"):
        c4a.current_record()


def test_init_again_replaces_the_record() -> None:
    c4a.init("a/ledger.sqlite")
    first = c4a.current_record()
    c4a.init("b/ledger.sqlite")
    assert c4a.current_record() is not first
    assert c4a.current_record().organization != first.organization


def test_a_yes_outlives_the_process_by_the_secret_beside_the_record() -> None:
    c4a.init()
    with c4a.run("r"):
        c4a.approve(pay, amount=1)
    c4a.init()
    with c4a.run("r"):
        assert pay(1) == "paid"


@pytest.mark.parametrize("name", ["secret", "digest-key"])
def test_a_missing_secret_beside_an_existing_record_is_refused(name: str) -> None:
    c4a.init()
    Path(".c4a", name).unlink()
    with pytest.raises(c4a.LedgerError, match=f"{name}.*missing"):
        c4a.init()
    assert not Path(".c4a", name).exists()


@pytest.mark.parametrize("name", ["secret", "digest-key"])
def test_another_secret_than_the_records_is_refused(name: str) -> None:
    c4a.init()
    c4a.current_record().close()
    Path(".c4a", name).write_text("f" * 64)
    with pytest.raises(c4a.LedgerError, match="another secret" if name == "secret" else "digest"):
        c4a.init()


@pytest.mark.parametrize("bad", ["", "short", "é" * 64])
def test_a_secret_file_that_is_none_is_refused(bad: str) -> None:
    c4a.init()
    Path(".c4a/secret").write_text(bad, encoding="utf-8")
    with pytest.raises(c4a.LedgerError, match="secret"):
        c4a.init()


def test_secrets_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C4A_SECRET", "a" * 40)
    monkeypatch.setenv("C4A_DIGEST_KEY", "d" * 40)
    c4a.init()
    assert not Path(".c4a/secret").exists()
    with c4a.run("r"):
        c4a.approve(pay, amount=1)
    c4a.current_record().close()
    monkeypatch.setenv("C4A_SECRET", "b" * 40)
    with pytest.raises(c4a.LedgerError, match="old_secrets"):
        c4a.init()
    monkeypatch.setenv("C4A_OLD_SECRETS", "c" * 40 + ", " + "a" * 40)
    c4a.init()
    with c4a.run("r"):
        assert pay(1) == "paid"


def test_the_text_of_a_secret_file_may_be_passed_as_it_is() -> None:
    c4a.init()
    with c4a.run("r"):
        c4a.approve(pay, amount=1)
    before = c4a.current_record()
    before.close()
    c4a.init(secret=Path(".c4a/secret").read_text())
    assert c4a.current_record() is not before
    with c4a.run("r"):
        assert pay(1) == "paid"  # so the yes that was signed with the file's secret is good


@pytest.mark.parametrize("wrong", [b"short", "", 7, "   "])
def test_a_secret_that_is_too_short_is_refused(wrong: Any) -> None:
    with pytest.raises(c4a.LedgerError, match="secret"):
        c4a.init(secret=wrong)


@pytest.mark.parametrize("wrong", ["a" * 40, [7], ["short"], 7])
def test_old_secrets_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(c4a.LedgerError, match="old_secrets"):
        c4a.init(old_secrets=wrong)


def test_a_database_needs_a_secret_that_every_machine_shares() -> None:
    with pytest.raises(c4a.LedgerError, match="secret="):
        c4a.init("postgresql://user:hunter2@127.0.0.1:1/x")


def test_a_database_that_does_not_answer_says_so_without_the_password() -> None:
    with pytest.raises(c4a.RecordUnreachable) as caught:
        c4a.init("postgresql://user:hunter2@127.0.0.1:1/x", secret="s" * 32)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("library", ["database"], indirect=True)
def test_a_database_keeps_the_fingerprint_of_its_digest_key(library: Library) -> None:
    library.init()
    library.init(digest_key="d" * 32)
    library.init(digest_key="d" * 32)
    for wrong in ({"digest_key": "e" * 32}, {}):
        with pytest.raises(c4a.LedgerError, match="digests secrets"):
            library.init(**wrong)


def test_a_server_needs_its_key_and_a_file_has_none() -> None:
    with pytest.raises(c4a.LedgerError, match="agent key"):
        c4a.init("https://c4a.example")
    with pytest.raises(c4a.LedgerError, match="key="):
        c4a.init(key="c4a_x")


def test_an_address_of_an_unknown_kind_is_refused_without_its_password() -> None:
    with pytest.raises(c4a.LedgerError, match="mysql") as caught:
        c4a.init("mysql://u:hunter2@h/db")
    assert "hunter2" not in str(caught.value)


def test_replay_arrives_later_and_says_so() -> None:
    with pytest.raises(c4a.LedgerError, match="later"):
        c4a.init(replay_from="old.sqlite")
    assert not Path(".c4a").exists()


def test_a_file_that_is_no_record_is_refused() -> None:
    Path("notes.txt").write_text("not a database, and long enough to be looked at as one" * 50)
    with pytest.raises(c4a.LedgerError):
        c4a.init("notes.txt", secret="s" * 32, digest_key="d" * 32)


def test_a_failed_init_leaves_the_former_record_in_use() -> None:
    c4a.init()
    record = c4a.current_record()
    with pytest.raises(c4a.LedgerError):
        c4a.init("mysql://x")
    assert c4a.current_record() is record


def test_a_folder_that_cannot_be_made_says_so() -> None:
    Path("file").write_text("x")
    with pytest.raises(c4a.LedgerError, match="folder"):
        c4a.init("file/sub/ledger.sqlite")


def test_many_processes_that_init_at_once_share_one_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: secrets_beside.secret_in_file(path, record_exists=False, what="the secret"), range(64)))
    assert len(found) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


def test_a_user_without_a_name_is_known_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert connect._local_actor().startswith("local:")


def test_import_c4a_loads_no_other_part_and_no_third_party_module() -> None:
    code = "import sys; before = set(sys.modules); import c4a; print(sorted(n for n in set(sys.modules) - before))"
    told = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "'c4a.record" not in told
    assert "'c4a.effects'" not in told
    third_party = ("psycopg", "httpx", "cryptography", "pydantic")
    code = f"import sys, c4a; c4a.init, c4a.effect, c4a.approve; print([n for n in {third_party} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_every_public_name_is_there_and_the_later_ones_are_not() -> None:
    for name in c4a.__all__:
        assert getattr(c4a, name) is not None
        assert name in dir(c4a)
    for later in ("undo", "recorded", "diff", "prove"):
        assert not hasattr(c4a, later)
    assert set(c4a.__all__) == {name for names in c4a._HOMES.values() for name in names}
