"""Every command and every exit code stands in docs/COMMANDS.md, and nothing else does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from c4a.cli.exits import Exit

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "COMMANDS.md").read_text(encoding="utf-8")
DOCUMENTED: Final = re.findall(r"^\| `c4a (\w+)", PAGE, re.MULTILINE)


def test_every_command_is_documented_and_nothing_else_is(c4a_run: Any) -> None:
    refused = c4a_run("dance").err

    assert re.findall(r"'?(\w+)'?(?:,|\))", refused.partition("choose from")[2]) == DOCUMENTED


@pytest.mark.parametrize("command", DOCUMENTED)
def test_every_option_is_documented(c4a_run: Any, command: str) -> None:
    options = set(re.findall(r"--[a-z-]+", c4a_run(command, "--help").out)) - {"--help"}

    assert options <= set(re.findall(r"--[a-z-]+", PAGE))
    assert "--json" in options


def test_every_exit_code_is_documented() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == [int(code) for code in Exit]
