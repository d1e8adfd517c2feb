"""Strategies for values, and what equal means, written independently of the library."""

from __future__ import annotations

import datetime
import pathlib
import random
import uuid
from collections import OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from tests.library.cast import Charge, Color, Level, Line, Parcel, Point, Refund, Right

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["$c4a", "v", "class", "", "\0", "10", "map"])
integers = st.integers() | st.integers(-(10**40), 10**40) | st.integers(2**53 - 3, 2**53 + 3)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=3) | st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(exponent), st.integers(-(10**25), 10**25), st.integers(-400, 400)
)
numbers = integers | st.floats(allow_nan=False, allow_infinity=False) | decimals
plain_scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts
zones = st.sampled_from([datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=5, minutes=30), "IST")])
moments = st.datetimes(datetime.datetime(2, 1, 1), datetime.datetime(9998, 1, 1))
hashables = st.one_of(
    st.none(),
    st.booleans(),
    texts,
    integers,
    st.binary(max_size=5),
    st.dates(),
    st.sampled_from([*Color, *Level, Right.READ | Right.WRITE]),
)
scalars = st.one_of(
    plain_scalars,
    decimals,
    hashables,
    st.binary(max_size=5).map(bytearray),
    st.times(),
    moments,
    st.builds(lambda moment, zone: moment.replace(tzinfo=zone), moments, zones),
    st.timedeltas(),
    st.uuids(),
    st.fractions(),
    st.complex_numbers(allow_nan=False, allow_infinity=False),
    st.builds(lambda text: pathlib.PurePosixPath("/", text.replace("\0", "")), texts),
    st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3)),
)
plain_values = st.recursive(
    plain_scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(deque),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(texts, inner, max_size=4).map(OrderedDict),
        st.dictionaries(hashables, inner, max_size=4),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
        st.builds(Charge, to=texts, amount=inner),
        st.builds(Refund, to=texts, amount=inner),
        st.builds(Line, sku=inner, count=inner),
        st.builds(Parcel, weight=inner, tags=st.lists(inner, max_size=2)),
        st.builds(Point, inner, inner),
    ),
    max_leaves=12,
)


def meaning(value: Any) -> Any:
    """What a plain value means: a hashable thing, equal for two values exactly when they are one argument."""
    if value is None or isinstance(value, (bool, str)):
        return (type(value).__name__, value)
    if isinstance(value, (int, Decimal)):
        return ("number", Fraction(value))
    if isinstance(value, float):
        return ("number", Fraction(repr(value)))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(meaning(item) for item in value))
    if isinstance(value, dict):
        return ("object", frozenset((key, meaning(item)) for key, item in value.items()))
    raise TypeError(type(value))


def retold(value: Any, chance: random.Random) -> Any:
    """The same plain value in other Python types and another order."""
    if isinstance(value, float) or (type(value) is int and abs(value) < 10**300):
        return chance.choice([Decimal(repr(value)), value, Decimal(f"{value!r}") * Decimal("1.00") if _short(value) else value])
    if isinstance(value, list):
        return chance.choice([list, tuple])(retold(item, chance) for item in value)
    if isinstance(value, dict):
        items = [(key, retold(item, chance)) for key, item in value.items()]
        chance.shuffle(items)
        return dict(items)
    return value


def same(left: Any, right: Any) -> bool:
    """Equal in type and value, all the way down (`1 == True` and `1 == 1.0` are not the same)."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple, deque)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(map(repr, left)) == list(map(repr, right)) and all(map(same, left.values(), right.values()))
    if isinstance(left, (set, frozenset)):
        return left == right and sorted(map(repr, left)) == sorted(map(repr, right))
    if isinstance(left, (Charge, Refund, Parcel, Line)):
        names = [name for name in ("to", "amount", "weight", "tags", "sku", "count") if hasattr(left, name)]
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, (Decimal, float, complex, datetime.datetime, datetime.time, uuid.UUID)):
        return repr(left) == repr(right)
    return bool(left == right)


def _short(value: float) -> bool:
    return len(Decimal(repr(value)).as_tuple().digits) <= 20
