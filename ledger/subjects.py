"""Entries that belong to no run: what is done to a member, a group, a key or an agent, chained by subject."""

from __future__ import annotations

from collections.abc import Mapping

from c4a.record.freeze import note_subject
from ledger.executor import executor_default


def subject_entry(organization: str, subject: str, what: str, details: Mapping[str, object], *, actor: str) -> None:
    """Write one entry `subject.noted` to the chain of `subject`, in the open transaction.

    `what` says which deed in a word (`member.added`), `details` is JSON-ready.
    """
    note_subject(executor_default(), organization, subject, what=what, by=actor, details=dict(details))
