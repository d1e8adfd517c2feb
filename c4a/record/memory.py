"""What this process remembers of runs and actions, to guess whether a claim asks for something new or for a repeat.

Only a guess about which statement goes first: the record decides. A run that this process started, or whose recorded
actions it has caught up with, asks for new actions; a run resumed from before asks for repeats first.
"""

from __future__ import annotations

from typing import Final

REMEMBERED: Final = 10_000
"""Runs, and actions; when full, all is forgotten and learnt again."""

_keys: dict[tuple[str, str], None] = {}
_runs: dict[tuple[str, str], bool] = {}
"""True once the run is past what was recorded before; a run that stands here has its row."""


def is_repeat(organization: str, run: str, key: str, *, unknown: bool) -> bool:
    """True if the action was likely recorded before, so that a read should go first; `unknown` for a run never met."""
    if (organization, key) in _keys:
        return True
    ahead = _runs.get((organization, run))
    return unknown if ahead is None else not ahead


def has_row(organization: str, run: str) -> bool:
    """True if this process has seen to it that the run has its row."""
    return (organization, run) in _runs


def remember(organization: str, run: str, key: str, *, new: bool) -> None:
    """An action was claimed; `new` if it was not recorded before, or the run was not."""
    for memory in (_keys, _runs):
        if len(memory) >= REMEMBERED:
            memory.clear()
    _keys[organization, key] = None
    _runs[organization, run] = new or _runs.get((organization, run), False)
