"""The server's digest key, which keys secret arguments: its name stands in the record, so that another key is refused.

Under another key the same secret has another digest, so every action that carries one would be new and run again.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Final

from django.conf import settings

from c4a.errors import LedgerError
from c4a.record.dialects import Statement
from ledger.executor import executor_default

_KEEP: Final = "INSERT INTO c4a_meta (name, value) VALUES ('server_digest_key_id', :value) ON CONFLICT (name) DO NOTHING"
_KEPT: Final = "SELECT value FROM c4a_meta WHERE name = 'server_digest_key_id'"


def digest_key_id() -> str:
    """A public name for `C4A_DIGEST_KEY`: 16 hex characters that say nothing about it."""
    return hashlib.sha256(b"c4a/server-digest-key-id/v1\n" + settings.DIGEST_KEY.encode()).hexdigest()[:16]


def digest_key_recorded() -> str | None:
    """The name of the key that agents of this record were given, None if none was. One trip."""
    rows = executor_default().read([Statement(_KEPT, {})])[0].rows
    return str(rows[0][0]) if rows else None


def digest_key_refuse_other() -> None:
    """Note the key's name when an agent is given it for the first time, and refuse another ever after. One trip a process.

    Raises:
        LedgerError: `C4A_DIGEST_KEY` is not the key that agents of this record were given before.
    """
    _refuse_other(digest_key_id())


@cache
def _refuse_other(mine: str) -> None:
    known = str(executor_default().trip([Statement(_KEEP, {"value": mine}), Statement(_KEPT, {})])[1].rows[0][0])
    if known != mine:
        raise LedgerError(
            f"C4A_DIGEST_KEY is another key (id {mine}) than the one this record digests secrets with (id {known}): under it actions with "
            "secret arguments would run again. Set it to the former one; it is never changed."
        )
