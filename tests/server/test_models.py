"""The models over the record's tables: as the tables are, and to read only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import DatabaseError, connection, models, transaction
from pytest_django import DjangoDbBlocker

from ledger.executor import DjangoExecutor
from ledger.models import Approval, Effect, Entry, Gate, RecordIsReadOnly, RecordRow, Run, Subject, Ticket
from tests.server.cast import Api, Company
from tests.server.databases import postgresql_database, probe, sqlite_database

MODELS: list[type[RecordRow]] = [Approval, Effect, Entry, Gate, Run, Subject, Ticket]
KINDS: dict[type[models.Field[Any, Any]], set[str]] = {
    models.BigIntegerField: {"BigIntegerField", "IntegerField", "AutoField", "BigAutoField"},
    models.TextField: {"TextField"},
}


@pytest.fixture(params=["sqlite", "postgresql"])
def executor(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[DjangoExecutor]:
    """An empty record."""
    database = sqlite_database(tmp_path) if request.param == "sqlite" else postgresql_database(request.getfixturevalue("postgres_url"))
    with django_db_blocker.unblock(), probe(database) as made:
        yield made


def test_every_model_has_exactly_the_columns_of_its_table(executor: DjangoExecutor) -> None:
    introspection = executor.connection.introspection
    with executor.connection.cursor() as cursor:
        for model in MODELS:
            table = model._meta.db_table
            columns = {column.name: column for column in introspection.get_table_description(cursor, table)}
            fields = {field.column: field for field in model._meta.local_concrete_fields}
            assert set(fields) == set(columns), table
            for name, field in fields.items():
                kind = introspection.get_field_type(columns[name].type_code, columns[name])
                assert kind in KINDS[type(field)], (table, name, kind)
                if name != "id":
                    assert field.null == columns[name].null_ok, (table, name)


def test_every_table_of_the_record_has_a_model(executor: DjangoExecutor) -> None:
    with executor.connection.cursor() as cursor:
        tables = {name for name in executor.connection.introspection.table_names(cursor) if name.startswith("c4a_")}
    assert tables - {"c4a_meta"} == {model._meta.db_table for model in MODELS}


def test_no_model_is_managed_or_points_at_another() -> None:
    for model in apps.get_app_config("ledger").get_models():
        assert not model._meta.managed, model
        assert not any(field.is_relation for field in model._meta.get_fields()), model


def test_migrations_say_what_the_models_say(db: None) -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_the_orm_writes_nothing_of_the_record(agent: Api, acme: Company) -> None:
    agent.claim()
    for model in MODELS:
        rows = model.objects
        deeds: list[Callable[[], object]] = [
            rows.create,
            partial(rows.bulk_create, []),
            partial(rows.bulk_update, [], []),
            partial(rows.update, run="x"),
            rows.all().delete,
            model().save,
            model(id=1).delete,
        ]
        for deed in deeds:
            with pytest.raises(RecordIsReadOnly):
                deed()
    assert Effect.objects.get().run == "r1"


def test_the_database_refuses_a_changed_entry(agent: Api) -> None:
    agent.claim()
    for text in ("UPDATE c4a_entry SET actor = 'x'", "DELETE FROM c4a_entry"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(text)
    assert Entry.objects.filter(actor="x").count() == 0
