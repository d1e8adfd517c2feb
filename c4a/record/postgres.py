"""The record in a shared PostgreSQL database: one set of actions for agents on any number of machines.

Every verb is one pipeline, one trip: between two syncs the server runs the statements as one transaction, so neither
BEGIN nor COMMIT is sent. psycopg is imported when a record is opened.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from c4a.errors import LedgerError, RecordDamaged, RecordUnreachable
from c4a.record import schema
from c4a.record.dialects import NOTHING, POSTGRESQL, Dialect, Result, Statement
from c4a.record.keyring import Keyring, key_id
from c4a.record.pool import Broken, Pool
from c4a.record.tickets import IS_OPEN, WAITING
from c4a.record.verbs import VerbRecord

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGconn, PGresult

POOL_SIZE: Final = 8
RETRIES: Final = 4
RETRY_SECONDS: Final = (0.0, 0.05, 0.25, 1.0)
CONNECT_SECONDS: Final = 10
GONE_SECONDS: Final = 10
"""A database whose machine answers nothing for so long is gone. Less than a lease: a heartbeat that waits for a connection that died
unheard (a fail-over, a pulled cable) for the quarter of an hour that TCP allows keeps nothing alive meanwhile."""
CLOCK_SECONDS: Final = 30.0
RECHECK_SECONDS: Final = 1.0
"""A waiter looks again this often even without a notice: LISTEN fails silently through some connection poolers."""
_NAMED: Final = re.compile(r"%\((\w+)\)s")
_INT8: Final = 20
"""The type number of bigint: every integer parameter is one, so that a text is one prepared statement."""
_INTEGERS: Final = frozenset({20, 21, 23})
_TEXTS: Final = frozenset({25, 1043, 705, 2278})
"""text, varchar, a literal of no type, and the nothing that a lock answers. A boolean would come as the text `f`, true to Python."""
_RETRIED_STATES: Final = frozenset({"40001", "40P01"})


class PostgresExecutor:
    """Runs statements on one psycopg connection, each trip one pipeline.

    Speaks to libpq through `psycopg.pq`: a prepared statement in a pipeline costs about 4 µs of this process that way, and
    about 33 µs through a cursor, which for a claim is more than what the database itself takes.
    """

    dialect: Dialect = POSTGRESQL

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._prepared: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self._names = 0
        self._clock_read: tuple[float, int] | None = None

    def trip(self, statements: Sequence[Statement]) -> list[Result]:
        """All statements in one transaction and one round trip; joins the transaction if the connection is inside one.

        Raises:
            psycopg.Error: as the driver reports it; the caller translates and retries (every statement is guarded).
        """
        from psycopg.errors import error_from_result
        from psycopg.pq import ExecStatus

        sent = [(statement, POSTGRESQL.render(statement.sql)) for statement in statements]
        fresh: list[str] = []
        answers: list[PGresult] | None = None
        pgconn = self.connection.pgconn
        self._begin_if_lazy()
        pgconn.enter_pipeline_mode()
        try:
            for statement, text in sent:
                if text:
                    self._send(statement, text, fresh)
            pgconn.pipeline_sync()
            answers = self.connection.wait(_answers(pgconn))
        finally:
            if answers is not None:
                pgconn.exit_pipeline_mode()
            else:
                # Interrupted half-way: the server's answers are still to come, and nobody else may take them for its own.
                self.connection.close()
        failed = next((one for one in answers if one.status == ExecStatus.FATAL_ERROR), None)
        if failed is not None:
            for text in fresh:
                del self._prepared[text]
            raise error_from_result(failed, encoding="utf-8")
        told = iter([one for one in answers if one.status != ExecStatus.COMMAND_OK or one.command_status])
        return [_result(next(told)) if text else NOTHING for _, text in sent]

    read = trip

    def clock(self) -> int:
        """The database's clock in µs since 1970: asked once in `CLOCK_SECONDS` on this connection, carried on between.

        It can only be behind the database's own clock, by the length of a trip or of a machine's sleep: what is said to
        end at it plus something ends early, never late.
        """
        at = time.monotonic()
        if self._clock_read is None or at - self._clock_read[0] > CLOCK_SECONDS:
            self._clock_read = (at, int(self.trip([Statement("SELECT c4a_now()", {})])[0].rows[0][0]))
            return self._clock_read[1]
        return self._clock_read[1] + int((at - self._clock_read[0]) * 1_000_000)

    def _begin_if_lazy(self) -> None:
        # psycopg sends BEGIN with the first statement of a cursor; these statements go around its cursors.
        if not self.connection.autocommit and self.connection.info.transaction_status.name == "IDLE":
            self.connection.execute("SELECT 1")

    def _send(self, statement: Statement, text: str, fresh: list[str]) -> None:
        pgconn = self.connection.pgconn
        known = self._prepared.get(text)
        params = statement.params
        if known is None:
            names = tuple(dict.fromkeys(_NAMED.findall(text)))
            numbered = _NAMED.sub(lambda found: f"${names.index(found.group(1)) + 1}", text)
            self._names += 1
            known = (b"c4a_%d" % self._names, names)
            pgconn.send_prepare(known[0], numbered.encode(), [_INT8 if isinstance(params[name], int) else 0 for name in names])
            self._prepared[text] = known
            fresh.append(text)
        pgconn.send_query_prepared(known[0], [_as_text(params[name]) for name in known[1]])


class SteadyExecutor:
    """Repeats a trip over a lost connection or a deadlock: the statements are guarded, so a lost COMMIT changes nothing."""

    dialect: Dialect = POSTGRESQL

    def __init__(self, pool: Pool[PostgresExecutor]) -> None:
        self._pool = pool

    def trip(self, statements: Sequence[Statement]) -> list[Result]:
        """As `PostgresExecutor.trip`, repeated up to `RETRIES` times.

        Raises:
            RecordUnreachable: the database did not answer.
            RecordDamaged: a unique index or a trigger refused: heads and entries disagree.
        """
        import psycopg

        lost: Exception | None = None
        for pause in RETRY_SECONDS[:RETRIES]:
            if pause:  # sleep(0) would give the processor away
                time.sleep(pause)
            try:
                with self._pool.connection() as executor:
                    return _run(executor, statements)
            except Broken as broken:
                self._pool.drop_idle()
                lost = broken.__cause__ if isinstance(broken.__cause__, Exception) else broken
            except psycopg.errors.Error as error:
                if error.sqlstate not in _RETRIED_STATES:
                    raise explained(error) from error
                lost = error
            except psycopg.Error as error:
                lost = error
            except RecordUnreachable as error:
                if "refused" not in error.fields:
                    raise  # no connection was free, and that was waited for already
                lost = error
        raise RecordUnreachable(
            f"the database did not answer ({str(lost).strip()}): whether the last write arrived is settled by calling again"
        ) from lost

    read = trip

    def clock(self) -> int:
        """The database's clock in µs since 1970, see `PostgresExecutor.clock`."""
        import psycopg

        try:
            with self._pool.connection() as executor:
                return executor.clock()
        except (Broken, psycopg.Error):
            return int(self.trip([Statement("SELECT c4a_now()", {})])[0].rows[0][0])


