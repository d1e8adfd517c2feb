"""What `reconcile=` may answer, and what the last action of this context came to."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Answer(Enum):
    """A look-up outside that found no result: the action did not happen, or nobody can tell."""

    NOT_DONE = "not_done"
    UNKNOWN = "unknown"


NOT_DONE: Final = Answer.NOT_DONE
"""`reconcile=` looked and the action did not happen: it runs once more."""
UNKNOWN: Final = Answer.UNKNOWN
"""`reconcile=` could not tell: the action stays in doubt."""


@dataclass(frozen=True)
class Happened:
    """`reconcile=` found that the action happened; `value` is its result, which may be None."""

    value: Any = None


@dataclass(frozen=True)
class LastOutcome:
    """What the last action of this context that ended came to."""

    key: str
    """The effect key, 64 hex characters."""
    attempt: int
    replayed: bool
    """True if the recorded result was returned and nothing ran."""
    first_done_at: int | None
    """When it was done, in µs since 1970 by the record's clock; None if it ran just now."""


_last: ContextVar[LastOutcome | None] = ContextVar("c4a_last_outcome", default=None)


def last_outcome() -> LastOutcome | None:
    """What the last action that ended in this thread or task came to; None before the first one. One in doubt has not ended."""
    return _last.get()


def note_outcome(key: str, attempt: int, *, replayed: bool, first_done_at: int | None) -> None:
    """Remember it for `last_outcome` in this context."""
    _last.set(LastOutcome(key, attempt, replayed, first_done_at))
