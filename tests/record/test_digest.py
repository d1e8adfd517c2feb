"""The digest of an entry is the same wherever it is computed: in Python, in SQLite through Python, in PostgreSQL's own function."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from c4a.record.entries import entry_digest
from tests.record.cast import Kept

# What a column of either database can hold.
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=40)
ODD = [
    "",
    "a",
    "é",
    "😀",
    "e\u0301",
    "10:abc",
    "1",
    ":",
    "\n",
    "\t\\x",
    "x" * 5000,
    "中" * 300,
    "\u200b",
    "\ufeff",
    "'",
    '"',
    "%s",
    "{now}",
    ":name",
]
CALL = "SELECT c4a_entry_digest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
Fields = tuple[str, str, str, int, str, int, str | None, str, str, int, str]


def by_database(address: str, rows: list[Fields]) -> list[str]:
    """What PostgreSQL says."""
    with psycopg.connect(address) as connection:
        return [str(connection.execute(CALL, row).fetchone()[0]) for row in rows]  # type: ignore[index]


def test_postgresql_and_python_agree_on_odd_texts(shared_database: str) -> None:
    rows: list[Fields] = [(text, text, text, 1, text, 0, text, text, text, 10**15, text) for text in ODD]
    rows += [("o", "r", "k", 2**62, "kind", 2**40, None, "p", "a", 2**62, "")]
    rows += [("o", "r", "k", 1, "kind", 1, text, "p", "a", 1, "") for text in ODD]

    assert by_database(shared_database, rows) == [entry_digest(*row) for row in rows]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    row=st.tuples(
        TEXT, TEXT, TEXT, st.integers(0, 2**62), TEXT, st.integers(0, 2**62), st.none() | TEXT, TEXT, TEXT, st.integers(0, 2**62), TEXT
    )
)
def test_postgresql_and_python_agree_on_any_text(digest_connection: psycopg.Connection[tuple[str]], row: Fields) -> None:
    found = digest_connection.execute(CALL, row).fetchone()

    assert found == (entry_digest(*row),)


@pytest.fixture
def digest_connection(shared_database: str) -> object:
    """One connection for all examples."""
    with psycopg.connect(shared_database, autocommit=True) as connection:
        yield connection


def test_no_two_entries_share_a_text_by_moving_a_boundary() -> None:
    base: Fields = ("o", "ab", "c", 1, "k", 1, None, "p", "a", 1, "")
    moved: Fields = ("o", "a", "bc", 1, "k", 1, None, "p", "a", 1, "")
    digits: Fields = ("o", "ab", "c", 11, "k", 1, None, "p", "a", 1, "")

    assert len({entry_digest(*row) for row in (base, moved, digits)}) == 3


def test_every_field_takes_part() -> None:
    base: Fields = ("o", "r", "k", 1, "kind", 1, "yes", "p", "a", 1, "prev")
    changed = [
        (*base[:place], value + 1 if isinstance(value, int) else f"{value}x", *base[place + 1 :]) for place, value in enumerate(base)
    ]

    assert len({entry_digest(*row) for row in (base, *changed)}) == len(base) + 1  # type: ignore[arg-type]


def test_ascii_and_other_texts_go_the_same_way() -> None:
    """The short way for ASCII must not differ from the long one."""
    import hashlib

    row: Fields = ("org", "run", "k", 3, "effect.done", 2, None, "p", "agent:x", 5, "prev")
    text = "3:org3:run1:k1:311:effect.done1:20:1:p7:agent:x1:54:prev"

    assert entry_digest(*row) == hashlib.sha256(f"c4a/entry/v1\n{text}".encode()).hexdigest()
    assert entry_digest("é", *row[1:]) == hashlib.sha256(f"c4a/entry/v1\n2:é{text[5:]}".encode()).hexdigest()


def test_a_file_computes_it_by_the_same_function(kept_file: Kept) -> None:
    row: Fields = ("é", "r", "k", 1, "kind", 1, None, "p", "a", 1, "")
    names = [f"p{place}" for place in range(len(row))]
    found = kept_file.sql(
        f"SELECT c4a_entry_digest({', '.join(f':{name}' for name in names)})".replace("p10", "ten").replace(":p", ":p"),
        **{("ten" if name == "p10" else name): value for name, value in zip(names, row, strict=True)},
    )

    assert found == [(entry_digest(*row),)]
