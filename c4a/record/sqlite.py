"""The record in a local file: one SQLite database, shared by any number of processes and threads of one machine."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from c4a.errors import LedgerError, RecordDamaged
from c4a.record import schema
from c4a.record.dialects import NOTHING, SQLITE, Dialect, Result, Statement
from c4a.record.entries import entry_digest
from c4a.record.keyring import Keyring, key_id
from c4a.record.pool import Borrowed, Pool
from c4a.record.tickets import IS_OPEN
from c4a.record.verbs import VerbRecord

try:
    import fcntl
except ImportError:  # Windows: BEGIN IMMEDIATE with its busy timeout is the guard everywhere, the queue only makes it fair
    fcntl = None  # type: ignore[assignment]

POOL_SIZE: Final = 8
BUSY_SECONDS: Final = 30.0
PAGE_BYTES: Final = 2048
"""Small pages: a commit writes each page it touched whole."""
NETWORK_FILESYSTEMS: Final = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "9p",
        "ceph",
        "glusterfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "ncpfs",
        "lustre",
    }
)


class SqliteExecutor:
    """Runs statements on one sqlite3 connection. `queue` is a file whose lock makes writers take turns in order."""

    dialect: Dialect = SQLITE

    def __init__(self, connection: sqlite3.Connection, queue: int | None = None, now: Callable[[], int] | None = None) -> None:
        self.connection = connection
        self._queue = queue
        self._now = now or now_micros

    def trip(self, statements: Sequence[Statement]) -> list[Result]:
        """All statements in one BEGIN IMMEDIATE transaction."""
        execute = self.connection.execute
        try:
            self.take_turn()
            execute("BEGIN IMMEDIATE")
            results = self._run(statements)
            execute("COMMIT")
        except sqlite3.Error as error:
            self._undo()
            raise explained(error) from error
        except BaseException:
            self._undo()
            raise
        finally:
            self.end_turn()
        return results

    def read(self, statements: Sequence[Statement]) -> list[Result]:
        """SELECTs outside a transaction: each sees what was committed when it began."""
        try:
            return self._run(statements)
        except sqlite3.Error as error:
            raise explained(error) from error

    def clock(self) -> int:
        """This machine's clock: a file has no other."""
        return self._now()

    def take_turn(self) -> None:
        """Wait for this writer's turn. Only for fairness: BEGIN IMMEDIATE is the guard."""
        if self._queue is not None and fcntl is not None:
            fcntl.flock(self._queue, fcntl.LOCK_EX)

    def end_turn(self) -> None:
        """Let the next writer go."""
        if self._queue is not None and fcntl is not None:
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the connection and leave the queue."""
        self.connection.close()
        if self._queue is not None:
            os.close(self._queue)

    def _undo(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _run(self, statements: Sequence[Statement]) -> list[Result]:
        execute = self.connection.execute
        now = self._now()
        results: list[Result] = []
        changed = True
        bound: dict[str, Any] = {}
        of: object = None
        for statement in statements:
            text = SQLITE.render(statement.sql)
            if not text or (statement.after_change and not changed):
                results.append(NOTHING)
                continue
            if statement.params is not of:
                of = statement.params
                bound = {**statement.params, "now": now}
            cursor = execute(text, bound)
            if cursor.description is None:
                changed = cursor.rowcount > 0
                results.append(Result(cursor.rowcount, []))
            else:
                rows = cursor.fetchall()
                results.append(Result(len(rows), rows))
        return results


class FileRecord(VerbRecord):
    """A record in a file. Creates it if there is none: the folder 0700, the file 0600.

    Raises:
        RecordDamaged: the file is not a SQLite database, or is damaged.
        LedgerError: another program's file, a newer record, a network drive, or another secret than the record was made with.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, secret: bytes, old_secrets: Sequence[bytes] = (), allow_network_drive: bool = False
    ) -> None:
        self.path = Path(path)
        self.place = str(self.path)
        self._keyring = Keyring(secret, old_secrets)
        if not allow_network_drive:
            refuse_network_drive(self.path)
        _make_file(self.path)
        self._pool: Pool[SqliteExecutor] = Pool(self._connect, SqliteExecutor.close, size=POOL_SIZE, close_before_fork=True)
        self._watch: Pool[SqliteExecutor] = Pool(self._connect, SqliteExecutor.close, size=1, close_before_fork=True)
        try:
            self._open(secret)
        except BaseException:
            self.close()
            raise

    def _open(self, secret: bytes) -> None:
        with self.executor() as executor:
            _prepare(executor, self.path)
        _make_private(self.path)
        if self.meta("server") is not None:
            raise LedgerError(
                f"{self.place} belongs to a server that may host several organizations: "
                "connect agents to the server, c4a.init('https://…', key=…)"
            )
        self.organization = str(self.meta("organization", schema.new_organization_id()))
        known = str(self.meta("secret_id", key_id(secret)))
        if not self._keyring.knows(known):
            raise LedgerError(
                f"{self.place} was made with another secret (id {known}), got one with id {self._keyring.current_id}: "
                "give the secret that belongs to it, or name it in old_secrets"
            )

    def executor(self) -> Borrowed[SqliteExecutor]:
        return self._pool.connection()

    def wait(self, run: str, key: str, seconds: float) -> None:
        where = {"organization": self.organization, "run": run, "key": key}
        self._wait_while(Statement(_STILL_RUNNING, where), seconds, longest_pause=0.01)

    def wait_ticket(self, ticket: str, seconds: float) -> None:
        asked = self.ticket(ticket)
        left = (asked.expires_at - now_micros()) / 1_000_000
        # People take minutes, so looking 20 times a second is soon enough; nobody writes when its time is over.
        where = {"organization": self.organization, "key": asked.id}
        self._wait_while(Statement(IS_OPEN, where), min(seconds, max(0.0, left)), longest_pause=0.05)

    def _wait_while(self, still: Statement, seconds: float, *, longest_pause: float) -> None:
        # SQLite has no wake-up; `data_version` tells in about 2 µs whether anybody committed, so looking every 2 ms is cheap.
        deadline = time.monotonic() + seconds
        seen: int | None = None
        pause = 0.002
        while True:
            with self._watch.connection() as watch:
                version = watch.connection.execute("PRAGMA data_version").fetchone()[0]
                if version != seen and not watch.read([still])[0].count:
                    return
            seen = version
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return
            time.sleep(min(pause, remaining))
            pause = min(pause * 1.05, longest_pause)

    def close(self) -> None:
        self._pool.close()
        self._watch.close()

    def _connect(self) -> SqliteExecutor:
        try:
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
            )
        except sqlite3.Error as error:
            raise explained(error, self.path) from error
        try:
            prepare_connection(connection)
        except sqlite3.Error as error:
            connection.close()
            raise explained(error, self.path) from error
        queue = None
        if fcntl is not None:
            queue = os.open(f"{self.path}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return SqliteExecutor(connection, queue)


_STILL_RUNNING: Final = "SELECT 1 FROM c4a_effect WHERE organization = :organization AND run = :run AND key = :key AND state = 'running'"


def now_micros() -> int:
    """This machine's clock in µs since 1970."""
    return time.time_ns() // 1000


def prepare_connection(connection: sqlite3.Connection) -> None:
    """What every connection to a record needs, whoever opened it: durable settings and the digest function."""
    connection.execute("PRAGMA synchronous = FULL")
    connection.create_function("c4a_entry_digest", 11, entry_digest, deterministic=True)


def refuse_network_drive(path: Path) -> None:
    """Raise `LedgerError` if the file would lie on a network drive: its locks can't be trusted."""
    kind = filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        raise LedgerError(
            f"{path} is on a network drive ({kind}), where file locks can't be trusted and an action could run twice: "
            "use a local disk, or a shared PostgreSQL record (c4a.init('postgresql://…'))"
        )


def filesystem_of(path: Path, mounts: str | None = None) -> str:
    """The type of the file system that holds `path`, '' where it can't be told. `mounts` is the text of /proc/self/mountinfo."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = fields[4].encode().decode("unicode_escape", errors="replace")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind


def _make_file(path: Path) -> None:
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.close(descriptor)
    except OSError as error:
        raise LedgerError(f"the record {path} can't be opened ({error.strerror}): give a file in a folder you may write") from error


def _make_private(path: Path) -> None:
    """Close a record to others. Only once it is known to be ours: another program's file keeps its permissions."""
    try:
        for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            if name.exists() and stat.S_IMODE(name.stat().st_mode) & 0o077:
                name.chmod(0o600)
    except OSError as error:
        raise LedgerError(f"{path} can be read by others and can't be closed to them ({error.strerror}): chmod 600 it") from error


def _prepare(executor: SqliteExecutor, path: Path) -> None:
    """Make or upgrade the tables of a file, or refuse a file that isn't ours."""
    executor.take_turn()
    try:
        _prepare_file(executor.connection, path)
    except sqlite3.Error as error:
        raise explained(error, path) from error
    finally:
        executor.end_turn()


def _prepare_file(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA schema_version").fetchone()[0] == 0:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    elif not schema.version_of(connection):
        refuse_foreign(connection, path)
    schema.refuse_newer(schema.version_of(connection))
    if str(connection.execute("PRAGMA journal_mode").fetchone()[0]).lower() != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    if schema.version_of(connection) < schema.SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            schema.upgrade(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def refuse_foreign(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `LedgerError` if a database without a record has tables: they are another program's."""
    names = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not names:
        return
    if {"entries", "meta"} <= names:
        raise LedgerError(f"{path} looks like a call4agents record, not one of C4A: take it over with `c4a import {path} NEW`")
    raise LedgerError(f"{path} is another program's database (tables {', '.join(sorted(names)[:5])}): give C4A a file of its own")


def explained(error: sqlite3.Error, path: Path | None = None) -> LedgerError:
    """The driver's error in our words, saying what to do."""
    if isinstance(error, sqlite3.IntegrityError):
        return RecordDamaged(
            f"the record refused a write ({error}): heads and entries disagree; nothing was written. Run `c4a verify`, then `c4a rebuild`"
        )
    text = str(error).lower()
    where = f" {path}" if path else ""
    if "not a database" in text or "malformed" in text or "encrypted" in text:
        return RecordDamaged(f"the file{where} is not a record, or is damaged ({error}): restore it from a copy, or give another file")
    if "locked" in text or "busy" in text:
        return LedgerError(f"another program has held the record{where} for over {BUSY_SECONDS:.0f} s ({error}): close it and try again")
    if "full" in text:
        return LedgerError(f"the disk that holds the record{where} is full ({error}); nothing was written: make room and try again")
    if "readonly" in text or "unable to open" in text:
        return LedgerError(f"the record{where} can't be written ({error}): check the file's owner and permissions")
    return LedgerError(f"the record{where} could not be used ({error})")
