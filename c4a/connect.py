"""`c4a.init`: which record this process uses - a local file, a shared database or a server."""

from __future__ import annotations

import getpass
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from c4a import secrets_beside
from c4a.errors import LedgerError
from c4a.heartbeat import Heartbeat
from c4a.outbox import Outbox
from c4a.record.types import MAX_IDENTIFIER_BYTES, Record

if TYPE_CHECKING:
    from c4a.record.verbs import VerbRecord

DEFAULT_PATH: Final = ".c4a/ledger.sqlite"
SIGNING_FILE: Final = "secret"
FORMER_FILE: Final = "secret-former"
"""Beside a local record: the secret that signs, and those it was rotated away from."""
_DATABASE: Final = ("postgresql://", "postgres://")
_SERVER: Final = ("https://", "http://")


@dataclass(frozen=True)
class Connection:
    """The record in use and what goes with it."""

    record: Record
    digest_key: bytes | None = field(repr=False)
    actor: str
    heartbeat: Heartbeat
    outbox: Outbox


_current: Connection | None = None


def init(
    path: str | os.PathLike[str] = DEFAULT_PATH,
    secret: str | bytes | None = None,
    replay_from: object = None,
    old_secrets: Sequence[str | bytes] | None = None,
    allow_network_drive: bool = False,
    *,
    key: str | None = None,
    digest_key: str | bytes | None = None,
) -> None:
    """Open the record that every action of this process goes to; a second call replaces it.

    Args:
        path: a file (made with its folder, secret and digest key if absent), `postgresql://…` (all agents of one organization
            share it; the tables must exist), or `https://…` (a C4A server).
        secret: signs approvals; else `C4A_SECRET`, else for a file the `secret` beside it. Required for a database.
        replay_from: arrives with replay.
        old_secrets: secrets rotated away from, still good for reading; else `C4A_OLD_SECRETS`, separated by commas. For a file
            also those that `c4a rotate` put into `secret-former` beside it.
        allow_network_drive: open a file on a network drive, whose locks can't be trusted.
        key: the agent key of a server, `c4a_…`.
        digest_key: keys `c4a.Secret` arguments; else `C4A_DIGEST_KEY`, else for a file the `digest-key` beside it.

    Raises:
        LedgerError: the record can't be used safely; the message says why and what to do.
    """
    global _current
    if replay_from is not None:
        raise LedgerError("replay_from= arrives with replay in a later version: leave it out")
    address = os.fspath(path)
    if address.startswith(_SERVER):
        opened = _server(address, key)
    elif key is not None:
        raise LedgerError(f"key= is the agent key of a server, but {_shown(address)} is not one: leave it out, or give an https:// address")
    elif address.startswith(_DATABASE):
        opened = _database(address, secret, old_secrets, digest_key)
    elif "://" in address:
        raise LedgerError(f"expected a file path, postgresql:// or https://, got {_shown(address)}")
    else:
        opened = _file(Path(address), secret, old_secrets, digest_key, allow_network_drive)
    opened.outbox.resume()
    former, _current = _current, opened
    if former is not None:
        former.record.close()  # idle connections only: actions that still run in it finish there


def connection() -> Connection:
    """What `c4a.init` opened.

    Raises:
        LedgerError: `c4a.init` was not called in this process.
    """
    if _current is None:
        raise LedgerError('no record is open: call c4a.init() first (or c4a.init("postgresql://…") or c4a.init("https://…", key="c4a_…"))')
    return _current


def current_record() -> Record:
    """The record in use. Raises as `connection`."""
    return connection().record


def use_record(record: Record, *, digest_key: bytes | None = None, outbox: Path | None = None) -> None:
    """Use a record that is open already, instead of `c4a.init`."""
    global _current  # noqa: PLW0603 - as above
    _current = _connected(record, digest_key, outbox or Path(".c4a/outbox"))


def _file(
    path: Path,
    secret: str | bytes | None,
    old_secrets: Sequence[str | bytes] | None,
    digest_key: str | bytes | None,
    allow_network_drive: bool,
) -> Connection:
    from c4a.record.sqlite import FileRecord

    folder = path.parent
    _make_folder(folder)
    exists = path.exists() and path.stat().st_size > 0
    signing = secrets_beside.given_secret(secret, "C4A_SECRET", "the secret")
    if signing is None:
        signing = secrets_beside.secret_in_file(folder / SIGNING_FILE, record_exists=exists, what="the secret")
    digesting = secrets_beside.given_secret(digest_key, "C4A_DIGEST_KEY", "the digest key")
    if digesting is None:
        digesting = secrets_beside.secret_in_file(folder / "digest-key", record_exists=exists, what="the digest key")
    former = (*secrets_beside.old_secrets(old_secrets), *secrets_beside.kept_secrets(folder / FORMER_FILE))
    record = FileRecord(path, secret=signing, old_secrets=former, allow_network_drive=allow_network_drive)
    _check_digest_key(record, digesting)
    return _connected(record, digesting, folder / "outbox")


def _database(
    address: str, secret: str | bytes | None, old_secrets: Sequence[str | bytes] | None, digest_key: str | bytes | None
) -> Connection:
    signing = secrets_beside.given_secret(secret, "C4A_SECRET", "the secret")
    if signing is None:
        raise LedgerError(
            "a shared database needs secret= (or C4A_SECRET), the same for every agent: a local file would differ on each machine"
        )
    from c4a.record.postgres import DatabaseRecord

    record = DatabaseRecord(address, secret=signing, old_secrets=secrets_beside.old_secrets(old_secrets))
    digesting = secrets_beside.given_secret(digest_key, "C4A_DIGEST_KEY", "the digest key")
    _check_digest_key(record, digesting)
    return _connected(record, digesting, Path(".c4a/outbox"))


def _server(address: str, key: str | None) -> Connection:
    if not key:
        raise LedgerError('a server needs the agent key it gave out: c4a.init("https://…", key="c4a_…")')
    from c4a.record.http import ServerRecord

    record: Any = ServerRecord(address, key)
    # The server hands its agents the digest key of their organization, so that all of them key a secret alike.
    return _connected(record, getattr(record, "digest_key", None), Path(".c4a/outbox"))


def _connected(record: Record, digest_key: bytes | None, outbox: Path) -> Connection:
    return Connection(record, digest_key, _local_actor(), Heartbeat(record), Outbox(record, outbox))


def _check_digest_key(record: VerbRecord, digest_key: bytes | None) -> None:
    """The record keeps the fingerprint of the key its secrets were digested with; another key would make new actions of old ones."""
    mine = None if digest_key is None else hashlib.sha256(b"c4a/digest-key-id/v1\n" + digest_key).hexdigest()[:16]
    known = record.meta("digest_key_id", mine)
    if known == mine:
        return
    record.close()
    got = "none" if mine is None else f"one with id {mine}"
    raise LedgerError(
        f"{record.place} digests secrets with the key with id {known}, got {got}: give the digest key that belongs to it "
        "(digest_key=, C4A_DIGEST_KEY, or for a file the `digest-key` beside it). It is never rotated."
    )


def _make_folder(folder: Path) -> None:
    try:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"{folder} can't be made ({error}): give c4a.init() a path in a folder it may write to") from None


def _local_actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user often has no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"local:{user}".encode("ascii", "replace").decode()[:MAX_IDENTIFIER_BYTES]


def _shown(address: str) -> str:
    """An address without what may be a password."""
    scheme, found, rest = address.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else address
