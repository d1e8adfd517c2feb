"""What is read of the record beyond the library's own reads."""

from __future__ import annotations

from typing import Final

from c4a.record.dialects import Statement
from ledger.executor import executor_default

# Steps from one organization to the next through the chain index: as many look-ups as organizations, whatever the entries.
_NEXT: Final = "SELECT MIN(organization) FROM c4a_entry WHERE organization > :after"


def organizations_recorded() -> list[str]:
    """The ids of all organizations that have an entry; one trip each."""
    found: list[str] = []
    while True:
        row = executor_default().read([Statement(_NEXT, {"after": found[-1] if found else ""})])[0].rows[0]
        if row[0] is None:
            return found
        found.append(str(row[0]))
