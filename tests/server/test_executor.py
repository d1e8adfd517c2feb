"""The record's statements over Django's connection, on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from pytest_django import DjangoDbBlocker

from c4a.errors import LedgerError, RecordDamaged, RecordUnreachable
from c4a.record import claim, reads, settle, verify
from c4a.record.dialects import Statement
from c4a.record.keyring import Keyring
from c4a.record.types import Call, Claimant, Grant, Recorded
from ledger.executor import DjangoExecutor
from tests.server.callers import new_token
from tests.server.databases import ALIAS, postgresql_database, probe, sqlite_database

ORGANIZATION = "org_test"
KEYRING = Keyring(b"0123456789abcdef" * 2)
COUNT = Statement("SELECT COUNT(*) FROM c4a_meta WHERE name LIKE 'test%'", {})


@pytest.fixture(params=["sqlite", "postgresql"])
def executor(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[DjangoExecutor]:
    """An executor over an empty record of the test's own."""
    database = sqlite_database(tmp_path) if request.param == "sqlite" else postgresql_database(request.getfixturevalue("postgres_url"))
    with django_db_blocker.unblock(), probe(database) as made:
        yield made


def put(name: str, value: str = "1") -> Statement:
    """Write one row."""
    return Statement("INSERT INTO c4a_meta (name, value) VALUES (:name, :value)", {"name": name, "value": value})


def call(run: str = "r1", key: str = "a" * 64) -> Call:
    """An action."""
    return Call(run=run, tool="pay", arguments="{}", arguments_codec="{}", call_digest="d" * 64, args_digest="d" * 64, key=key)


def test_a_trip_commits(executor: DjangoExecutor) -> None:
    results = executor.trip([put("test1"), put("test2"), COUNT])
    assert [result.count for result in results] == [1, 1, 1]
    assert results[2].rows == [(2,)]
    executor.connection.close()
    assert executor.read([COUNT])[0].rows == [(2,)]


def test_a_trip_that_fails_writes_nothing(executor: DjangoExecutor) -> None:
    with pytest.raises(RecordDamaged):
        executor.trip([put("test1"), put("test1")])
    assert executor.read([COUNT])[0].rows == [(0,)]
    assert executor.trip([put("test1"), COUNT])[1].rows == [(1,)]


def test_a_wrong_statement_is_a_ledger_error(executor: DjangoExecutor) -> None:
    with pytest.raises(LedgerError):
        executor.trip([Statement("SELECT * FROM c4a_no_such_table", {})])


def test_a_trip_joins_an_atomic_block(executor: DjangoExecutor) -> None:
    def write_then_fail() -> None:
        with transaction.atomic(using=ALIAS):
            executor.trip([put("test1")])
            assert executor.read([COUNT])[0].rows == [(1,)]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_then_fail()
    assert executor.read([COUNT])[0].rows == [(0,)]
    with transaction.atomic(using=ALIAS):
        executor.trip([put("test1")])
    assert executor.read([COUNT])[0].rows == [(1,)]


def test_a_failure_inside_an_atomic_block_undoes_all_of_it(executor: DjangoExecutor) -> None:
    def fail_and_go_on() -> None:
        with transaction.atomic(using=ALIAS):
            executor.trip([put("test1")])
            with pytest.raises(RecordDamaged):
                executor.trip([put("test1")])

    try:
        fail_and_go_on()
    except transaction.TransactionManagementError:
        pass
    assert executor.read([COUNT])[0].rows == [(0,)]


def test_counts_and_locks_are_as_the_verbs_expect(executor: DjangoExecutor) -> None:
    executor.trip([put("test1"), put("test2")])
    changed, none, lock = executor.trip(
        [
            Statement("UPDATE c4a_meta SET value = '2' WHERE name LIKE 'test%'", {}),
            Statement("UPDATE c4a_meta SET value = '2' WHERE name = 'nobody'", {}),
            Statement("{lock_run_shared}", {"run_lock": 1}),
        ]
    )
    assert (changed.count, none.count) == (2, 0)
    assert lock.count in (0, 1)


def test_the_clock_is_the_databases(executor: DjangoExecutor) -> None:
    first = executor.clock()
    (row,) = executor.read([Statement("SELECT {now}", {})])[0].rows
    assert 0 <= row[0] - first < 5_000_000


