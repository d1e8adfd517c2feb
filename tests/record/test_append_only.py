"""Entries are only added: what `tests/walls/test_append_only.py` leaves open, erasure above all."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from c4a.keys import payload_digest
from tests.record.cast import Kept, begun, call

Refused = (sqlite3.IntegrityError, psycopg.IntegrityError)
COLUMNS = "organization, run, key, seq, kind, attempt, approval, payload, salt, payload_digest, actor, recorded_at, prev, digest"


def rows(kept: Kept) -> list[tuple[object, ...]]:
    """Every entry whole."""
    return kept.sql("SELECT * FROM c4a_entry ORDER BY id")


def erase(kept: Kept, digest: str, *, organization: str | None = None, run: str = "", kind: str = "entry.erased") -> None:
    """The entry that names the row to be erased, as the erasing verb will write it."""
    kept.sql(
        f"INSERT INTO c4a_entry ({COLUMNS}) VALUES (:org, :run, :key, 1, :kind, 0, NULL, '{{}}', 's', :pd, 'person:ann', 1, '', 'x')",
        org=organization or kept.record.organization, run=run, key=digest, kind=kind, pd=payload_digest("s", "{}"),
    )  # fmt: skip


def test_an_entry_is_not_changed_by_an_upsert(kept: Kept) -> None:
    begun(kept, call(10))
    before = rows(kept)

    with pytest.raises(Refused):
        kept.sql(
            f"INSERT INTO c4a_entry ({COLUMNS}) SELECT {COLUMNS} FROM c4a_entry WHERE 1 = 1 "
            "ON CONFLICT (organization, run, key, seq) DO UPDATE SET payload = NULL"
        )
    assert rows(kept) == before


def test_an_entry_is_not_replaced_by_its_row_id_either(kept_file: Kept) -> None:
    begun(kept_file, call(10))
    before = rows(kept_file)
    changed = COLUMNS.replace("seq", "7").replace("key,", "'other',")
    for how in ("INSERT OR REPLACE", "REPLACE"):
        with pytest.raises(sqlite3.IntegrityError):
            kept_file.sql(f"{how} INTO c4a_entry (id, {COLUMNS}) SELECT id, {changed} FROM c4a_entry")
    assert rows(kept_file) == before


def test_an_entry_is_not_replaced_by_the_yes_it_spent(kept_file: Kept) -> None:
    from tests.record.cast import approve

    one = call(10, gated=True)
    approve(kept_file.record, one)
    begun(kept_file, one)
    before = rows(kept_file)
    changed = COLUMNS.replace("key,", "'other',")
    with pytest.raises(sqlite3.IntegrityError):
        kept_file.sql(f"INSERT OR REPLACE INTO c4a_entry ({COLUMNS}) SELECT {changed} FROM c4a_entry WHERE kind = 'effect.running'")
    assert rows(kept_file) == before


def test_erasing_takes_payload_and_salt_once_an_entry_names_the_row_and_the_chain_holds(kept: Kept) -> None:
    begun(kept, call(10))
    digest = kept.record.entries()[0].digest
    erase(kept, digest)

    kept.sql("UPDATE c4a_entry SET payload = NULL, salt = NULL WHERE digest = :digest", digest=digest)

    assert kept.sql("SELECT payload, salt FROM c4a_entry WHERE digest = :digest", digest=digest) == [(None, None)]
    chain = [finding for finding in kept.record.verify() if "was changed" in finding.problem and finding.key == call(10).key]
    assert chain == []


@pytest.mark.parametrize(
    "more", ["actor = 'x'", "digest = 'x'", "recorded_at = 1", "kind = 'effect.done'", "payload_digest = 'x'", "prev = 'x'"]
)
def test_erasing_takes_nothing_else_along(kept: Kept, more: str) -> None:
    begun(kept, call(10))
    digest = kept.record.entries()[0].digest
    erase(kept, digest)
    before = rows(kept)
    with pytest.raises(Refused):
        kept.sql(f"UPDATE c4a_entry SET payload = NULL, salt = NULL, {more} WHERE digest = :digest", digest=digest)
    assert rows(kept) == before


@pytest.mark.parametrize("half", ["payload = NULL", "salt = NULL", "payload = '{}', salt = NULL"])
def test_half_an_erasure_is_refused(kept: Kept, half: str) -> None:
    begun(kept, call(10))
    digest = kept.record.entries()[0].digest
    erase(kept, digest)
    with pytest.raises(Refused):
        kept.sql(f"UPDATE c4a_entry SET {half} WHERE digest = :digest", digest=digest)


def test_an_erasing_entry_covers_its_own_row_only(kept: Kept) -> None:
    begun(kept, call(10))
    begun(kept, call(11))
    first, second = kept.record.entries()
    erase(kept, first.digest)
    for options in ({"organization": "org_other"}, {"run": "run-1"}, {"kind": "subject.noted", "run": "x"}):
        erase(kept, second.digest, **options)
    with pytest.raises(Refused):
        kept.sql("UPDATE c4a_entry SET payload = NULL, salt = NULL WHERE digest = :digest", digest=second.digest)


def test_a_second_entry_at_one_place_is_refused_in_every_organization_apart(kept: Kept) -> None:
    begun(kept, call(10))
    with pytest.raises(Refused):
        kept.sql(f"INSERT INTO c4a_entry ({COLUMNS}) SELECT {COLUMNS} FROM c4a_entry")
    kept.sql(f"INSERT INTO c4a_entry ({COLUMNS}) SELECT {COLUMNS.replace('organization', chr(39) + 'o2' + chr(39))} FROM c4a_entry")
    assert kept.count() == 2
