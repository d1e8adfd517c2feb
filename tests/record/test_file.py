"""The record in a file: who may read it, what is refused, and what a full or damaged disk does."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from c4a.errors import LedgerError, RecordDamaged
from c4a.record import schema, sqlite
from c4a.record.sqlite import FileRecord, filesystem_of
from c4a.record.types import Grant
from tests.record.cast import SECRET, Kept, begun, call, claimant, raw_sql

ROOT = Path(__file__).resolve().parents[2]


def mode(path: Path) -> int:
    """Permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def bytes_of(path: Path) -> tuple[bytes, int]:
    """Content and permissions."""
    return path.read_bytes(), mode(path)


def foreign(path: Path, *tables: str) -> None:
    """Another program's database, readable by its group."""
    connection = sqlite3.connect(path)
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (a, b)")
    connection.execute(f"INSERT INTO {tables[0]} VALUES (1, 2)")
    connection.commit()
    connection.close()
    path.chmod(0o644)


def test_c_f2_file_and_folder_are_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        record = FileRecord(tmp_path / "new" / "ledger.sqlite", secret=SECRET)
        record.claim(call(10), claimant())
    finally:
        os.umask(old)
    folder = tmp_path / "new"

    assert mode(folder) == 0o700
    assert {name.name: mode(name) for name in folder.iterdir()} == dict.fromkeys(
        ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "ledger.sqlite-queue"), 0o600
    )
    record.close()


def test_c_f2_a_record_that_others_could_read_is_made_private(kept_file: Kept) -> None:
    paths = [Path(kept_file.address), Path(kept_file.address + "-wal"), Path(kept_file.address + "-shm")]
    begun(kept_file, call(10))
    for path in paths:
        path.chmod(0o644)
    kept_file.open()

    assert [mode(path) for path in paths] == [0o600] * 3


@pytest.mark.parametrize("content", [b"hello, this is no database at all\n" * 100, b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 5000])
def test_what_is_not_a_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(RecordDamaged, match=str(path)):
        FileRecord(path, secret=SECRET)
    assert bytes_of(path) == (content, 0o644)


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    foreign(path, "orders", "customers")
    before = bytes_of(path)
    with pytest.raises(LedgerError, match=r"another program's database \(tables customers, orders\)"):
        FileRecord(path, secret=SECRET)
    assert bytes_of(path) == before


def test_a_call4agents_record_is_refused_naming_the_import(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    foreign(path, "entries", "meta", "approvals")
    before = bytes_of(path)
    with pytest.raises(LedgerError, match="c4a import"):
        FileRecord(path, secret=SECRET)
    assert bytes_of(path) == before


def test_a_newer_record_is_refused_and_left_as_it_is(kept_file: Kept) -> None:
    kept_file.sql("UPDATE c4a_meta SET value = :version WHERE name = 'schema_version'", version=str(schema.SCHEMA_VERSION + 1))
    with pytest.raises(LedgerError, match="upgrade C4A"):
        kept_file.open()
    assert kept_file.sql("SELECT value FROM c4a_meta WHERE name = 'schema_version'") == [(str(schema.SCHEMA_VERSION + 1),)]


def test_another_secret_is_refused_until_the_former_is_named(kept_file: Kept) -> None:
    other = b"another secret of enough bytes"
    with pytest.raises(LedgerError, match="another secret"):
        kept_file.open(secret=other)
    kept_file.open(secret=other, old_secrets=[SECRET])


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="at least 16 bytes"):
        FileRecord(tmp_path / "ledger.sqlite", secret=b"short")


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /mnt/team rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
31 30 8:2 / /mnt/team/local rw - xfs /dev/sdb1 rw
32 22 0:27 / /mnt/with\\040space rw - fuse.sshfs me@host: rw
33 22 0:28 / /mnt/teamwork rw - btrfs /dev/sdc rw
34 22 0:29 / /mnt/win rw - cifs //server/share rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/c4a/ledger.sqlite", "ext4"),
        ("/mnt/team/a/ledger.sqlite", "nfs4"),
        ("/mnt/team", "nfs4"),
        ("/mnt/team/local/ledger.sqlite", "xfs"),
        ("/mnt/with space/ledger.sqlite", "fuse.sshfs"),
        ("/mnt/teamwork/ledger.sqlite", "btrfs"),
        ("/mnt/win/ledger.sqlite", "cifs"),
    ],
)
def test_the_file_system_under_a_path_is_told_from_the_mounts(path: str, kind: str) -> None:
    assert filesystem_of(Path(path), MOUNTS) == kind


def test_where_no_mounts_can_be_read_nothing_is_claimed() -> None:
    assert filesystem_of(Path("/anywhere"), "") == ""


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_drive_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(sqlite, "filesystem_of", lambda path: kind)
    with pytest.raises(LedgerError, match=f"network drive .{kind}"):
        FileRecord(tmp_path / "sub" / "ledger.sqlite", secret=SECRET)
    assert list(tmp_path.iterdir()) == []

    FileRecord(tmp_path / "sub" / "ledger.sqlite", secret=SECRET, allow_network_drive=True).close()


