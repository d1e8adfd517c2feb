"""Nothing a person may meet is undocumented: errors, settings, kinds of entry, check ids."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from c4a.record.entries import ENTRY_KINDS
from tests.walls.reference import ERRORS_PAGE, errors_page, setting_names

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DOCS: Final = ROOT / "docs"


def test_the_page_of_errors_says_what_the_code_says() -> None:
    assert ERRORS_PAGE.read_text() == errors_page(), "run: python -m tests.walls.reference"


def test_every_setting_is_documented_and_nothing_else_is() -> None:
    documented = set(re.findall(r"^\| `(C4A_\w+)`", (DOCS / "SETTINGS.md").read_text(), re.MULTILINE))

    assert documented == setting_names()


def test_every_kind_of_entry_is_documented_and_nothing_else_is() -> None:
    documented = set(re.findall(r"^\| `(\w+\.\w+)` \|", (DOCS / "RECORD.md").read_text(), re.MULTILINE))

    assert documented == set(ENTRY_KINDS)


def test_every_start_up_check_is_documented() -> None:
    raised = set(re.findall(r'id="(c4a\.[EW]\d+)"', (ROOT / "c4a_project" / "checks.py").read_text()))
    documented = set(re.findall(r"^\| `(c4a\.[EW]\d+)`", (DOCS / "SETTINGS.md").read_text(), re.MULTILINE))

    assert documented == raised
