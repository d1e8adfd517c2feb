"""The rows of the mutation run are true, and a sample of them bites."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.walls import mutate
from tests.walls.mutations import MUTATIONS, Mutation

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SAMPLE: Final = 5


@pytest.mark.parametrize("row", MUTATIONS, ids=lambda row: row.guard)
def test_every_guard_stands_where_its_row_says(row: Mutation) -> None:
    whole = (ROOT / row.file).read_text()

    assert row.applied_to(whole) != whole


@pytest.mark.parametrize("row", MUTATIONS, ids=lambda row: row.guard)
def test_every_named_test_is_there(row: Mutation) -> None:
    for test in row.tests:
        file, *names = test.split("::")
        assert all(f"{name.partition('[')[0]}" in (ROOT / file).read_text() for name in names), test


def test_a_text_that_stands_twice_is_no_row() -> None:
    row = Mutation("a guard", "a.py", "if x:", "if True:", ("tests/test_a.py",))

    with pytest.raises(ValueError, match="found it 2 times"):
        row.applied_to("if x: 1\nif x: 2\n")


@pytest.mark.ci
def test_a_sample_of_guards_is_noticed_when_taken_out(capsys: pytest.CaptureFixture[str]) -> None:
    code = mutate.main(["--sample", str(SAMPLE)])

    assert code == 0, capsys.readouterr().out
