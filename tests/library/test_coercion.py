"""Shown JSON becomes what the tool will be called with."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict, Union
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

import c4a
from c4a.coercion import coerce


class Color(enum.Enum):
    """By value."""

    RED = "red"
    TWO = 2


class Level(enum.IntEnum):
    """By number."""

    LOW = 1


class Point(NamedTuple):
    """Two fields."""

    x: int
    day: dt.date


@dataclass
class Trip:
    """A date and a place."""

    day: dt.date
    to: str = "home"


class Charge(BaseModel):
    """With an alias."""

    amount: Decimal = Field(alias="sum")
    trips: list[Trip] = []


class Options(TypedDict, total=False):
    """Typed keys."""

    day: dt.date


Amount = NewType("Amount", Decimal)
DAY = dt.date(2025, 1, 1)


@pytest.mark.parametrize(
    ("shown", "annotation", "passed"),
    [
        ("2025-01-01", dt.date, DAY),
        ("2025-01-01T10:00:00Z", dt.datetime, dt.datetime(2025, 1, 1, 10, tzinfo=dt.timezone.utc)),
        ("2025-01-01T10:00:00.5", dt.datetime, dt.datetime(2025, 1, 1, 10, 0, 0, 500000)),
        ("10:30", dt.time, dt.time(10, 30)),
        ("PT1H30M", dt.timedelta, dt.timedelta(minutes=90)),
        ("-P1DT0.5S", dt.timedelta, -dt.timedelta(days=1, seconds=0.5)),
        (90, dt.timedelta, dt.timedelta(seconds=90)),
        ("10.50", Decimal, Decimal("10.50")),
        ("10.50", Amount, Decimal("10.50")),
        ("10", int, 10),
        ("1.5", float, Decimal("1.5")),
        (10, float, 10),
        ("true", bool, True),
        ("12345678-1234-5678-1234-567812345678", UUID, UUID("12345678-1234-5678-1234-567812345678")),
        ("/tmp/x", Path, Path("/tmp/x")),
        ("é", bytes, "é".encode()),
        ("red", Color, Color.RED),
        (2, Color, Color.TWO),
        (1, Level, Level.LOW),
        ("1", Level, Level.LOW),
        ("s3cret", c4a.Secret, c4a.Secret("s3cret")),
        (["2025-01-01"], list[dt.date], [DAY]),
        (["a", "b"], set[str], {"a", "b"}),
        (["a"], frozenset, frozenset("a")),
        ([1, "2025-01-01"], tuple[int, dt.date], (1, DAY)),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, "2025-01-01"], Point, Point(1, DAY)),
        ({"x": 1, "day": "2025-01-01"}, Point, Point(1, DAY)),
        ({"1": "2025-01-01"}, dict[int, dt.date], {1: DAY}),
        ({"day": "2025-01-01"}, Trip, Trip(DAY)),
        ({"day": "2025-01-01"}, Options, {"day": DAY}),
        ({"sum": "10.50", "trips": [{"day": "2025-01-01"}]}, Charge, Charge(sum=Decimal("10.50"), trips=[Trip(DAY)])),
        ("2025-01-01", Optional[dt.date], DAY),  # noqa: UP045
        (None, Optional[dt.date], None),  # noqa: UP045
        ("2025-01-01", dt.date | None, DAY),
        ("2025-01-01", Annotated[dt.date, "note"], DAY),
        ("2025-01-01", Union[str, dt.date], "2025-01-01"),  # noqa: UP007
        ("2025-01-01", Union[int, dt.date], DAY),  # noqa: UP007
        ({"day": "2025-01-01"}, Union[Trip, None], Trip(DAY)),  # noqa: UP007
        ([{"day": "2025-01-01"}], list[Trip] | None, [Trip(DAY)]),
        ("a", Literal["a", "b"], "a"),
        ("x", Any, "x"),
        ({"a": [1]}, Any, {"a": [1]}),
        (DAY, dt.date, DAY),
        (Trip(DAY), Trip, Trip(DAY)),
        (2512292042121000001, float, 2512292042121000001),
        (True, int, True),
    ],
)
def test_it_becomes_what_the_tool_gets(shown: Any, annotation: Any, passed: Any) -> None:
    found = coerce(shown, annotation)
    assert found == passed
    assert type(found) is type(passed)


@pytest.mark.parametrize(
    ("shown", "annotation"),
    [
        ("tomorrow", dt.date),
        ("2025-13-01", dt.date),
        ("P", dt.timedelta),
        ("ten", Decimal),
        ("1.5", int),
        ("maybe", bool),
        ("nope", UUID),
        ("green", Color),
        ({"day": "tomorrow"}, Trip),
        ({"to": "x"}, Trip),
        ({"day": "2025-01-01", "day2": 1}, Trip),
        ({"amount": "x"}, Charge),
        (["x"], list[int]),
        ([1], Point),
        ([1, "x"], Point),
        ([[1]], set[list[int]]),
        ("tomorrow", dt.date | None),
    ],
)
def test_what_no_framework_could_call_the_tool_with_is_refused(shown: Any, annotation: Any) -> None:
    with pytest.raises(c4a.InvalidArguments, match="expected"):
        coerce(shown, annotation)
