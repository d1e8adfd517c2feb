"""Opening the record a command names, without ever making one, and finding an action in it by the first characters of its key."""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from c4a import connect
from c4a.errors import EffectUnknown, LedgerError, RecordDamaged, RequestRefused
from c4a.liveness import DEAD, judge
from c4a.record import schema, sqlite
from c4a.record.types import Effect, Record
from c4a.record.verbs import VerbRecord

LIST_LIMIT: Final = 1000
"""The most actions that one command lists."""
LEAST_PREFIX: Final = 4
_PREFIX: Final = re.compile(rf"[0-9a-f]{{{LEAST_PREFIX},64}}")
_SQLITE_HEADER: Final = b"SQLite format 3\0"


@dataclass(frozen=True)
class Opened:
    """A record in use, and who uses it."""

    record: Record
    actor: str


def add_record(parser: argparse.ArgumentParser) -> None:
    """The RECORD argument of a command, by default the file that `c4a.init()` opens."""
    parser.add_argument(
        "record", nargs="?", default=connect.DEFAULT_PATH, metavar="RECORD", help="a file, postgresql://… or https://… (%(default)s)"
    )


def is_file(address: str) -> bool:
    """True if the address names a local file."""
    return "://" not in address


@contextmanager
def opened(address: str) -> Iterator[Opened]:
    """Open a record that exists.

    Raises:
        LedgerError: there is none, it is another program's, or it can't be used; the message says what to do.
    """
    if is_file(address):
        file_check(Path(address))
        connect.init(address)
    elif address.startswith(("https://", "http://")):
        key = os.environ.get("C4A_KEY")
        if not key:
            raise LedgerError(f"{address} is a server: put the key it gave out into C4A_KEY")
        connect.init(address, key=key)
    else:
        connect.init(address)
    connection = connect.connection()
    try:
        yield Opened(connection.record, connection.actor)
    finally:
        connection.record.close()


def file_check(path: Path) -> None:
    """Raise `LedgerError` unless this file is a record of an agent; nothing is made or changed."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_SQLITE_HEADER))
    except FileNotFoundError:
        raise LedgerError(
            f"there is no record at {path}: name the file that c4a.init() opens (.c4a/ledger.sqlite in the agent's folder)"
        ) from None
    except OSError as error:
        raise LedgerError(f"{path} can't be read ({error.strerror}): name a record's file") from None
    if head != _SQLITE_HEADER:
        raise RecordDamaged(f"{path} is not a record: expected a SQLite file, got one that begins with {head[:8]!r}")
    _refuse_strange(path)


def _refuse_strange(path: Path) -> None:
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            if not schema.version_of(connection):
                sqlite.refuse_foreign(connection, path)
                raise LedgerError(f"{path} is an empty database, not a record: name the file that c4a.init() opens")
            if connection.execute("SELECT 1 FROM c4a_meta WHERE name = 'server'").fetchone():
                raise LedgerError(
                    f"{path} belongs to a server that may host several organizations: name the server's https:// address instead"
                )
        finally:
            connection.close()
    except sqlite3.Error:
        pass  # opening it in earnest says what is wrong with it


def note_the_gone(place: Opened) -> None:
    """Put in doubt what a lapsed lease or a process gone from this machine leaves behind, as the next claim would."""
    record = place.record
    if not isinstance(record, VerbRecord):
        return  # a server's beat does it
    record.sweep()
    for effect in [*record.effects(state="running", limit=LIST_LIMIT), *record.effects(state="in_doubt", limit=LIST_LIMIT)]:
        if effect.reason in (None, "lapsed", "cancelled") and judge(effect.holder) is DEAD:
            record.declare_dead(effect.run, effect.key, attempt=effect.attempt, holder=effect.holder, actor=place.actor)


def effect_named(record: Record, prefix: str) -> Effect:
    """The one action whose key begins with these characters.

    Raises:
        RequestRefused: not hexadecimal, too short, or several keys begin so.
        EffectUnknown: no key begins so.
    """
    wanted = prefix.strip().lower()
    if not _PREFIX.fullmatch(wanted):
        raise RequestRefused(
            f"expected {LEAST_PREFIX} to 64 hexadecimal characters of an action's key, got {prefix!r}: `c4a doubt` lists them"
        )
    keys = _keys_starting(record, wanted)
    if len(keys) > 1:
        raise RequestRefused(f"several keys begin with {wanted}: {', '.join(key[:16] for key in keys)}; give more characters", keys=keys)
    effect = record.effect(keys[0]) if keys else None
    if effect is None:
        raise EffectUnknown(f"no action in {record.place} has a key that begins with {wanted}", key=wanted)
    return effect


def _keys_starting(record: Record, prefix: str) -> list[str]:
    if isinstance(record, VerbRecord):
        return record.keys_starting(prefix)
    if len(prefix) == 64:
        return [prefix]
    # A server lists no keys by prefix; what a person wants to name here is in doubt.
    return [effect.key for effect in record.effects(state="in_doubt", limit=LIST_LIMIT) if effect.key.startswith(prefix)]
