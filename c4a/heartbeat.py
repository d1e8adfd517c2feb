"""Keeps this process's claims alive: one daemon thread a record, away from the hot path.

Holding a claim costs a dict write. Claims younger than a beat are not touched at all, so short actions never cost a
heartbeat.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import NamedTuple

from c4a.record.types import HEARTBEAT_SECONDS, Record

_BEATS_PER_LEASE = 3
"""A lease outlives two lost beats, as the default 15 s with a beat every 5 s does."""

_all: weakref.WeakSet[Heartbeat] = weakref.WeakSet()


class _Held(NamedTuple):
    run: str
    key: str
    lease_seconds: float
    since: float


class Heartbeat:
    """Extends the leases of held claims every `HEARTBEAT_SECONDS`, or sooner where a tool's lease is shorter."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._claims: dict[str, _Held] = {}
        self._beat_seconds = HEARTBEAT_SECONDS
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()

    def hold(self, token: str, run: str, key: str, lease_seconds: float) -> None:
        """Keep this claim alive from now on."""
        self._claims[token] = _Held(run, key, lease_seconds, time.monotonic())
        if lease_seconds < self._beat_seconds * _BEATS_PER_LEASE:
            self._beat_seconds = max(lease_seconds / _BEATS_PER_LEASE, 0.01)
            self._wake.set()
        if self._thread is None:
            self._start()

    def drop(self, token: str) -> None:
        """The claim has ended."""
        self._claims.pop(token, None)

    def holds(self) -> int:
        """How many claims this process keeps alive now."""
        return len(self._claims)

    def beat(self) -> None:
        """Extend every lease older than a beat, in one trip for each length of lease."""
        now = time.monotonic()
        due: dict[float, list[tuple[str, str, str]]] = {}
        for token, held in list(self._claims.items()):
            if now - held.since >= min(HEARTBEAT_SECONDS, held.lease_seconds / _BEATS_PER_LEASE) * 0.9:
                due.setdefault(held.lease_seconds, []).append((held.run, held.key, token))
        for lease_seconds, claims in due.items():
            lost = set(self._record.heartbeat(claims, lease_seconds))
            for _, key, token in claims:
                if key in lost:
                    self.drop(token)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                # The thread holds no strong reference between beats, so a record that is replaced can be collected.
                self._thread = threading.Thread(
                    target=_beat_for_ever, args=(weakref.ref(self), self._wake), name="c4a-heartbeat", daemon=True
                )
                self._thread.start()


def _beat_for_ever(reference: weakref.ref[Heartbeat], wake: threading.Event) -> None:
    while True:
        heartbeat = reference()
        if heartbeat is None:
            return
        seconds = heartbeat._beat_seconds
        del heartbeat
        wake.wait(seconds)
        wake.clear()
        heartbeat = reference()
        if heartbeat is None:
            return
        try:
            heartbeat.beat()
        except Exception:  # noqa: BLE001, S110 - an unreachable record may be back at the next beat; the lease allows for two lost ones
            pass
        del heartbeat


def _after_fork_in_child() -> None:
    # The claims belong to the parent's bodies and its thread did not survive the fork; neither did the state of any lock.
    for heartbeat in list(_all):
        heartbeat._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
