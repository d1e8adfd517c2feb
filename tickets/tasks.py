"""What the worker does for tickets."""

from __future__ import annotations

from celery import shared_task

from tickets import sweep


@shared_task(name="tickets.ticket_sweep")
def ticket_sweep() -> int:
    """Close tickets that nobody answered in time."""
    return sweep.ticket_sweep()
