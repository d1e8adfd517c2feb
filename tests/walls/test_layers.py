"""Layers: everything imports to its right only, and the library knows no server (contracts in pyproject.toml)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SERVER: Final = ("c4a_project", "gateway", "approvals", "tickets", "accounts", "ledger")
MAY_HOLD_CURSORS: Final = {
    "ledger/executor.py",  # the adapter: the record's verbs run through it
    "accounts/keys.py",  # the one indexed read by which a key is recognised on the hot path
    "c4a_project/checks.py",  # asks the database whether it may lose commits
}


def test_every_import_keeps_to_the_layers() -> None:
    linter = Path(sys.executable).with_name("lint-imports")

    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_no_other_file_holds_a_cursor() -> None:
    found = {
        str(path.relative_to(ROOT))
        for app in SERVER
        for path in (ROOT / app).rglob("*.py")
        if re.search(r"\.cursor\(|\.raw\(", path.read_text())
    }

    assert found <= MAY_HOLD_CURSORS
