"""Medians of things done in turn, so that a slow moment of the machine falls on all of them alike."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

ROUND: Final = 25
"""Repetitions of one thing before the next has its turn."""


@dataclass(frozen=True)
class Figure:
    """One must: a ratio of two medians measured in the same run, or a median in milliseconds."""

    name: str
    value: float
    limit: float
    unit: str = "×"
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """True if the figure keeps its limit."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def row(self) -> str:
        """A line of the report."""
        sign = "≥" if self.at_least else "≤"
        verdict = "holds" if self.holds else "**falls short**"
        return f"| {self.name} | {self.value:.2f} {self.unit} | {sign} {self.limit:g} {self.unit} | {verdict} |"


def medians(subjects: Mapping[str, Callable[[int], object]], *, rounds: int) -> dict[str, float]:
    """Median microseconds of each subject, called with 0, 1, 2 …; the subjects take turns of `ROUND` calls."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    counters = {name: itertools.count() for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            counter = counters[name]
            for _ in range(ROUND):
                number = next(counter)
                start = time.perf_counter()
                subject(number)
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) * 1e6 for name, found in times.items()}


def table(title: str, figures: Mapping[str, float]) -> str:
    """Medians as a Markdown table, in microseconds."""
    lines = [f"\n### {title}\n", "| | median µs |", "|---|---|"]
    lines += [f"| {name} | {value:,.0f} |" for name, value in figures.items()]
    return "\n".join(lines)
