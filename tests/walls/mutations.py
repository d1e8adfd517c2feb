"""Every guard and the tests that must fail without it. Whoever adds a guard adds a row; see `tests/walls/mutate.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mutation:
    """One guard: `text` stands exactly once in `file` (from the root); with `instead` in its place, `tests` must fail.

    `tests` are pytest node ids, or `file.py -k words` is not possible: name the test.
    """

    guard: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]

    def applied_to(self, whole: str) -> str:
        """The file's text without the guard.

        Raises:
            ValueError: `text` does not stand there exactly once.
        """
        count = whole.count(self.text)
        if count != 1:
            raise ValueError(f"{self.guard}: expected its text once in {self.file}, found it {count} times; the guard moved, mend the row")
        return whole.replace(self.text, self.instead)


MUTATIONS: Final[tuple[Mutation, ...]] = ()
