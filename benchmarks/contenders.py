"""The same actions three ways: C4A, call4agents from PyPI, and the physical floor under both."""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

SECRET: Final = b"benchmark-secret-of-32-bytes-0123"
PAYLOAD: Final = "x" * 200


class Agent:
    """One library with an open record and the tool under test."""

    def __init__(self, module: str, address: str) -> None:
        self.library: ModuleType = importlib.import_module(module)
        self.open(address)

        @self.library.effect(name="pay")
        def pay(amount: int, to: str) -> str:
            return "paid"

        @self.library.effect(name="pay_gated", approval=True)
        def pay_gated(amount: int, to: str) -> str:
            return "paid"

        self._pay: Callable[..., Any] = pay
        self._pay_gated: Callable[..., Any] = pay_gated

    def open(self, address: str) -> None:
        """Open (again) the record this agent uses."""
        self.library.init(address, secret=SECRET)

    def new(self, number: int, run: str = "bench") -> None:
        """An action never seen before."""
        with self.library.run(run):
            self._pay(amount=number, to="alice")

    def repeat(self, number: int) -> None:
        """An action done before: its recorded result."""
        with self.library.run("bench"):
            self._pay(amount=number % 50, to="alice")

    def approved(self, number: int) -> None:
        """A yes, then the action it covers."""
        with self.library.run("bench"):
            self.library.approve(self._pay_gated, amount=number, to="alice")
            self._pay_gated(amount=number, to="alice")

    def decided(self, number: int) -> None:
        """A question about an action, then its answer."""
        with self.library.run("bench"):
            ticket = self.library.pause(self._pay_gated, amount=number, to="bob")
            self.library.decide(ticket, "approve", by="ann")


def sqlite_floor(path: Path) -> Callable[[int], object]:
    """Two bare durable INSERT+COMMIT on SQLite (WAL, synchronous FULL)."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, x TEXT)")

    def two(_: int) -> None:
        for _ in range(2):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO bare (x) VALUES (?)", (PAYLOAD,))
            connection.execute("COMMIT")

    return two


def postgres_floor(url: str) -> Callable[[int], object]:
    """Two bare durable autocommit INSERTs on PostgreSQL."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    connection.execute("CREATE TABLE IF NOT EXISTS bare (id BIGSERIAL PRIMARY KEY, x TEXT)")

    def two(_: int) -> None:
        for _ in range(2):
            connection.execute("INSERT INTO bare (x) VALUES (%s)", (PAYLOAD,))

    return two
