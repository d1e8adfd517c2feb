"""The small cast of classes the value tests record."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import attrs
import pydantic


class Color(enum.Enum):
    """Plain members."""

    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    """Members that are numbers too."""

    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    """Members that combine."""

    READ = 1
    WRITE = 2


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


OldPoint = collections.namedtuple("OldPoint", "x y")


@dataclasses.dataclass
class Charge:
    """Takes money."""

    to: str = "alice"
    amount: int = 0


@dataclasses.dataclass
class Refund:
    """Gives the same money back: same fields, another action."""

    to: str = "alice"
    amount: int = 0


@dataclasses.dataclass(frozen=True)
class Line:
    """Frozen, without `__dict__`."""

    __slots__ = ("count", "sku")
    sku: str
    count: int


@dataclasses.dataclass
class Order:
    """Fields that `__init__` does not take, one left unset, one more set on the way, one computed and cached."""

    lines: list[Line]
    total: int = dataclasses.field(init=False)
    note: str = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(line.count for line in self.lines)
        self.opened_by = "alice"

    @functools.cached_property
    def skus(self) -> list[str]:
        """What is ordered."""
        return [line.sku for line in self.lines]


@attrs.define
class Parcel:
    """An attrs class with slots."""

    weight: float
    tags: list[str] = attrs.field(factory=list)


class Invoice(pydantic.BaseModel):
    """A model with an alias, a secret and a private attribute."""

    model_config = pydantic.ConfigDict(extra="allow")

    number: int = pydantic.Field(alias="invoiceNumber")
    lines: list[Line] = []
    token: pydantic.SecretStr | None = None
    _seen: int = pydantic.PrivateAttr(default=0)


class Loud:
    """An ordinary object: its text is its address."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)
