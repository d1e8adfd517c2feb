"""One test, two records: a local file and a shared PostgreSQL database, each empty and of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import c4a
from c4a import connect
from c4a.record.types import Effect, Record

SECRET = "0123456789abcdef" * 4
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Library:
    """A record that `c4a.init` opened, and how another process opens it."""

    kind: str
    address: str
    folder: Path

    @property
    def record(self) -> Record:
        """The record in use."""
        return c4a.current_record()

    def init(self, **options: Any) -> None:
        """Open it again, as a new process would."""
        c4a.init(self.address, secret=SECRET, **options)

    def only_effect(self, run: str = "r") -> Effect:
        """The head of the only action of a run."""
        (effect,) = self.record.effects(run=run)
        return effect

    def effects(self, run: str = "r") -> list[Effect]:
        """The heads of a run's actions."""
        return self.record.effects(run=run)

    def resolve(self, effect: Effect, verdict: Any, **options: Any) -> Effect:
        """A person's verdict."""
        return self.record.resolve(
            effect.key, verdict, attempt=effect.attempt, note="looked", actor="person:ann", run=effect.run, **options
        )

    def start(self, code: str, *arguments: str) -> subprocess.Popen[str]:
        """A real process with the record open; `code` may use `c4a`, `os`, `sys`, `time`, `signal` and `say(line)`."""
        prelude = f"""
            import os, signal, sys, time
            import c4a
            c4a.init({self.address!r}, secret={SECRET!r})
            def say(line):
                print(line, flush=True)
        """
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code), *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(params=["file", "database"])
def library(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """`c4a.init` has opened an empty record; the current folder is the test's own."""
    monkeypatch.chdir(tmp_path)
    before = connect._current
    address = str(tmp_path / ".c4a" / "ledger.sqlite")
    if request.param == "database":
        from c4a.record.postgres import migrate

        address = request.getfixturevalue("postgres_url")
        migrate(address)
    opened = Library(request.param, address, tmp_path)
    opened.init()
    yield opened
    c4a.current_record().close()
    connect._current = before


@pytest.fixture
def file_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """As `library`, for what doesn't depend on where the record lives."""
    monkeypatch.chdir(tmp_path)
    before = connect._current
    opened = Library("file", str(tmp_path / ".c4a" / "ledger.sqlite"), tmp_path)
    opened.init()
    yield opened
    c4a.current_record().close()
    connect._current = before
