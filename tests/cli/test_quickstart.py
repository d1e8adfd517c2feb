"""`c4a quickstart`: what it counts is what C4A promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from c4a.cli import quickstart


def test_it_counts_two_without_and_one_with(c4a_run: Any, tmp_path: Path) -> None:
    answer = c4a_run("quickstart", "--json", "--keep", tmp_path / "kept")

    assert answer.code == 0
    assert [(one["sent_first"], one["sent_second"], one["said"]) for one in answer.json["killed"]] == [
        (2, 1, "sent"),
        (1, 1, "recorded"),
        (1, 1, "in doubt"),
    ]
    assert answer.json["approval"] == {"changed": "refused", "approved": "ran", "repeat": "recorded"}
    assert c4a_run("doubt", tmp_path / "kept" / "with-c4a-killed-inside-the-first" / "ledger.sqlite", "--fail-if-any").code == 3


def test_it_ends_with_4_if_the_count_is_another(c4a_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quickstart, "_killed", lambda *_, **__: quickstart.Seen("a case", 2, 1, "recorded", (1, 1, "recorded")))

    answer = c4a_run("quickstart")

    assert answer.code == 4
    assert "pay(9999, mallory)    refused" in answer.out


def test_it_keeps_nothing_where_something_is(c4a_run: Any, tmp_path: Path) -> None:
    answer = c4a_run("quickstart", "--keep", tmp_path)

    assert answer.code == 1
    assert "is there already" in answer.err
