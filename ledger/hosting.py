"""Which organizations this database may hold."""

from __future__ import annotations

from typing import Final

from c4a.record.dialects import Statement
from ledger.executor import executor_default

_OWNER: Final = "SELECT value FROM c4a_meta WHERE name = 'organization'"


def direct_organization() -> str | None:
    """The organization whose agents open this database directly, None if all come through the server. One trip.

    Whoever opens the database directly is trusted with the whole of it, so it can hold no other organization.
    """
    rows = executor_default().read([Statement(_OWNER, {})])[0].rows
    return str(rows[0][0]) if rows else None
