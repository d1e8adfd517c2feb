"""A small bounded pool of connections: last used first, callers wait for a free one, and a forked child starts with none."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from c4a.errors import RecordUnreachable

T = TypeVar("T")

_abandoned: list[object] = []
"""Connections inherited over a fork: closing one would speak on the parent's socket, so they are kept and never touched."""

FORK_SECONDS = 5.0
"""How long a fork waits for connections in use; a verb takes milliseconds."""


class Pool(Generic[T]):
    """At most `size` connections, made when needed. Thread-safe and fork-safe."""

    def __init__(
        self, make: Callable[[], T], close: Callable[[T], None], *, size: int, wait_seconds: float = 30.0, close_before_fork: bool = False
    ) -> None:
        self._make = make
        self._close = close
        self._size = size
        self._wait_seconds = wait_seconds
        self._close_before_fork = close_before_fork
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[T] = []
        self._made = 0
        self._closed = False
        self._forking = False

    def before_fork(self) -> None:
        """Where connections must not be carried over a fork: wait for those in use, close all, and hold the pool until the fork is done.

        SQLite keeps its file locks per process, in memory: a child that inherits a lock another thread held would find the file
        locked for ever, and one that inherits an idle connection would believe it holds locks that only its parent has.
        """
        if not self._close_before_fork or not self._changed.acquire(timeout=FORK_SECONDS):
            return
        self._forking = True
        deadline = time.monotonic() + FORK_SECONDS
        while self._made > len(self._idle) and time.monotonic() < deadline:
            self._changed.wait(0.01)
        self._made -= len(self._idle)
        while self._idle:
            self._close(self._idle.pop())

    def after_fork_in_parent(self) -> None:
        """Let everybody borrow again."""
        if self._forking:
            self._forking = False
            self._changed.notify_all()
            self._changed.release()

    def after_fork(self) -> None:
        """In a child: forget the parent's connections, and a lock that another of its threads may have held."""
        _abandoned.extend(self._idle)
        self._reset()

    def connection(self) -> Borrowed[T]:
        """Borrow a connection, `with pool.connection() as one:`; one whose use raised `Broken` is thrown away."""
        return Borrowed(self)

    def close(self) -> None:
        """Close idle connections; borrowed ones close when they come back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._made -= len(idle)
        for one in idle:
            self._close(one)

    def take(self) -> T:
        """An idle connection, a new one, or the next that comes back."""
        with self._changed:
            if self._idle and not self._forking:
                return self._idle.pop()
            deadline = time.monotonic() + self._wait_seconds
            while True:
                if self._idle and not self._forking:
                    return self._idle.pop()
                if self._made < self._size and not self._forking:
                    self._made += 1
                    break
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise RecordUnreachable(
                        f"all {self._size} connections to the record were busy for {self._wait_seconds:.0f} s: "
                        "run fewer actions at once or allow more connections"
                    )
        try:
            return self._make()
        except BaseException:
            with self._changed:
                self._made -= 1
                self._changed.notify()
            raise

    def give(self, one: T, pid: int) -> None:
        """Bring a connection back; `pid` is the process that took it."""
        if pid != os.getpid():
            _abandoned.append(one)
            return
        with self._changed:
            if not self._closed:
                self._idle.append(one)
                self._changed.notify()
                return
        self._close(one)
        with self._changed:
            self._made -= 1  # only now, so that a fork waits for the closing too
            self._changed.notify()

    def drop_idle(self) -> None:
        """Throw all idle connections away: where one broke (a restart, a fail-over), the others most likely did too."""
        with self._changed:
            idle, self._idle = self._idle, []
        for one in idle:
            self.drop(one)

    def drop(self, one: T) -> None:
        """Throw a connection away."""
        try:
            self._close(one)
        except Exception:  # noqa: BLE001, S110  (a broken connection may not even close)
            pass
        with self._changed:
            self._made -= 1
            self._changed.notify()


class Borrowed(Generic[T]):
    """A connection for the length of a `with`. A class and not a generator: this stands on the path of every action."""

    __slots__ = ("_one", "_pid", "_pool")

    def __init__(self, pool: Pool[T]) -> None:
        self._pool = pool

    def __enter__(self) -> T:
        self._pid = os.getpid()
        self._one = self._pool.take()
        return self._one

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None and issubclass(kind, Broken):
            self._pool.drop(self._one)
        else:
            self._pool.give(self._one, self._pid)


class Broken(Exception):
    """The connection can't be used again; `__cause__` says why."""


_pools: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()


def _before_fork() -> None:
    for pool in list(_pools):
        pool.before_fork()


def _after_fork_in_parent() -> None:
    for pool in list(_pools):
        pool.after_fork_in_parent()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