def limited(kept: Kept, pages: int | None) -> None:
    """The file may not grow by more than so many pages: what a full disk looks like to SQLite. One thread uses one connection."""
    with kept.executor() as executor:
        count = executor.connection.execute("PRAGMA page_count").fetchone()[0]
        executor.connection.execute(f"PRAGMA max_page_count = {count + pages if pages is not None else 1073741823}")


@pytest.mark.parametrize("verb", ["claim", "complete", "approve", "fail"])
def test_a_full_disk_says_so_and_leaves_nothing_half_written(kept_file: Kept, verb: str) -> None:
    from tests.record.cast import approve

    record, big = kept_file.record, "x" * 400_000
    who, _ = begun(kept_file, call(10))
    other = call(11, arguments=f'{{"text":"{big}"}}')
    deeds: dict[str, Callable[[], object]] = {
        "claim": lambda: record.claim(other, claimant()),
        "complete": lambda: record.complete(call(10).run, call(10).key, who.token, result=f'"{big}"'),
        "approve": lambda: approve(record, other),
        "fail": lambda: record.fail(call(10).run, call(10).key, who.token, error=big),
    }
    before = kept_file.sql("SELECT * FROM c4a_entry")
    limited(kept_file, 5)

    with pytest.raises(LedgerError, match="full"):
        deeds[verb]()

    assert kept_file.sql("SELECT * FROM c4a_entry") == before
    assert kept_file.record.verify() == []
    limited(kept_file, None)
    deeds[verb]()
    assert kept_file.count() == 2
    assert kept_file.record.verify() == []


def test_a_damaged_file_gives_our_error_and_never_a_drivers(kept_file: Kept) -> None:
    for number in range(60):
        begun(kept_file, call(number))
    kept_file.close()
    path = Path(kept_file.address)
    data = bytearray(path.read_bytes())
    for place in range(4096, len(data)):
        data[place] = 0xA5
    path.write_bytes(data)

    with pytest.raises(RecordDamaged):
        kept_file.open().claim(call(5), claimant())


def test_a_truncated_file_gives_our_error(kept_file: Kept) -> None:
    for number in range(60):
        begun(kept_file, call(number))
    kept_file.close()
    path = Path(kept_file.address)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    with pytest.raises(LedgerError):
        kept_file.open().claim(call(5), claimant())


@pytest.mark.parametrize("place", ["folder", "under a file"])
def test_a_path_where_no_file_can_be_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    path = tmp_path if place == "folder" else tmp_path / "file" / "ledger.sqlite"
    with pytest.raises(LedgerError, match="can't be opened"):
        FileRecord(path, secret=SECRET)


def test_a_lock_held_by_another_program_ends_in_a_clear_error(kept_file: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    record = kept_file.open()
    blocker = sqlite3.connect(kept_file.address, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(LedgerError, match="another program has held the record"):
            record.claim(call(10), claimant())
    finally:
        blocker.close()
    assert isinstance(record.claim(call(10), claimant()), Grant)


def script(address: str, text: str) -> subprocess.Popen[str]:
    """A real process with the record open as `record`."""
    prelude = "import os, sys, time\nfrom tests.record.cast import *\nrecord = record_open(sys.argv[1])\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + text, address],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_holder_of_the_write_lock_that_is_killed_delays_nobody(kept_file: Kept) -> None:
    """The queue and the lock are the kernel's: they go with the process."""
    child = script(
        kept_file.address,
        "executor = record._pool.take(); executor.take_turn()\n"
        "executor.connection.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(60)",
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    child.kill()
    child.communicate()
    began = time.monotonic()

    assert isinstance(kept_file.record.claim(call(10), claimant()), Grant)
    assert time.monotonic() - began < 2


def test_four_processes_make_one_record_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    address = str(tmp_path / ".c4a" / "ledger.sqlite")
    children = [script(address, "print(record.organization)") for _ in range(4)]
    said = {child.communicate(timeout=30)[0].strip() for child in children}

    assert [child.returncode for child in children] == [0] * 4
    assert len(said) == 1
    assert raw_sql(address, "SELECT COUNT(*) FROM c4a_meta WHERE name = 'organization'") == [(1,)]


def test_a_commit_is_on_the_disk(kept_file: Kept) -> None:
    with kept_file.executor() as executor:
        assert executor.connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert executor.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_copy_of_the_file_is_a_whole_record(kept_file: Kept, tmp_path: Path) -> None:
    begun(kept_file, call(10))
    copy = tmp_path / "copy.sqlite"
    target = sqlite3.connect(copy)
    with kept_file.executor() as executor:
        executor.connection.backup(target)
    target.close()
    record = FileRecord(copy, secret=SECRET)

    assert record.organization == kept_file.record.organization
    assert record.verify() == []
    record.close()


def test_a_servers_own_file_is_refused_and_gets_no_organization(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    FileRecord(path, secret=SECRET).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM c4a_meta WHERE name = 'organization'")
        connection.execute("INSERT INTO c4a_meta (name, value) VALUES ('server', '1')")

    with pytest.raises(LedgerError, match="belongs to a server"):
        FileRecord(path, secret=SECRET)

    with closing(sqlite3.connect(path)) as connection:
        assert not connection.execute("SELECT 1 FROM c4a_meta WHERE name = 'organization'").fetchall()
