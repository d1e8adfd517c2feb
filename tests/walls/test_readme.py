"""The README's examples do what the README says, to the letter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
TEXT: Final = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK: Final = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, list[str]]]:
    """Each program with the outputs of its first run, its second and so on."""
    found: list[tuple[str, list[str]]] = []
    for language, text in BLOCK.findall(TEXT):
        if language == "python":
            found.append((text, []))
        else:
            found[-1][1].append(text)
    return found


@pytest.mark.parametrize(("program", "outputs"), examples(), ids=["first", "approval"])
def test_an_example_prints_what_stands_below_it(program: str, outputs: list[str], tmp_path: Path) -> None:
    (tmp_path / "order.py").write_text(program, encoding="utf-8")

    printed = [_run(tmp_path) for _ in outputs]

    assert outputs
    assert printed == outputs


def test_the_first_example_has_ten_lines() -> None:
    program = examples()[0][0]

    assert len([line for line in program.splitlines() if line.strip()]) <= 10


def test_every_page_it_names_is_there() -> None:
    named = re.findall(r"\]\(([^)]+)\)", TEXT)

    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_make_target_it_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named = {name for pair in re.findall(r"^    make (\w+)|`make (\w+)`", TEXT, re.MULTILINE) for name in pair if name}

    assert named
    assert named <= targets


def _run(folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("C4A_")}
    done = subprocess.run(
        [sys.executable, "order.py"], cwd=folder, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
