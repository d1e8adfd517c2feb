"""Freeze: a person stops a run or an agent; every later claim is refused until it is thawed."""

from __future__ import annotations

from typing import Any, Final

from c4a.errors import RequestRefused
from c4a.keys import identifier
from c4a.record.dialects import LOCK_RUN, Executor, Statement, run_lock
from c4a.record.entries import (
    ADVANCE_BARE,
    APPEND_RUN,
    APPEND_SUBJECT,
    MOVED_AT,
    entry_params,
    moved,
    not_yet_said,
    payload_text,
    plain_text,
)

OPEN_RUN: Final = """
INSERT INTO c4a_run (organization, run, key, started_by, started_at, seq, last_at, prev_digest, last_digest, last_payload_digest)
VALUES (:organization, :run, 'run', :actor, {now}, 0, 0, '', '', '')
ON CONFLICT (organization, run) DO NOTHING"""

NOT_FROZEN: Final = """
    NOT EXISTS (SELECT 1 FROM c4a_run AS f WHERE f.organization = :organization AND f.run = :run AND f.frozen_at IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM c4a_subject AS f WHERE f.organization = :organization AND f.key = :actor AND f.frozen_at IS NOT NULL)"""

_OPEN_SUBJECT: Final = """
INSERT INTO c4a_subject (organization, run, key, seq, last_at, prev_digest, last_digest, last_payload_digest)
VALUES (:organization, '', :key, 0, 0, '', '', '')
ON CONFLICT (organization, key) DO NOTHING"""

_FROZEN: Final = f"frozen_at = {MOVED_AT}, frozen_by = :actor, frozen_note = :note"
_THAWED: Final = "frozen_at = NULL, frozen_by = NULL, frozen_note = NULL"


def freeze(executor: Executor, organization: str, *, run: str | None = None, agent: str | None = None, by: str, note: str = "") -> None:
    """Stop a run, or an agent in all its runs (`agent` is an actor such as `agent:billing`). One trip.

    Raises:
        RequestRefused: not exactly one of `run` and `agent`, or nobody is named.
    """
    _write(executor, organization, run, agent, by, note, frozen=True)


def thaw(executor: Executor, organization: str, *, run: str | None = None, agent: str | None = None, by: str, note: str = "") -> None:
    """Let a frozen run or agent go on. One trip; raises as `freeze`."""
    _write(executor, organization, run, agent, by, note, frozen=False)


def note_subject(executor: Executor, organization: str, subject: str, *, what: str, by: str, details: dict[str, Any]) -> None:
    """Record a change to who may do what (a role, a group, a policy), chained by its subject. One trip."""
    params = entry_params("subject.noted", payload_text({"what": what, **details}), by) | _subject(organization, subject)
    executor.trip([Statement(_OPEN_SUBJECT, params), *_move("c4a_subject", "", params)])


def _write(executor: Executor, organization: str, run: str | None, agent: str | None, by: str, note: str, *, frozen: bool) -> None:
    if (run is None) == (agent is None):
        raise RequestRefused(f"name either a run or an agent, got run={run!r} and agent={agent!r}")
    if not by.strip():
        raise RequestRefused("stopping and letting go need a name: say who with by=…")
    identifier(by, "by")
    identifier(run if agent is None else agent, "run" if agent is None else "agent")
    note = plain_text(note)
    what = "frozen" if frozen else "thawed"
    assignments = _FROZEN if frozen else _THAWED
    where = "frozen_at IS NULL" if frozen else "frozen_at IS NOT NULL"
    if agent is not None:
        params = entry_params(f"subject.{what}", payload_text({"note": note}), by) | _subject(organization, agent) | {"note": note}
        executor.trip([Statement(_OPEN_SUBJECT, params), *_move("c4a_subject", assignments, params, where)])
        return
    assert run is not None  # noqa: S101  (one of the two is given, checked above; for the type checker)
    params = entry_params(f"run.{what}", payload_text({"note": note}), by) | {
        "organization": organization, "run": run, "key": "run", "note": note, **run_lock(organization, run),
    }  # fmt: skip
    executor.trip([Statement(LOCK_RUN, params), Statement(OPEN_RUN, params), *_move("c4a_run", assignments, params, where)])


def _move(head: str, assignments: str, params: dict[str, Any], where: str = "1 = 1") -> list[Statement]:
    append_by = APPEND_RUN if head == "c4a_run" else APPEND_SUBJECT
    return moved(head, assignments, f"{where} AND {not_yet_said(head)}", params, advance_by=ADVANCE_BARE, append_by=append_by)


def _subject(organization: str, subject: str) -> dict[str, Any]:
    return {"organization": organization, "run": "", "key": subject}
