# ruff: noqa: DJ001  (the record's own SQL says where a text may be NULL, and means it)
"""The record's tables as Django sees them: to read only. The library's SQL owns them, so `managed = False` and no foreign keys.

A test compares every field here with the real columns on both databases.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models


class RecordIsReadOnly(TypeError):
    """A row of the record was to be written through the ORM; only the record's verbs write."""


def _refuse(deed: str) -> NoReturn:
    raise RecordIsReadOnly(
        f"The record is written by its verbs alone, not by {deed}: use the functions of c4a.record through ledger.executor."
    )


class RecordQuerySet[Row: models.Model](models.QuerySet[Row]):
    """Reads; every write is refused."""

    def create(self, **kwargs: Any) -> NoReturn:
        """Refused."""
        _refuse("create()")

    def bulk_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        _refuse("bulk_create()")

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        _refuse("bulk_update()")

    def update(self, **kwargs: Any) -> NoReturn:
        """Refused."""
        _refuse("update()")

    def delete(self) -> NoReturn:
        """Refused."""
        _refuse("delete()")


class RecordRow(models.Model):
    """What all tables of the record share."""

    id = models.BigIntegerField(primary_key=True)
    organization = models.TextField()
    run = models.TextField()

    objects = RecordQuerySet.as_manager()

    class Meta:
        abstract = True
        managed = False

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        _refuse("save()")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        _refuse("delete()")


class RecordHead(RecordRow):
    """What the heads of all chains share."""

    key = models.TextField()
    seq = models.BigIntegerField()
    last_at = models.BigIntegerField()
    prev_digest = models.TextField()
    last_digest = models.TextField()
    last_payload_digest = models.TextField()

    class Meta(RecordRow.Meta):
        abstract = True


class Entry(RecordRow):
    """One row of the append-only record."""

    key = models.TextField()
    seq = models.BigIntegerField()
    kind = models.TextField()
    attempt = models.BigIntegerField()
    approval = models.TextField(null=True)
    payload = models.TextField(null=True)
    salt = models.TextField(null=True)
    payload_digest = models.TextField()
    actor = models.TextField()
    recorded_at = models.BigIntegerField()
    prev = models.TextField()
    digest = models.TextField()

    class Meta(RecordRow.Meta):
        db_table = "c4a_entry"
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"{self.kind} #{self.seq} of {self.key[:12]}"


class Effect(RecordHead):
    """The current state of one action that must happen once."""

    tool = models.TextField()
    state = models.TextField()
    attempt = models.BigIntegerField()
    epoch = models.BigIntegerField()
    call_digest = models.TextField()
    args_digest = models.TextField()
    explicit_key = models.TextField(null=True)
    parent = models.TextField(null=True)
    approval = models.TextField(null=True)
    reason = models.TextField(null=True)
    error = models.TextField(null=True)
    note = models.TextField(null=True)
    settled_by = models.TextField(null=True)
    actor = models.TextField()
    token_hash = models.TextField()
    holder = models.TextField()
    lease_until = models.BigIntegerField()
    waited = models.BigIntegerField()
    asker_hash = models.TextField(null=True)
    asker_until = models.BigIntegerField(null=True)
    first_at = models.BigIntegerField()
    done_at = models.BigIntegerField(null=True)
    happened_twice = models.BigIntegerField()
    intent_seq = models.BigIntegerField()
    result_seq = models.BigIntegerField(null=True)

    class Meta(RecordHead.Meta):
        db_table = "c4a_effect"
        verbose_name = "action"

    def __str__(self) -> str:
        return f"{self.tool} ({self.state.replace('_', ' ')})"


class Gate(RecordHead):
    """The latest answer for one organization, run and call."""

    tool = models.TextField()
    answer = models.TextField(null=True)
    reason = models.TextField(null=True)
    answered_by = models.TextField(null=True)
    answered_at = models.BigIntegerField(null=True)

    class Meta(RecordHead.Meta):
        db_table = "c4a_gate"

    def __str__(self) -> str:
        return f"{self.tool}: {self.answer or 'no answer'}"


class Approval(RecordRow):
    """One yes for exactly one action; spent by one effect."""

    approval = models.TextField()
    key = models.TextField()
    tool = models.TextField()
    explicit_key = models.TextField(null=True)
    state = models.TextField()
    approved_by = models.TextField()
    approved_at = models.BigIntegerField()
    expires_at = models.BigIntegerField(null=True)
    mac = models.TextField()
    key_id = models.TextField()
    gate_seq = models.BigIntegerField()
    spent_by = models.TextField(null=True)

    class Meta(RecordRow.Meta):
        db_table = "c4a_approval"

    def __str__(self) -> str:
        return f"{self.tool} ({self.state})"


class Ticket(RecordHead):
    """One question to people about exactly one action."""

    slot = models.TextField()
    number = models.BigIntegerField()
    tool = models.TextField()
    call_digest = models.TextField()
    explicit_key = models.TextField(null=True)
    state = models.TextField()
    asked_by = models.TextField()
    asked_at = models.BigIntegerField()
    expires_at = models.BigIntegerField()
    why = models.TextField()
    mac = models.TextField()
    key_id = models.TextField()
    decided_by = models.TextField(null=True)
    decided_at = models.BigIntegerField(null=True)
    reason = models.TextField(null=True)
    approval = models.TextField(null=True)
    waited = models.BigIntegerField()

    class Meta(RecordHead.Meta):
        db_table = "c4a_ticket"

    def __str__(self) -> str:
        return f"{self.tool} ({self.state})"


class Run(RecordHead):
    """One agent conversation, thread or job."""

    started_by = models.TextField()
    started_at = models.BigIntegerField()
    frozen_at = models.BigIntegerField(null=True)
    frozen_by = models.TextField(null=True)
    frozen_note = models.TextField(null=True)

    class Meta(RecordHead.Meta):
        db_table = "c4a_run"

    def __str__(self) -> str:
        return self.run


class Subject(RecordHead):
    """Whose changes are chained outside any run: an agent, a member, a group, a key."""

    frozen_at = models.BigIntegerField(null=True)
    frozen_by = models.TextField(null=True)
    frozen_note = models.TextField(null=True)

    class Meta(RecordHead.Meta):
        db_table = "c4a_subject"

    def __str__(self) -> str:
        return self.key
