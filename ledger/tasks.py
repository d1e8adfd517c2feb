"""What the worker does for the record."""

from __future__ import annotations

from celery import shared_task

from ledger import sweep


@shared_task(name="ledger.lease_sweep")
def lease_sweep() -> int:
    """Put claims whose lease ran out in doubt."""
    return sweep.lease_sweep()
