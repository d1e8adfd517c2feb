"""The demo counts what it promises, through all three records, with the doubt settled in the real admin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SECONDS: Final = 180.0


def demo(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("C4A_", "DJANGO_"))}
    return subprocess.run(
        [sys.executable, "-m", "c4a.demo", "--check", *arguments],
        cwd=ROOT,
        env={**environment, **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )


def table(printed: str) -> dict[str, list[str]]:
    """The cells of each record's row."""
    rows = [re.split(r" {2,}", line.strip()) for line in printed.splitlines() if "  " in line]
    return {first: rest for first, *rest in rows}


@pytest.mark.ci
def test_it_counts_two_without_and_one_with_through_all_three_records(postgres_server: str) -> None:
    done = demo(C4A_TEST_DATABASE_URL=postgres_server)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(done.stdout)
    once = ["1 sent", "1 sent, in doubt"]
    assert rows["without C4A"] == ["2 sent", "2 sent"]
    assert rows["file"] == [*once, "c4a resolve: done", "1 sent, recorded"]
    assert rows["server"] == [*once, "an operator in the admin: done", "1 sent, recorded"]
    assert rows["PostgreSQL"] == [*once, "c4a resolve: done", "1 sent, recorded"]


def test_without_postgresql_it_says_how_to_give_one() -> None:
    done = demo("--only", "file", "--only", "postgresql")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "postgresql: skipped, no PostgreSQL: name a server" in done.stdout
    assert table(done.stdout)["file"][:2] == ["1 sent", "1 sent, in doubt"]