def test_the_verbs_run_over_it(executor: DjangoExecutor) -> None:
    token = new_token()
    claimant = Claimant(token=token, actor="agent:a")
    grant = claim.claim(executor, ORGANIZATION, call(), claimant, KEYRING)
    assert isinstance(grant, Grant)
    assert settle.complete(executor, ORGANIZATION, "r1", call().key, token, result="5") == "done"
    again = claim.claim(executor, ORGANIZATION, call(), Claimant(token=new_token(), actor="agent:b"), KEYRING)
    assert isinstance(again, Recorded)
    assert again.result == "5"
    assert verify.verify(executor, ORGANIZATION) == []


def test_a_verb_inside_atomic_is_one_commit_with_the_rest(executor: DjangoExecutor) -> None:
    def claim_then_fail() -> None:
        with transaction.atomic(using=ALIAS):
            claim.claim(executor, ORGANIZATION, call(), Claimant(token=new_token(), actor="agent:a"), KEYRING)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        claim_then_fail()
    assert reads.effect(executor, ORGANIZATION, call().key) is None


def test_many_threads_of_one_action_get_one_grant(executor: DjangoExecutor, django_db_blocker: DjangoDbBlocker) -> None:
    outcomes: list[Any] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        try:
            outcomes.append(claim.claim(executor, ORGANIZATION, call(), Claimant(token=new_token(), actor="agent:a"), KEYRING))
        except Exception as error:  # noqa: BLE001  (counted below)
            outcomes.append(error)
        finally:
            connections[ALIAS].close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(outcome, Grant) for outcome in outcomes) == 1, outcomes
    assert {type(outcome).__name__ for outcome in outcomes} <= {"Grant", "EffectRunning"}, outcomes


@pytest.fixture
def postgres(postgres_url: str, django_db_blocker: DjangoDbBlocker) -> Iterator[DjangoExecutor]:
    """An executor over PostgreSQL."""
    with django_db_blocker.unblock(), probe(postgresql_database(postgres_url)) as made:
        yield made


def backend_end(url: str) -> None:
    """End every other connection to this database, as a restart of the server does."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_lost_connection_is_opened_anew(postgres: DjangoExecutor, postgres_url: str) -> None:
    postgres.trip([put("test1")])
    backend_end(postgres_url)
    assert postgres.trip([COUNT])[0].rows == [(1,)]


def test_a_lost_connection_inside_atomic_is_an_error(postgres: DjangoExecutor, postgres_url: str) -> None:
    def lose_it_half_way() -> None:
        with transaction.atomic(using=ALIAS):
            postgres.trip([put("test1")])
            backend_end(postgres_url)
            postgres.trip([put("test2")])

    with pytest.raises(RecordUnreachable):
        lose_it_half_way()
    connections[ALIAS].close()
    assert postgres.read([COUNT])[0].rows == [(0,)]


def test_a_database_that_is_away_is_unreachable_and_where_it_is_stands_only_in_the_log(
    django_db_blocker: DjangoDbBlocker, caplog: pytest.LogCaptureFixture
) -> None:
    database = postgresql_database("postgresql://nobody@127.0.0.1:9/none")
    with django_db_blocker.unblock(), probe(database, upgraded=False) as executor, pytest.raises(RecordUnreachable) as caught:
        executor.trip([COUNT])
    assert caught.value.status == 503
    assert "127.0.0.1" not in str(caught.value)
    assert "127.0.0.1" in caplog.text


def test_a_deadlock_is_run_again(postgres: DjangoExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    from ledger import executor as module

    pipeline, failures = module._pipeline, iter([psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure])

    def shaky(raw: Any, statements: Any) -> Any:
        if (failure := next(failures, None)) is not None:
            raise failure("again")
        return pipeline(raw, statements)

    monkeypatch.setattr(module, "_pipeline", shaky)
    assert postgres.trip([put("test1"), COUNT])[1].rows == [(1,)]


def test_the_settings_are_durable(executor: DjangoExecutor) -> None:
    from c4a_project import checks

    assert checks.check_durability(None, databases=[ALIAS]) == []
    if executor.connection.vendor == "sqlite":
        executor.connection.connection.execute("PRAGMA synchronous = NORMAL")
    else:
        executor.connection.connection.execute("SET synchronous_commit = off")
    (problem,) = checks.check_durability(None, databases=[ALIAS])
    assert problem.id == "c4a.E002"
