"""The production role of docs/deploy/postgresql-roles.sql: it can do every verb, and nothing to what is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from c4a.errors import LedgerError
from c4a.record.dialects import Statement
from c4a.record.postgres import DatabaseRecord
from c4a.record.types import Grant, Recorded
from tests.record.cast import SECRET, call, claimant

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "postgresql-roles.sql"
ROLE = "c4a_test_app"


@pytest.fixture
def app_url(record_postgres_url: str) -> Iterator[str]:
    """The address of the record for a role with the rights of the script."""
    with psycopg.connect(record_postgres_url, autocommit=True) as owner:
        with suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):  # roles are the server's, shared by all workers
            owner.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'app'")
        owner.execute(_statements())
    parts = urlsplit(record_postgres_url)
    yield parts._replace(netloc=f"{ROLE}:app@{parts.netloc.rpartition('@')[2]}").geturl()
    with psycopg.connect(record_postgres_url, autocommit=True) as owner:
        owner.execute(f"DROP OWNED BY {ROLE}")


def _statements() -> str:
    """The script as a driver takes it: psql's own commands left out, its variable put in."""
    return re.sub(r"(?m)^\\.*$", "", SCRIPT.read_text(encoding="utf-8")).replace(':"app"', ROLE)


def test_the_production_role_can_do_every_verb_of_an_action(app_url: str) -> None:
    record = DatabaseRecord(app_url, secret=SECRET)
    who = claimant()
    granted = record.claim(call(10), who)

    record.complete(granted.run, granted.key, who.token, result='"paid"')

    assert isinstance(granted, Grant)
    assert isinstance(record.claim(call(10), claimant()), Recorded)
    record.close()


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE c4a_entry SET actor = 'me'",
        "DELETE FROM c4a_entry",
        "TRUNCATE c4a_entry",
        "ALTER TABLE c4a_entry DISABLE TRIGGER ALL",
        "DROP TRIGGER c4a_entry_no_change ON c4a_entry",
        "DELETE FROM c4a_effect",
    ],
)
def test_the_production_role_can_change_nothing_that_is_written(app_url: str, text: str) -> None:
    record = DatabaseRecord(app_url, secret=SECRET)
    record.claim(call(10), claimant())

    with record.executor() as executor, pytest.raises(LedgerError, match=r"role may not do this|42501"):
        executor.trip([Statement(text, {})])

    record.close()
