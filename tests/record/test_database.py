"""The record in a shared database: what is refused, a lost connection at every statement, threads, forks and waiters."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from c4a.errors import AgentFrozen, ApprovalDenied, C4AError, LedgerError, RecordUnreachable
from c4a.record import postgres, schema
from c4a.record.dialects import Result, Statement
from c4a.record.postgres import DatabaseRecord, PostgresExecutor, without_password
from c4a.record.types import DEFAULT_LEASE_SECONDS, Grant, Recorded
from tests.record.cast import AGENT, PERSON, SECRET, Kept, approve, begun, call, claimant, deny, in_doubt


def opened(url: str, **options: Any) -> DatabaseRecord:
    """A record there, if it can be one."""
    return DatabaseRecord(url, secret=SECRET, **options)


# -- what is refused --------------------------------------------------------------------------------------------------------


def test_a_database_without_a_record_says_what_to_run_and_gets_no_tables(postgres_url: str) -> None:
    with pytest.raises(LedgerError, match=r"c4a migrate postgresql://"):
        opened(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)


def test_a_newer_record_is_refused(kept_database: Kept) -> None:
    kept_database.sql("UPDATE c4a_meta SET value = :version WHERE name = 'schema_version'", version=str(schema.SCHEMA_VERSION + 1))
    try:
        with pytest.raises(LedgerError, match="upgrade C4A"):
            kept_database.open()
    finally:
        kept_database.sql("UPDATE c4a_meta SET value = :version WHERE name = 'schema_version'", version=str(schema.SCHEMA_VERSION))


def test_a_database_that_a_server_hosts_is_refused(kept_database: Kept) -> None:
    kept_database.sql("UPDATE c4a_meta SET name = 'server' WHERE name = 'organization'")
    with pytest.raises(LedgerError, match="belongs to a server"):
        kept_database.open()


def test_another_secret_is_refused_until_the_former_is_named(kept_database: Kept) -> None:
    other = b"another secret of enough bytes"
    with pytest.raises(LedgerError, match="another secret"):
        kept_database.open(secret=other)
    kept_database.open(secret=other, old_secrets=[SECRET])


def test_no_connection_is_told_without_the_password() -> None:
    with pytest.raises(RecordUnreachable) as caught:
        opened("postgresql://me:hush@127.0.0.1:1/none?connect_timeout=2")
    assert "hush" not in str(caught.value)


def test_a_connection_that_died_unheard_is_given_up_before_a_lease_lapses(kept_database: Kept) -> None:
    with postgres.connect(kept_database.address) as connection:
        told = connection.info.get_parameters()

    idle, interval, count = (int(told[f"keepalives_{name}"]) for name in ("idle", "interval", "count"))
    assert 0 < int(told["tcp_user_timeout"]) / 1000 < DEFAULT_LEASE_SECONDS
    assert 0 < idle + interval * count < DEFAULT_LEASE_SECONDS


def test_an_address_that_cannot_be_read_is_not_shown_with_its_password() -> None:
    with pytest.raises(RecordUnreachable) as caught:
        opened("postgresql://me:hush@[::1/none")
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "hush" not in str(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://:hush@h/db",
        "postgresql://me:p@hush@h/db",
        "invalid URI: postgresql://me:hush@[h",
        "postgresql://me:hush@h/db",
        "postgresql://h/db?user=me&password=hush",
        "postgresql://me:hush@h1:1,h2:2/db",
        "postgres://a:hush@h",
    ],
)
def test_an_address_is_shown_without_its_password(url: str) -> None:
    assert "hush" not in without_password(url)


@pytest.mark.parametrize("setting", ["synchronous_commit = off"])
def test_settings_that_forget_are_refused(record_postgres_url: str, setting: str) -> None:
    postgres.migrate(record_postgres_url)
    name = record_postgres_url.rsplit("/", 1)[1]
    with psycopg.connect(record_postgres_url, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" SET {setting}')
    with pytest.raises(LedgerError, match="synchronous_commit = off"):
        opened(record_postgres_url)


def test_migrating_twice_applies_each_step_once(postgres_url: str) -> None:
    assert postgres.migrate(postgres_url) == schema.SCHEMA_VERSION
    assert postgres.migrate(postgres_url) == 0
    first, second = opened(postgres_url), opened(postgres_url)
    assert first.organization == second.organization
    first.close()
    second.close()


def test_four_migrations_at_once_make_one_record(postgres_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda _: postgres.migrate(postgres_url), range(4))) == [0, 0, 0, schema.SCHEMA_VERSION]


def test_a_role_without_rights_is_told_which_it_needs(record_postgres_url: str) -> None:
    postgres.migrate(record_postgres_url)
    role = "c4a_reader_" + os.urandom(4).hex()
    with psycopg.connect(record_postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        connection.execute(f"GRANT INSERT ON c4a_meta TO {role}")
    try:
        rest = record_postgres_url.split("@", 1)[1]
        record = opened(f"postgresql://{role}@{rest}")
        with pytest.raises(LedgerError, match="INSERT on entries"):
            record.claim(call(10), claimant())
        record.close()
    finally:
        with psycopg.connect(record_postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


# -- a lost connection ------------------------------------------------------------------------------------------------------


class Cut:
    """Ends this record's own backends when the n-th trip is `before` being sent or `after` it was answered."""

    def __init__(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = address
        self.at: tuple[int, str] | None = None
        self.trips = 0
        whole = PostgresExecutor.trip
        cut = self

        def trip(executor: PostgresExecutor, statements: Sequence[Statement]) -> list[Result]:
            cut.trips += 1
            number = cut.trips
            if cut.at == (number, "before"):
                cut.end(executor)
            results = whole(executor, statements)
            if cut.at == (number, "after"):
                # Committed, but the answer is lost on the way.
                cut.end(executor)
                raise psycopg.OperationalError("the connection was lost")
            return results

        monkeypatch.setattr(PostgresExecutor, "trip", trip)

    def end(self, executor: PostgresExecutor) -> None:
        """Terminate the backend of this connection and wait until it is gone."""
        pid = executor.connection.info.backend_pid
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        if self.at is not None and self.at[1] == "after":
            executor.connection.close()


@pytest.fixture
def cut(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cut]:
    """Cut the connection at a chosen trip."""
    return Cut(kept_database.address, monkeypatch)  # type: ignore[return-value]


def deeds(kept: Kept) -> dict[str, Callable[[], object]]:
    """Every verb, each on effects prepared for it; run under a cut connection it must end as without."""
    record = kept.record
    plain, gated, done, doubt, lapsed, failed, given, retry = (call(number, gated=number == 2) for number in range(1, 9))
    approve(record, gated)
    ender, _ = begun(kept, done)
    in_doubt(kept, doubt)
    faller, _ = begun(kept, failed)
    giver, _ = begun(kept, given)
    again, _ = begun(kept, retry)
    record.release(retry.run, retry.key, again.token)
    asked = call(9)
    in_doubt(kept, asked)
    asker = claimant().token
    record.ask(asked.run, asked.key, attempt=1, token=asker, actor=AGENT, after_seconds=0, lease_seconds=60)
    begun(kept, lapsed, holder="pid 7")
    resent = call(20)
    in_doubt(kept, resent)
    first, second, third, fourth = (claimant() for _ in range(4))
    return {
        "claim": lambda: record.claim(plain, first),
        "gated claim": lambda: record.claim(gated, second),
        "claim again": lambda: record.claim(retry, third),
        "reclaim": lambda: record.reclaim(resent, fourth, attempt=1, window_seconds=600),
        "complete": lambda: record.complete(done.run, done.key, ender.token, result="1"),
        "fail": lambda: record.fail(failed.run, failed.key, faller.token, error="x"),
        "release": lambda: record.release(given.run, given.key, giver.token),
        "declare_dead": lambda: record.declare_dead(lapsed.run, lapsed.key, attempt=1, holder="pid 7", actor=AGENT),
        "resolve": lambda: record.resolve(doubt.key, "done", attempt=1, note="seen", actor=PERSON),
        "answer": lambda: record.answer(asked.run, asked.key, asker, verdict="done", result="1", actor=AGENT),
        "approve": lambda: approve(record, call(30)),
        "deny": lambda: record.deny(run="run-1", tool="pay", arguments="{}", call_digest="d", by=PERSON),
        "freeze": lambda: record.freeze(run="run-9", by=PERSON),
        "thaw": lambda: record.thaw(run="run-8", by=PERSON),
    }


VERBS = (
    "claim", "gated claim", "claim again", "reclaim", "complete", "fail", "release", "declare_dead", "resolve", "answer", "approve", "deny",
    "freeze", "thaw",
)  # fmt: skip


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("verb", VERBS)
def test_c_e5_a_connection_lost_around_any_trip_is_settled_by_repeating(kept_database: Kept, cut: Cut, verb: str, where: str) -> None:
    kept = kept_database
    deed = deeds(kept)[verb]
    before, cut.trips = kept.count(), 0
    kinds_before = [entry.kind for entry in kept.record.entries(limit=100)]
    cut.trips = 0
    number = 1
    # The trips of the verb, each cut once; a verb that was settled must not change by being asked again on a new connection.
    cut.at = (number, where)

    answer = deed()

    cut.at = None
    written = [entry.kind for entry in kept.record.entries(limit=100)][len(kinds_before) :]
    assert len(written) == (0 if verb == "thaw" else 1)
    assert kept.count() == before + len(written)
    if "claim" in verb:
        assert isinstance(answer, Grant)
        assert deed() == answer
        assert kept.count() == before + 1
    assert kept.record.verify() == []


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("where", ["before", "after"])
def test_case_80_a_yes_is_spent_once_whichever_trip_is_cut(kept_database: Kept, cut: Cut, where: str, number: int) -> None:
    one = call(10, gated=True)
    approve(kept_database.record, one)
    approve(kept_database.record, one)
    cut.trips = 0
    cut.at = (number, where)

    grant = kept_database.record.claim(one, claimant())

    cut.at = None
    assert isinstance(grant, Grant)
    assert kept_database.sql("SELECT COUNT(*) FROM c4a_approval WHERE state = 'spent'") == [(1,)]
    assert kept_database.kinds(one) == ["running"]
    assert kept_database.record.verify() == []


def test_case_80_a_backend_ended_inside_the_transaction_leaves_nothing(kept_database: Kept) -> None:
    """Ended while the claim waits for a lock, its first statements done: all of it is rolled back, then repeated."""
    kept = kept_database
    one = call(10, gated=True)
    approve(kept.record, one)
    from c4a.record.dialects import action_lock

    number = action_lock(kept.record.organization, one.run, one.call_digest)["action_lock"]
    outcome: list[object] = []
    with psycopg.connect(kept.address, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [number])
        claiming = threading.Thread(target=lambda: outcome.append(kept.record.claim(one, claimant())))
        claiming.start()
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
        for _ in range(500):
            pids = kept.sql(waiting)
            if pids:
                break
            time.sleep(0.01)
        kept.sql(f"SELECT pg_terminate_backend({pids[0][0]}, 5000)")
        assert kept.count("c4a_effect") == 0
        holder.execute("SELECT pg_advisory_unlock(%s)", [number])
        claiming.join(10)

    assert isinstance(outcome[0], Grant)
    assert kept.kinds(one) == ["running"]
    assert kept.record.verify() == []


def lost_commit(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """The next trip is committed, its answer is lost, and somebody else acts before it is repeated."""
    whole = PostgresExecutor.trip

    def trip(executor: PostgresExecutor, statements: Sequence[Statement]) -> list[Result]:
        results = whole(executor, statements)
        if not any("payload" in statement.params for statement in statements):
            return results
        monkeypatch.setattr(PostgresExecutor, "trip", whole)
        meanwhile()
        executor.connection.close()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(PostgresExecutor, "trip", trip)


def test_case_80_a_yes_repeated_after_a_lost_commit_does_not_overtake_a_newer_no(
    kept_database: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = call(10, gated=True)
    lost_commit(monkeypatch, lambda: deny(kept_database.record, one))
    approve(kept_database.record, one)

    assert [entry.kind for entry in kept_database.record.entries()] == ["gate.approved", "gate.denied"]
    with pytest.raises(ApprovalDenied):
        kept_database.record.claim(one, claimant())
    assert kept_database.record.verify() == []


def test_case_80_a_no_repeated_after_a_lost_commit_does_not_void_a_newer_yes(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    one = call(10, gated=True)
    lost_commit(monkeypatch, lambda: approve(kept_database.record, one))
    deny(kept_database.record, one)

    assert [entry.kind for entry in kept_database.record.entries()] == ["gate.denied", "gate.approved"]
    assert isinstance(kept_database.record.claim(one, claimant()), Grant)
    assert kept_database.record.verify() == []


@pytest.mark.parametrize("subject", [{"run": "run-1"}, {"agent": AGENT}])
def test_case_80_a_thaw_repeated_after_a_lost_commit_does_not_undo_a_newer_freeze(
    kept_database: Kept, monkeypatch: pytest.MonkeyPatch, subject: dict[str, str]
) -> None:
    record = kept_database.record
    record.freeze(**subject, by=PERSON)
    lost_commit(monkeypatch, lambda: record.freeze(**subject, by=PERSON))
    record.thaw(**subject, by=PERSON)

    assert [entry.kind.split(".")[1] for entry in record.entries()] == ["frozen", "thawed", "frozen"]
    with pytest.raises(AgentFrozen):
        record.claim(call(10), claimant())
    assert record.verify() == []


def test_c_e5_after_a_restart_every_idle_connection_is_stale_and_the_next_call_still_works(kept_database: Kept) -> None:
    kept = kept_database
    record = kept.open()
    barrier = threading.Barrier(8)

    def use(number: int) -> None:
        with record._pool.connection() as executor:
            barrier.wait()
            executor.trip([Statement("SELECT 1", {})])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    kept.sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'c4a' AND datname = current_database()")

    assert isinstance(record.claim(call(10), claimant()), Grant)


def test_a_database_that_stays_away_says_so(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    record = kept_database.record
    begun(kept_database, call(10))
    monkeypatch.setattr(postgres, "RETRY_SECONDS", (0.0, 0.01, 0.01, 0.01))

    def refuse(executor: PostgresExecutor, statements: Sequence[Statement]) -> list[Result]:
        executor.connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(PostgresExecutor, "trip", refuse)
    with pytest.raises(RecordUnreachable, match="calling again"):
        record.claim(call(11), claimant())


def test_an_interrupted_trip_poisons_no_connection(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between sending and answering: the next caller must not read the former one's answers."""
    record = kept_database.record
    real = psycopg.Connection.wait

    def interrupt(connection: Any, generator: Any, *options: Any) -> Any:
        next(generator)
        raise KeyboardInterrupt

    monkeypatch.setattr(psycopg.Connection, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        record.claim(call(10), claimant())
    monkeypatch.setattr(psycopg.Connection, "wait", real)

    for number in range(20, 24):
        assert isinstance(record.claim(call(number), claimant()), Grant)
    assert record.verify() == []


def test_a_value_that_cannot_be_sent_poisons_no_connection(kept_database: Kept) -> None:
    record = kept_database.record
    unsendable = dataclasses.replace(call(10), run="lone \ud800")
    with pytest.raises(UnicodeEncodeError):
        record.claim(unsendable, claimant())
    for number in range(20, 24):
        assert isinstance(record.claim(call(number), claimant()), Grant)


# -- threads and forks ------------------------------------------------------------------------------------------------------


def test_c_e6_130_threads_are_all_served_by_8_connections(kept_database: Kept) -> None:
    kept, errors, most = kept_database, [], []

    def act(number: int) -> None:
        try:
            who, _ = begun(kept, call(number))
            kept.record.complete(call(number).run, call(number).key, who.token, result="1")
        except C4AError as error:  # pragma: no cover
            errors.append(error)

    threads = [threading.Thread(target=act, args=(number,)) for number in range(130)]
    for thread in threads:
        thread.start()
    count = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'c4a' AND datname = current_database()"
    while any(thread.is_alive() for thread in threads):
        most.append(kept.sql(count)[0][0])
        time.sleep(0.01)
    for thread in threads:
        thread.join(30)

    assert errors == []
    assert len(kept.record.effects(state="done", limit=1000)) == 130
    assert max(most) <= 8


def test_c_e6_a_caller_who_gets_no_connection_is_told_after_a_bounded_wait(kept_database: Kept) -> None:
    from c4a.record.pool import Pool

    pool: Pool[object] = Pool(object, lambda one: None, size=1, wait_seconds=0.1)
    with pool.connection(), pytest.raises(RecordUnreachable, match="all 1 connections"):
        pool.take()
    with pool.connection() as one:
        assert one is not None


def test_c_e6_a_connection_that_cannot_be_made_takes_no_place() -> None:
    from c4a.record.pool import Broken, Pool

    made: list[int] = []

    def make() -> int:
        made.append(1)
        if len(made) <= 3:
            raise RuntimeError("no")
        return len(made)

    pool: Pool[int] = Pool(make, lambda one: None, size=1, wait_seconds=0.1)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            pool.take()
    with pytest.raises(Broken), pool.connection():
        raise Broken
    with pool.connection() as one:
        assert one == 5


def forked(work: Callable[[], None]) -> int:
    """The exit code of a forked child; -9 if it hung for 20 s."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


def test_c_e3_children_forked_while_other_threads_write_work_and_end(kept: Kept) -> None:
    stop = threading.Event()

    def write(number: int) -> None:
        for count in range(100_000):
            if stop.is_set():
                return
            one = call(count, run=f"busy-{number}")
            who = claimant()
            kept.record.claim(one, who)
            kept.record.complete(one.run, one.key, who.token, result="1")

    def child(number: int) -> Callable[[], None]:
        def work() -> None:
            one, who = call(number, run="child"), claimant()
            assert isinstance(kept.record.claim(one, who), Grant)
            kept.record.complete(one.run, one.key, who.token, result="1")

        return work

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, number) for number in range(3)]
        time.sleep(0.05)
        try:
            codes = [forked(child(number)) for number in range(12)]
        finally:
            stop.set()
        for writer in writers:
            writer.result(20)

    assert codes == [0] * 12
    assert {one.state for one in kept.record.effects(run="child")} == {"done"}
    assert kept.record.verify() == []


# -- waiting ----------------------------------------------------------------------------------------------------------------


def waiting(kept: Kept, one: Any, seconds: float) -> tuple[threading.Thread, list[float]]:
    """A thread that waits, and when it was woken."""
    woken: list[float] = []

    def wait() -> None:
        kept.record.wait(one.run, one.key, seconds)
        woken.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, woken


def test_c_e4_a_waiter_is_woken_when_the_action_settles(kept: Kept) -> None:
    one = call(10)
    who, _ = begun(kept, one)
    thread, woken = waiting(kept, one, 10)
    if kept.kind == "database":
        for _ in range(300):
            if kept.sql("SELECT 1 FROM c4a_effect WHERE waited = 1"):
                break
            time.sleep(0.01)
    time.sleep(0.05)
    kept.record.complete(one.run, one.key, who.token, result="1")
    settled = time.monotonic()
    thread.join(10)

    assert woken
    assert woken[0] - settled < 0.8  # less than the second after which a waiter looks again anyway
    assert isinstance(kept.record.claim(one, claimant()), Recorded)


def test_c_e4_a_wait_ends_in_time_when_nothing_happens(kept: Kept) -> None:
    one = call(10)
    begun(kept, one)
    began = time.monotonic()
    kept.record.wait(one.run, one.key, 0.3)

    assert 0.25 < time.monotonic() - began < 3


def test_c_e4_waiting_for_what_is_settled_or_unknown_ends_at_once(kept: Kept) -> None:
    began = time.monotonic()
    kept.record.wait("run-1", "0" * 64, 10)
    one = call(10)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")
    kept.record.wait(one.run, one.key, 10)

    assert time.monotonic() - began < 3


def test_c_e4_waiting_costs_a_few_queries_not_a_hundred(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    one = call(10)
    begun(kept_database, one)
    kept_database.record.wait(one.run, one.key, 0.01)
    trips: list[int] = []
    whole = PostgresExecutor.trip

    def counted(executor: PostgresExecutor, statements: Sequence[Statement]) -> list[Result]:
        trips.append(1)
        return whole(executor, statements)

    monkeypatch.setattr(PostgresExecutor, "trip", counted)

    kept_database.record.wait(one.run, one.key, 2.2)

    assert 1 <= len(trips) <= 5


def test_c_e4_nobody_is_notified_unless_somebody_waits(kept_database: Kept) -> None:
    kept = kept_database
    with psycopg.connect(kept.address, autocommit=True) as listener:
        listener.execute("LISTEN c4a_effect")
        who, _ = begun(kept, call(1))
        kept.record.complete(call(1).run, call(1).key, who.token, result="1")
        assert list(listener.notifies(timeout=0.3)) == []
        who, _ = begun(kept, call(2))
        kept.record.wait(call(2).run, call(2).key, 0.01)
        kept.record.complete(call(2).run, call(2).key, who.token, result="1")
        assert [notice.payload for notice in listener.notifies(timeout=2, stop_after=1)] == [call(2).key]


def test_c_e4_a_waiter_goes_on_where_notices_get_lost(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through some connection poolers LISTEN fails silently."""
    one = call(10)
    who, _ = begun(kept_database, one)
    monkeypatch.setattr(postgres._Listener, "_wake", lambda self, key: None)
    thread, woken = waiting(kept_database, one, 10)
    time.sleep(0.2)
    kept_database.record.complete(one.run, one.key, who.token, result="1")
    began = time.monotonic()
    thread.join(10)

    assert woken
    assert woken[0] - began < 3


def test_a_database_that_restarts_is_connected_to_again(kept_database: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = iter([True, True])
    real = postgres.connect

    def connect(url: str) -> Any:
        if next(refused, False):
            raise RecordUnreachable("no connection", refused=True)
        return real(url)

    monkeypatch.setattr(postgres, "connect", connect)
    kept_database.record._pool.drop_idle()

    assert isinstance(kept_database.record.claim(call(10), claimant()), Grant)
    assert next(refused, None) is None
