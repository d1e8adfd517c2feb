"""Outcomes that could not be written: kept beside the record and tried again until the record takes them.

An action that is done must not be forgotten because the database went away in that second. The outcome goes into a
file (0600) in the outbox folder; a background thread tries again with growing pauses, and so does the next `c4a.init`.
Repeating is harmless: every verb carries the claim's token.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
import warnings
import weakref
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from c4a.errors import C4AError, ClaimLost, EffectUnknown, RequestRefused
from c4a.record.types import Record

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0

_all: weakref.WeakSet[Outbox] = weakref.WeakSet()


@dataclass(frozen=True)
class Outcome:
    """One verb call to be repeated: `complete`, `fail` or `release` with the claim's token."""

    verb: Literal["complete", "fail", "release"]
    run: str
    key: str
    token: str = field(repr=False)
    result: str | None = None
    note: str | None = None
    error: str = ""
    nothing_happened: bool = False
    reason: str = "raised"

    def write(self, record: Record) -> str | None:
        """Write it into the record; returns how it went, where the record says so (`done`, `late`, `happened_twice`, …).

        Raises:
            ClaimLost: the token never held this effect.
            LedgerError: the record can't be used now.
        """
        if self.verb == "complete":
            return record.complete(self.run, self.key, self.token, result=self.result, note=self.note)
        if self.verb == "fail":
            return record.fail(self.run, self.key, self.token, error=self.error, nothing_happened=self.nothing_happened, reason=self.reason)
        return record.release(self.run, self.key, self.token)


class Outbox:
    """The outcomes of one record that wait to be written; safe to use from several threads and processes."""

    def __init__(self, record: Record, folder: Path) -> None:
        """Nothing is made or started until an outcome has to be kept."""
        self._record = record
        self._folder = folder
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._in_memory: list[Outcome] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, outcome: Outcome) -> bool:
        """Keep this outcome and try again in the background; False if only memory could keep it (a full disk)."""
        kept = self._save(outcome)
        if not kept:
            with self._lock:
                self._in_memory.append(outcome)
        self._start()
        return kept

    def flush(self) -> int:
        """Try to write everything kept for this record now; returns how many outcomes still wait."""
        waiting = 0
        for path in self._files():
            outcome = self._load(path)
            if outcome is None:
                continue
            if self._written(outcome):
                path.unlink(missing_ok=True)
            else:
                waiting += 1
        with self._lock:
            in_memory, self._in_memory = self._in_memory, []
        still = [outcome for outcome in in_memory if not self._written(outcome)]
        with self._lock:
            self._in_memory.extend(still)
        return waiting + len(still)

    def pending(self) -> bool:
        """True if an earlier process left outcomes here. Costs one listing of a folder that is usually absent."""
        return bool(self._files()) or bool(self._in_memory)

    def resume(self) -> None:
        """Take over what an earlier process left: once now, then in the background."""
        if self.pending() and self.flush():
            self._start()

    def _written(self, outcome: Outcome) -> bool:
        try:
            outcome.write(self._record)
        except (ClaimLost, EffectUnknown, RequestRefused) as error:
            # The record answered and will never take it: saying so once is all that is left to do. A release says that
            # nothing began; that its claim never arrived is the other half of what it was kept for.
            if outcome.verb == "release":
                return True
            warnings.warn(f"an outcome kept for action {outcome.key} was refused by the record: {error}", RuntimeWarning, stacklevel=2)
        except C4AError:
            return False  # unreachable, full, or its key was revoked: all of them can be mended
        return True

    def _files(self) -> list[Path]:
        try:
            return sorted(self._folder.glob("*.json"))
        except OSError:
            return []

    def _save(self, outcome: Outcome) -> bool:
        text = json.dumps({"place": self._record.place, "organization": self._record.organization, **asdict(outcome)})
        path = self._folder / f"{uuid.uuid4().hex}.json"
        draft = path.with_suffix(".draft")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)  # a file ending in .json is always whole
        except OSError:
            return False
        return True

    def _load(self, path: Path) -> Outcome | None:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            place = (told.pop("place"), told.pop("organization"))
            return Outcome(**told) if place == (self._record.place, self._record.organization) else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None  # taken by another process meanwhile, or not ours

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._retry, name="c4a-outbox", daemon=True)
                self._thread.start()
            else:
                self._wake.set()

    def _retry(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._wake.wait(pause)
            if self._wake.is_set():
                self._wake.clear()
                pause = FIRST_PAUSE_SECONDS
            try:
                if self.flush() == 0 and self._retired():
                    return
            except Exception:  # noqa: BLE001, S110 - whatever a driver raises while its database is away, the outcome must not be lost
                pass
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _retired(self) -> bool:
        """Ends this thread unless something was put meanwhile: decided under the lock, so nothing is left behind."""
        with self._lock:
            if self._wake.is_set():
                return False
            self._thread = None
            return True


def _after_fork_in_child() -> None:
    for outbox in list(_all):
        outbox._reset()  # the parent keeps what it had in memory and writes it itself


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
