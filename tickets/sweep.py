"""The ticket sweep: a question that nobody answered in time is closed by an entry, which also wakes whoever waits for it."""

from __future__ import annotations

from typing import Final

from c4a.record import tickets
from ledger.executor import executor_default

BATCHES: Final = 50
"""At most this many batches in one go; the next sweep, seconds later, goes on."""


def ticket_sweep() -> int:
    """Close every open ticket whose time is over, in all organizations; returns how many were. Safe twice at once."""
    swept = 0
    for _ in range(BATCHES):
        found = tickets.expire(executor_default())
        swept += found
        if not found:
            break
    return swept