class DatabaseRecord(VerbRecord):
    """A record in a shared database, for agents trusted with the whole of one organization. Never creates or alters tables.

    Raises:
        LedgerError: no record there (run `c4a migrate`), a newer one, another secret, settings that don't keep what was
            written, or a database that a server hosts for several organizations.
        RecordUnreachable: no connection.
    """

    def __init__(self, url: str, *, secret: bytes, old_secrets: Sequence[bytes] = (), pool_size: int = POOL_SIZE) -> None:
        self.place = without_password(url)
        self._url = url
        self._keyring = Keyring(secret, old_secrets)
        self._pool: Pool[PostgresExecutor] = Pool(self._connect, _close, size=pool_size)
        self._executor = SteadyExecutor(self._pool)
        self._listener = _Listener(url)
        try:
            self._check(secret)
        except BaseException:
            self.close()
            raise

    def _check(self, secret: bytes) -> None:
        facts = self._open()
        self.organization = facts["organization"]
        known = str(self.meta("secret_id", key_id(secret)))
        if not self._keyring.knows(known):
            raise LedgerError(
                f"{self.place} was made with another secret (id {known}), got one with id {self._keyring.current_id}: "
                "every machine needs the same secret; name the former one in old_secrets"
            )

    @contextmanager
    def executor(self) -> Iterator[SteadyExecutor]:
        yield self._executor

    def wait(self, run: str, key: str, seconds: float) -> None:
        where = {"organization": self.organization, "run": run, "key": key}
        self._wait_while(key, Statement(_WAITING, where), Statement(_STILL_RUNNING, where), seconds)

    def wait_ticket(self, ticket: str, seconds: float) -> None:
        asked = self.ticket(ticket)
        where = {"organization": self.organization, "key": asked.id}
        self._wait_while(asked.id, Statement(WAITING, where), Statement(IS_OPEN, where), seconds)

    def _wait_while(self, key: str, flag: Statement, still: Statement, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self._listener.interest(key) as woken:
            while True:
                # The flag is set before the look, so a settlement after the look sends a notice.
                running = self._executor.trip([flag, still])[1].count
                remaining = deadline - time.monotonic()
                if not running or remaining <= 0:
                    return
                woken.wait(min(remaining, RECHECK_SECONDS))
                woken.clear()

    def close(self) -> None:
        self._listener.close()
        self._pool.close()

    def _connect(self) -> PostgresExecutor:
        return PostgresExecutor(connect(self._url))

    def _open(self) -> dict[str, str]:
        try:
            with self._pool.connection() as executor:
                connection = executor.connection
                version = schema.version_of(connection)
                if not version:
                    raise LedgerError(f"{self.place} holds no record: make one with `c4a migrate {self.place}`")
                schema.refuse_newer(version)
                if version < schema.SCHEMA_VERSION:
                    raise LedgerError(
                        f"{self.place} has schema version {version}, this C4A needs {schema.SCHEMA_VERSION}: run `c4a migrate {self.place}`"
                    )
                refuse_lossy(connection)
                facts = dict(connection.execute("SELECT name, value FROM c4a_meta").fetchall())
        except Broken as broken:
            raise RecordUnreachable(f"no connection to {self.place} ({broken.__cause__})") from broken
        if "organization" not in facts:
            raise LedgerError(
                f"{self.place} belongs to a server that may host several organizations: "
                "connect agents to the server, c4a.init('https://…', key=…)"
            )
        return facts


_STILL_RUNNING: Final = "SELECT 1 FROM c4a_effect WHERE organization = :organization AND run = :run AND key = :key AND state = 'running'"
_WAITING: Final = (
    "UPDATE c4a_effect SET waited = 1 WHERE organization = :organization AND run = :run AND key = :key AND state = 'running' AND waited = 0"
)


class _Listener:
    """One connection and one thread that listen for settled effects, only while somebody waits for the first time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._woken: dict[str, set[threading.Event]] = {}
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._pid = os.getpid()
        self._closed = False

    @contextmanager
    def interest(self, key: str) -> Iterator[threading.Event]:
        """An event that is set whenever the effect may have been settled."""
        if self._pid != os.getpid():
            self._reset()
        woken = threading.Event()
        with self._lock:
            self._woken.setdefault(key, set()).add(woken)
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="c4a-listen", daemon=True)
                self._thread.start()
        self._ready.wait(CONNECT_SECONDS)
        try:
            yield woken
        finally:
            with self._lock:
                self._woken[key].discard(woken)
                if not self._woken[key]:
                    del self._woken[key]

    def close(self) -> None:
        self._closed = True

    def _listen(self) -> None:
        import psycopg

        while not self._closed:
            try:
                with connect(self._url) as connection:
                    connection.execute("LISTEN c4a_effect")
                    self._ready.set()
                    while not self._closed:
                        for notice in connection.notifies(timeout=1.0):
                            self._wake(notice.payload)
            except (psycopg.Error, LedgerError):  # noqa: PERF203  (once a connection, not once a notice)
                self._ready.set()  # waiters go on by looking again
                time.sleep(RECHECK_SECONDS)

    def _wake(self, key: str) -> None:
        with self._lock:
            for woken in self._woken.get(key, ()):
                woken.set()


def connect(url: str) -> psycopg.Connection[Any]:
    """An autocommit connection with what the verbs rely on.

    Raises:
        LedgerError: psycopg is missing.
        RecordUnreachable: no connection.
    """
    try:
        import psycopg
    except ImportError as error:
        raise LedgerError("a shared record needs psycopg: pip install 'c4a[postgres]'") from error
    try:
        connection = psycopg.connect(
            url, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="c4a",
            tcp_user_timeout=GONE_SECONDS * 1000,
            keepalives_idle=GONE_SECONDS // 2, keepalives_interval=1, keepalives_count=GONE_SECONDS // 2,
        )  # fmt: skip
        prepare_connection(connection)
    except psycopg.Error as error:
        # The driver quotes an address that it can't read, password and all; `from error` would show it in the traceback.
        said = without_password(str(error).strip())
        raise RecordUnreachable(f"no connection to {without_password(url)} ({said})", refused=True) from None
    return connection


def prepare_connection(connection: psycopg.Connection[Any]) -> None:
    """Settings every connection to a record needs, whoever opened it."""
    # Every verb goes through an index. A plan cached while the tables were empty would otherwise scan them for ever after.
    connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; SET enable_seqscan = off")


def refuse_lossy(connection: psycopg.Connection[Any]) -> None:
    """Raise `LedgerError` if this database may forget what it said it wrote."""
    names = ("fsync", "full_page_writes", "synchronous_commit", "server_encoding")
    row = connection.execute("SELECT " + ", ".join(f"current_setting('{name}')" for name in names)).fetchone()
    got = dict(zip(names, row or (), strict=False))
    wanted = {"fsync": ("on",), "full_page_writes": ("on",), "synchronous_commit": ("on", "local", "remote_write", "remote_apply")}
    for name, good in wanted.items():
        if got[name] not in good:
            raise LedgerError(
                f"PostgreSQL has {name} = {got[name]}, so a committed claim could be lost and an action run twice: set it to on"
            )
    if got["server_encoding"] != "UTF8":
        raise LedgerError(f"the database's encoding is {got['server_encoding']}, expected UTF8: make a database with ENCODING 'UTF8'")


def migrate(url: str) -> int:
    """Create or upgrade the record in a database and give it an organization; returns how many schema steps were applied."""
    with connect(url) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(4214101)")  # one migration at a time
        steps = schema.upgrade(connection)
        connection.execute(
            "INSERT INTO c4a_meta (name, value) SELECT 'organization', %s "
            "WHERE NOT EXISTS (SELECT 1 FROM c4a_meta WHERE name IN ('organization', 'server'))",
            (schema.new_organization_id(),),
        )
    return steps


def without_password(url: str) -> str:
    """An address, or a text with addresses in it, as it may be shown. A password with an `@` in it is masked to its end."""
    return re.sub(r"(password=)[^&\s]+", r"\1***", re.sub(r"(//[^:/@\s]*):\S*@", r"\1:***@", url))


def explained(error: psycopg.Error) -> LedgerError:
    """The driver's error in our words."""
    state = error.sqlstate or ""
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if state.startswith("23"):
        return RecordDamaged(
            f"the record refused a write ({said}): heads and entries disagree; nothing was written. Run `c4a verify`, then `c4a rebuild`"
        )
    if state.startswith(("08", "57", "53")):
        return RecordUnreachable(f"the database could not answer ({said}): try again")
    if state == "42501":
        return LedgerError(f"the database role may not do this ({said}): give it SELECT and INSERT on entries, and UPDATE on heads")
    return LedgerError(f"the database refused ({state} {said})")


def _run(executor: PostgresExecutor, statements: Sequence[Statement]) -> list[Result]:
    import psycopg

    try:
        return executor.trip(statements)
    except psycopg.Error as error:
        if executor.connection.closed or executor.connection.broken or (error.sqlstate or "").startswith(("08", "57P")):
            raise Broken from error
        raise


def _answers(pgconn: PGconn) -> Generator[Any, Any, list[PGresult]]:
    """Everything the server says up to the sync, as psycopg's `wait` drives it: it yields what it waits for."""
    from psycopg.pq import ExecStatus
    from psycopg.waiting import Wait

    while pgconn.flush():
        yield Wait.RW
        pgconn.consume_input()
    answers: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        one = pgconn.get_result()
        if one is None:
            continue  # the end of one statement's results
        if one.status == ExecStatus.PIPELINE_SYNC:
            return answers
        answers.append(one)


def _as_text(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode("utf-8") if isinstance(value, str) else b"%d" % value  # type: ignore[str-format]


def _result(answer: PGresult) -> Result:
    if not answer.nfields:
        return Result(answer.command_tuples or 0, [])
    types = [answer.ftype(column) for column in range(answer.nfields)]
    rows = [
        tuple(_value(answer.get_value(row, column), types[column]) for column in range(answer.nfields)) for row in range(answer.ntuples)
    ]
    return Result(len(rows), rows)


def _value(raw: bytes | None, kind: int) -> int | str | None:
    if raw is None:
        return None
    if kind in _INTEGERS:
        return int(raw)
    if kind in _TEXTS:
        return raw.decode("utf-8")
    raise TypeError(f"a statement of the record answered with a value of type {kind}: cast it to BIGINT or TEXT")


def _close(executor: PostgresExecutor) -> None:
    executor.connection.close()
