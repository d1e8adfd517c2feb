"""A record with one action in doubt, and the command line run in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

import c4a
from c4a import cli

ROOT: Final = Path(__file__).resolve().parents[2]
MODULE: Final = [sys.executable, "-m", "c4a"]


class MailServerGone(Exception):
    """What the body of the action in doubt raised."""


@dataclass
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("C4A_SECRET", "C4A_DIGEST_KEY", "C4A_OLD_SECRETS", "C4A_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def c4a_run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process: `c4a_run("doubt", record, "--json")`."""

    def run(*arguments: object) -> Answer:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return run


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A file with one action done and one in doubt."""
    path = tmp_path / "agent" / "ledger.sqlite"
    doubt_make(str(path))
    return path


def doubt_make(address: str, run: str = "order-42", **options: Any) -> None:
    """Send one mail that arrives and one that raises."""

    @c4a.effect(name="send_email")
    def send_email(to: str) -> str:
        if to == "alice":
            raise MailServerGone("connection lost after DATA\x1b[2J")
        return "accepted"

    c4a.init(address, **options)
    with c4a.run(run):
        send_email("bob")
        with pytest.raises(MailServerGone):
            send_email("alice")
    c4a.current_record().close()


def process_start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    # Buffered, as for a person: what is left in the buffer at exit is what goes wrong when a reader went away.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", **options.pop("env", {})}
    return subprocess.Popen(
        [*MODULE, *(str(argument) for argument in arguments)],
        env=environment, text=True, stdin=subprocess.DEVNULL,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )  # fmt: skip
