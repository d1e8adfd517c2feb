"""Canonical text: checked-in vectors, an independent oracle, properties, and the limits."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import random
import sys
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from c4a.canonical import canonical_from_codec, canonical_text, encode_arguments, parse_json, plain_arguments_codec
from c4a.codec import decode, encode
from c4a.errors import InvalidArguments
from c4a.record.types import MAX_ARGUMENTS_BYTES
from tests.library.cast import Charge, Color, Level, Line, Loud, Order, Point, Refund
from tests.library.test_codec import NAMES, VECTORS
from tests.library.values import meaning, numbers, plain_values, retold, values

PLAIN = json.loads((Path(__file__).parents[1] / "vectors" / "plain_json.json").read_text())["arguments"]


def differ(left: object, right: object) -> bool:
    return canonical_text(left) != canonical_text(right)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_it_writes_the_vectors_to_the_byte(vector: dict[str, str]) -> None:
    value = eval(vector["python"], NAMES)
    assert canonical_text(value, digest_key=b"digest-key") == vector["canonical"]
    assert canonical_from_codec(vector["codec"]) == vector["canonical"]
    assert hashlib.sha256(vector["canonical"].encode()).hexdigest() == vector["sha256"]
    assert encode_arguments({"value": value}, digest_key=b"digest-key") == (
        f'{{"value":{vector["canonical"]}}}',
        f'{{"value":{vector["codec"]}}}',
    )


@pytest.mark.parametrize("vector", PLAIN, ids=lambda vector: vector["name"])
def test_it_writes_plain_json_to_the_byte(vector: dict[str, str]) -> None:
    parsed: Any = parse_json(vector["json"])
    assert plain_arguments_codec(parsed) == vector["codec"]
    assert canonical_from_codec(vector["codec"]) == vector["canonical"]


@given(plain_values)
@example({"\ue000": 1, "\U00010000": 2})
def test_it_agrees_with_an_independent_rfc_8785_library(value: Any) -> None:
    """On values that a JSON library with doubles can hold: others are tagged, and no other library writes tags."""
    text = canonical_text(value)
    if "$c4a" not in text:
        assert text == rfc8785.dumps(_as_doubles(value)).decode()


def _as_doubles(value: Any) -> Any:
    if type(value) is int:
        return float(value)
    if isinstance(value, list):
        return [_as_doubles(item) for item in value]
    return {key: _as_doubles(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(2.0**-1074)
@example(1e21)
@example(999999999999999900000.0)
@example(1e-6)
@example(9.5e-7)
def test_it_writes_every_double_as_the_independent_library_does(number: float) -> None:
    assert canonical_text(number) == rfc8785.dumps(number).decode()


@given(values)
def test_it_is_one_text_from_the_value_and_from_its_codec_text(value: Any) -> None:
    text = canonical_text(value)
    assert text == canonical_from_codec(encode(value))
    assert encode_arguments({"p": value}) == (f'{{"p":{text}}}', f'{{"p":{encode(value)}}}')


@given(values)
def test_it_survives_a_round_trip_through_a_reader_that_knows_only_doubles(value: Any) -> None:
    text = canonical_text(value)
    assert rfc8785.dumps(json.loads(text, parse_int=float)).decode() == text


@given(values)
def test_it_is_unchanged_by_recording_and_reading_back(value: Any) -> None:
    assert canonical_text(decode(encode(value))) == canonical_text(value)


@given(plain_values, plain_values, st.randoms(use_true_random=False))
def test_two_values_have_one_text_exactly_when_they_mean_the_same(left: Any, right: Any, chance: random.Random) -> None:
    assert (canonical_text(left) == canonical_text(right)) == (meaning(left) == meaning(right))
    assert canonical_text(retold(left, chance)) == canonical_text(left)


@given(numbers, numbers)
@example(0.1, Decimal("0.1"))
@example(2**70, 2.0**70)
@example(10**20, 1e20)
def test_numbers_are_compared_by_value(left: Any, right: Any) -> None:
    assert (canonical_text(left) == canonical_text(right)) == (meaning(left) == meaning(right))


@given(plain_values)
def test_plain_json_gets_the_text_the_library_gives_the_same_values(value: Any) -> None:
    parsed: Any = parse_json(json.dumps({"p": value}))
    assert plain_arguments_codec(parsed) == encode_arguments({"p": value})[1]
    assert canonical_from_codec(plain_arguments_codec(parsed)) == encode_arguments({"p": value})[0]


@given(st.text(max_size=30))
def test_strict_parsing_takes_nothing_that_the_standard_parser_refuses(text: str) -> None:
    try:
        parsed = parse_json(text)
    except InvalidArguments:
        return
    assert meaning(parsed) == meaning(json.loads(text, parse_float=Decimal))


# ---- cases by id


def test_c_b3_different_things_never_share_a_text() -> None:
    pairs: list[tuple[object, object]] = [
        (Charge(amount=10), Refund(amount=10)),
        (Charge(amount=10), {"to": "alice", "amount": 10}),
        (Charge(amount=10), {"$c4a": "dataclass", "class": "tests.library.cast:Charge", "v": {"amount": 10, "to": "alice"}}),
        ({1, 2}, {"1", "2"}),
        ({1, 2}, ["1", "2"]),
        ({1, 2}, [1, 2]),
        (Decimal(10), "10"),
        (datetime.date(2025, 1, 1), "2025-01-01"),
        (datetime.date(2025, 1, 1), datetime.datetime(2025, 1, 1)),
        (Path("/a"), "/a"),
        (Color.RED, "RED"),
        (Color.RED, 1),
        (Level.LOW, 1),
        (Level.LOW, Color.RED),
        (b"x", {"$c4a": "bytes", "v": "eA=="}),
        (b"x", "x"),
        ({1: "a"}, {"1": "a"}),
        ({None: "a"}, {"null": "a"}),
        ({True: "a"}, {1: "a"}),
        ({(1, 2): "a"}, {"(1, 2)": "a"}),
        ({1: "a"}, {"$c4a": "map", "v": [1, "a"]}),
        (Point(1, 2), [1, 2]),
        (datetime.timedelta(seconds=1), 1),
    ]
    assert [pair for pair in pairs if not differ(*pair)] == []


def test_c_b5_text_is_not_a_number_and_true_is_not_one() -> None:
    for left, right in [("0123", 123), ("1e3", 1000), (True, 1), (False, 0), ("", None), (None, 0), ("10", 10)]:
        assert differ(left, right)
        assert differ({"p": left}, {"p": right})


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"), complex(math.nan, 1)]
)
def test_c_b5_what_is_not_a_number_is_refused_at_once(value: object) -> None:
    with pytest.raises(InvalidArguments) as caught:
        encode_arguments({"rows": [{"amount": value}]})
    assert caught.value.parameter.startswith("args.rows[0].amount")


def test_c_b6_a_lone_surrogate_is_refused_naming_the_argument() -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"to": "a\ud800"}, "args.to"),
        ({"to": ["ok", {"name": "\udfff"}]}, "args.to[1].name"),
        ({"to": {"\ud800": 1}}, "args.to['\\ud800']"),
        ({"to": {"a\udc00b"}}, "args.to[0]"),
        ({"to": Path("/\udc80")}, "args.to"),
    ]
    for arguments, parameter in cases:
        with pytest.raises(InvalidArguments, match="surrogate") as caught:
            encode_arguments(arguments)
        assert caught.value.parameter == parameter
        str(caught.value).encode()


def test_c_b6_keys_of_mixed_types_have_a_text() -> None:
    assert canonical_text({"1": "a", 1: "b", None: "c", (1, "x"): "d"}) == canonical_text({(1, "x"): "d", None: "c", 1: "b", "1": "a"})


def test_c_b6_an_object_without_stable_text_is_refused_naming_the_argument() -> None:
    for value, parameter in [
        ({"a": [Loud()]}, "args.p.a[0]"),
        (Charge(to="x", amount=Loud()), "args.p.amount"),  # type: ignore[arg-type]
        ({"odd key": Loud()}, "args.p['odd key']"),
        ({7: Loud()}, "args.p[7]"),
        (Loud, "args.p"),
        (lambda: 1, "args.p"),
        (ValueError("x"), "args.p"),
        (iter([1]), "args.p"),
        (memoryview(b"x"), "args.p"),
    ]:
        with pytest.raises(InvalidArguments, match="c4a_key=") as caught:
            encode_arguments({"p": value})
        assert caught.value.parameter == parameter
        assert isinstance(caught.value, TypeError)


def test_a_k1_no_address_is_ever_part_of_a_text() -> None:
    for value in (Loud(name="a"), [Loud()], {"x": Loud()}, {Loud()}, Loud):
        with pytest.raises(InvalidArguments) as caught:
            encode_arguments({"account": value})
        assert "0x" not in str(caught.value)


def test_case_40_one_number_whatever_the_type() -> None:
    assert len({canonical_text({"hours": hours}) for hours in (1, 1.0, Decimal(1), Decimal("1.00"), Decimal("1E+0"))}) == 1
    assert len({canonical_text(ten) for ten in (10, 10.0, Decimal("1E+1"))}) == 1
    assert len({canonical_text(zero) for zero in (0, 0.0, -0.0, Decimal("-0"), Decimal("0E-9"), Decimal("0E+999999"))}) == 1


def test_case_42_no_digit_is_lost() -> None:
    assert differ(9007199254740993, 9007199254740992)
    assert differ(2512292042121000001, 2512292042121000000)
    assert not differ(1e20, 100000000000000000000)
    parsed: Any = parse_json('{"id": 2512292042121000001, "x": 9007199254740993.0}')
    assert parsed == {"id": 2512292042121000001, "x": Decimal("9007199254740993.0")}
    assert "2512292042121000001" in canonical_from_codec(plain_arguments_codec(parsed))
    assert decode(plain_arguments_codec(parsed)) == parsed


def test_case_44_nesting_and_array_order_are_part_of_the_text() -> None:
    value = {"c": {"zeta": 1, "a": {"y": 1, "x": 2}}}
    assert canonical_text(json.loads(json.dumps(value))) == canonical_text(value) == '{"c":{"a":{"x":2,"y":1},"zeta":1}}'
    assert differ(value, {"c": {"zeta": 1, "a": {"y": 1, "x": 3}}})
    assert differ([1, 2], [2, 1])


def test_case_46_trailing_zeros_do_not_count_and_text_is_no_number() -> None:
    assert not differ(Decimal("123.40"), 123.4)
    assert differ(Decimal("123.40"), "123.4")
    parsed: Any = parse_json('{"a":1.400}')
    assert canonical_from_codec(plain_arguments_codec(parsed)) == canonical_text({"a": 1.4})


def test_case_48_text_is_byte_exact() -> None:
    assert differ("Caf\u00e9", "Cafe\u0301")
    assert differ("a", "\u0430")
    assert differ("ab", "a\u200bb")


def test_case_49_null_is_not_missing_and_order_does_not_count() -> None:
    assert differ({"note": None}, {})
    assert not differ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert encode_arguments({"b": 2, "a": 1}) == ('{"a":1,"b":2}', '{"b":2,"a":1}')


# ---- equal in Python, equal in text


def test_a_tuple_is_the_list_with_the_same_items() -> None:
    assert not differ((1, [2, (3,)]), [1, (2, [3])])


def test_mappings_of_every_well_known_kind_are_the_dict() -> None:
    plain = {"a": 1, "b": 2}
    for other in (Counter(plain), defaultdict(int, plain), MappingProxyType(plain)):
        assert not differ(other, plain)


def test_an_aware_datetime_is_its_instant_and_a_naive_one_its_text() -> None:
    athens, utc = datetime.timezone(datetime.timedelta(hours=2)), datetime.timezone.utc
    moment = datetime.datetime(2025, 1, 1, 9, tzinfo=athens)
    assert not differ(moment, moment.astimezone(utc))
    assert differ(moment, moment.replace(tzinfo=None))
    assert differ(moment, moment.replace(tzinfo=utc))


def test_named_zones_are_keyed_by_instant_too() -> None:
    import zoneinfo

    winter = datetime.datetime(2025, 1, 1, 9, tzinfo=zoneinfo.ZoneInfo("Europe/Athens"))
    assert not differ(winter, datetime.datetime(2025, 1, 1, 7, tzinfo=datetime.timezone.utc))
    first, second = (datetime.datetime(2025, 10, 26, 3, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Athens"), fold=fold) for fold in (0, 1))
    assert differ(first, second)
    assert differ(datetime.time(9, tzinfo=zoneinfo.ZoneInfo("Europe/Athens")), datetime.time(9))


def test_a_moment_outside_the_calendar_is_refused() -> None:
    east = datetime.timezone(datetime.timedelta(hours=2))
    with pytest.raises(InvalidArguments, match="years 1 to 9999"):
        encode_arguments({"at": datetime.datetime.min.replace(tzinfo=east)})


def test_everything_set_on_a_dataclass_counts_and_caches_do_not() -> None:
    plain, cached, changed = (Order([Line("a", 1)]) for _ in range(3))
    assert cached.skus == ["a"]
    changed.opened_by = "mallory"
    assert not differ(plain, cached)
    assert differ(plain, changed)


@pytest.mark.parametrize("value", [{0.1, Decimal("0.1")}, {0.1: 1, Decimal("0.1"): 2}, frozenset([1e-3, Decimal("0.001")])])
def test_two_members_that_are_one_value_are_refused(value: object) -> None:
    with pytest.raises(InvalidArguments, match="one value"):
        canonical_text(value)


def test_a_set_is_sorted_by_the_canonical_text_of_its_members() -> None:
    assert canonical_from_codec('{"$c4a":"set","v":["b",2.0,10,"a"]}') == '{"$c4a":"set","v":["a","b",10,2]}'
    assert not differ({Decimal("2.0"), 10, "a"}, {2, 10.0, "a"})


# ---- limits


def nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {
            "list": [value],
            "dict": {"k": value},
            "tuple": (value,),
            "map": {1: value},
            "deque": deque([value]),
            "ordered": OrderedDict(k=value),
            "dataclass": Charge("a", value),
            "named": Point(1, value),
        }[kind]
    return value


@pytest.mark.parametrize("kind", ["list", "dict", "tuple", "map", "deque", "ordered", "dataclass", "named"])
def test_depth_200_is_taken_and_201_refused(kind: str) -> None:
    text = canonical_text(nested(200, kind))
    codec = encode(nested(200, kind))
    assert canonical_from_codec(codec) == text
    assert decode(codec) == nested(200, kind)
    with pytest.raises(InvalidArguments, match="deeper than 200"):
        canonical_text(nested(201, kind))
    with pytest.raises(InvalidArguments, match="deeper than 200"):
        canonical_text(nested(100_000, kind))


def test_depth_does_not_depend_on_the_caller_s_stack() -> None:
    def called_from(depth: int) -> str:
        return called_from(depth - 1) if depth else canonical_from_codec(encode(nested(200, "tuple")))

    assert called_from(sys.getrecursionlimit() - 250) == called_from(1)


def test_a_value_that_contains_itself_is_refused_saying_so() -> None:
    rows: list[Any] = [1]
    rows.append({"rows": rows})
    order = Charge()
    order.to = order  # type: ignore[assignment]
    for value in (rows, order):
        with pytest.raises(InvalidArguments, match="contains itself"):
            encode_arguments({"p": value})


def test_a_small_value_that_unfolds_to_a_huge_text_is_refused_quickly() -> None:
    value: Any = ["x" * 100]
    for _ in range(60):
        value = [value, value]
    started = time.perf_counter()
    with pytest.raises(InvalidArguments, match="too large"):
        encode_arguments({"p": value})
    assert time.perf_counter() - started < 5


def test_arguments_over_the_size_limit_are_refused_in_every_form() -> None:
    large: list[Any] = [
        "x" * (MAX_ARGUMENTS_BYTES + 1),
        "é" * (MAX_ARGUMENTS_BYTES // 2 + 1),
        "\0" * (MAX_ARGUMENTS_BYTES // 5),
        [[]] * MAX_ARGUMENTS_BYTES,
    ]
    for value in large:
        with pytest.raises(InvalidArguments):
            encode_arguments({"p": value})
    assert len(encode_arguments({"p": "x" * (MAX_ARGUMENTS_BYTES - 8)})[0]) == MAX_ARGUMENTS_BYTES


@pytest.mark.parametrize(
    "number",
    [10**1000, -(10**1000), 10**100_000, Decimal("1e10001"), Decimal("1e-10001"), Decimal("1" * 1001), Decimal("1E+999999999999")],
    ids=lambda number: type(number).__name__,
)
def test_numbers_beyond_the_limits_are_refused_before_they_cost_anything(number: object) -> None:
    started = time.perf_counter()
    with pytest.raises(InvalidArguments) as caught:
        encode_arguments({"amount": number})
    assert time.perf_counter() - started < 0.5
    assert caught.value.parameter == "args.amount"


@pytest.mark.parametrize(
    "number",
    [10**1000 - 1, Decimal("1e10000"), Decimal("1e-10000"), Decimal("9" * 1000), 2**3000],
    ids=lambda number: type(number).__name__,
)
def test_numbers_at_the_limits_are_taken(number: object) -> None:
    text = canonical_text(number)
    assert text == canonical_from_codec(encode(number))
    assert decode(encode(number)) == number


def test_a_lowered_limit_on_digits_changes_nothing() -> None:
    before = sys.get_int_max_str_digits() if hasattr(sys, "get_int_max_str_digits") else None
    if before is None:
        assert canonical_text(10**999 + 1)
        return
    sys.set_int_max_str_digits(1_000)
    try:
        with pytest.raises(InvalidArguments):
            canonical_text(10**5000)
        assert canonical_text(10**999 + 1).count("0") > 900
    finally:
        sys.set_int_max_str_digits(before)


# ---- strict parsing


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        "-Infinity",
        '{"a":1,"a":1}',
        '{"a":{"b":1,"b":2}}',
        '"\\ud800"',
        '{"\\uDFFF":1}',
        '["\\ud83dx"]',
        "",
        " ",
        "{",
        "[1,]",
        "01",
        "+1",
        "1.",
        ".5",
        "'a'",
        "[1] 2",
        "\ufeff{}",
        b"\xef\xbb\xbf{}",
        b"\xff",
        b'"\xed\xa0\x80"',
        "\ud800",
        "1" * 1001,
        "[1e99999]",
        "1e-10001",
        "1e99999999999999999999",
        "0e99999999999999999999",
        "0." + "1" * 1001,
        '"\x00"',
        '"a\nb"',
        "tru",
        "\u0661",
    ],
)
def test_it_refuses_json_that_is_not_strict(text: str | bytes) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_json(text)
    assert caught.value.parameter
    str(caught.value).encode()


def test_it_refuses_deep_and_large_json_without_an_interpreter_error() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, "[" * 201 + "]" * 201):
        with pytest.raises(InvalidArguments, match="deeper"):
            parse_json(text)
    with pytest.raises(InvalidArguments, match="at most"):
        parse_json(b" " * (MAX_ARGUMENTS_BYTES + 1))
    assert parse_json("[" * 200 + "]" * 200)
    assert parse_json(json.dumps({"[[[" * 200: '\\"{{{' * 200}))
    assert parse_json('"\\\\ud800"') == "\\ud800"
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


def test_parsing_is_linear_in_hostile_text() -> None:
    started = time.perf_counter()
    for text in ('"' + "\\" * 1_000_000, "[" * 250 + '"\\' * 400_000, "{" + ",".join(f'"{n}":1' for n in range(90_000)) + ',"89999":1}'):
        with pytest.raises(InvalidArguments):
            parse_json(text)
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("parsed", [[1], None, "x", 3])
def test_arguments_must_be_an_object(parsed: Any) -> None:
    with pytest.raises(InvalidArguments, match="object"):
        plain_arguments_codec(parsed)


# ---- codec text from a client


@pytest.mark.parametrize(
    "text",
    [
        '{"$c4a":"wat","v":1}',
        '{"$c4a":1,"v":1}',
        '{"$c4a":"date"}',
        '{"$c4a":"date","v":1}',
        '{"$c4a":"date","v":"2025-1-1"}',
        '{"$c4a":"date","v":"20250101"}',
        '{"$c4a":"date","v":"2025-01-01","x":1}',
        '{"$c4a":"datetime","v":"2025-01-01 10:00:00"}',
        '{"$c4a":"datetime","v":"2025-01-01T10:00:00Z"}',
        '{"$c4a":"bytes","v":"eA"}',
        '{"$c4a":"bytes","v":"eB=="}',
        '{"$c4a":"uuid","v":"x"}',
        '{"$c4a":"uuid","v":"0F8FAD5B-D9CB-469F-A165-70867728950E"}',
        '{"$c4a":"decimal","v":"NaN"}',
        '{"$c4a":"decimal","v":1}',
        '{"$c4a":"decimal","v":"1_0"}',
        '{"$c4a":"decimal","v":"１"}',
        '{"$c4a":"float","v":"nan"}',
        '{"$c4a":"str","v":"\\\\ud800"}',
        '{"$c4a":"timedelta","v":"1.5"}',
        '{"$c4a":"timedelta","v":"99999999999999999999999"}',
        '{"$c4a":"map","v":[1]}',
        '{"$c4a":"map","v":[1,2,1.0,3]}',
        '{"$c4a":"set","v":[1,1]}',
        '{"$c4a":"set","v":{}}',
        '{"$c4a":"secret","kind":"Secret","v":"hunter2"}',
        '{"$c4a":"enum","class":"Color","v":"RED"}',
        '{"$c4a":"enum","class":"m:C","v":[]}',
        '{"$c4a":"dataclass","class":"m:C","v":[]}',
        '{"$c4a":"dataclass","v":{}}',
        '{"$c4a":"number","v":"1e0"}',
        '{"$c4a":"path","class":"Loud","v":"a"}',
        '{"$c4a":"path","class":"PosixPath","v":1}',
        '{"$c4a":"range","v":[1,2]}',
        '{"$c4a":"range","v":[1,2,0]}',
        '{"$c4a":"ipv4address","v":"1.2.3"}',
        '{"$c4a":"ordereddict","v":[]}',
        '{"$c4a":"defaultdict","factory":"eval","v":{}}',
        '{"$c4a":"defaultdict","factory":[],"v":{}}',
        '{"$c4a":"fraction","v":[1,0]}',
        '{"$c4a":[],"v":1}',
        '{"$c4a":"set","v":[[1]]}',
        '{"$c4a":"set","v":[{"$c4a":"tuple","v":[{"a":1}]}]}',
        '{"$c4a":"map","v":[{"$c4a":"bytearray","v":""},1]}',
        '{"$c4a":"deque","maxlen":1,"v":[1,2]}',
        '{"$c4a":"deque","maxlen":true,"v":[]}',
        '{"$c4a":"complex","v":[1,0]}',
        '{"$c4a":"datetime","v":"2025-01-01T10:00:00","fold":"1"}',
        '{"$c4a":"datetime","v":"2025-01-01T10:00:00","zone":1}',
        '{"$c4a":"model","class":"m:C","set":[1],"v":{}}',
        '{"$c4a":"dataclass","class":"m:C","more":[],"v":{}}',
        '{"$c4a":"dataclass","class":"m:C","unset":{"a":1},"v":{}}',
        "0.1000000000000000055511151231257827",
        "1e400",
    ],
)
def test_it_refuses_codec_text_that_the_codec_never_writes(text: str) -> None:
    for whole in (text, f'{{"p":[{text}]}}'):
        with pytest.raises(InvalidArguments):
            canonical_from_codec(whole)


def test_a_map_that_needs_no_escape_is_the_plain_object() -> None:
    assert canonical_from_codec('{"$c4a":"map","v":["b",1,"a",2]}') == '{"a":2,"b":1}'


def test_reading_codec_text_loads_no_class() -> None:
    before = set(sys.modules)
    text = canonical_from_codec('{"$c4a":"dataclass","class":"antigravity:Charge","v":{"amount":1}}')
    assert text == '{"$c4a":"dataclass","class":"antigravity:Charge","v":{"amount":1}}'
    assert "antigravity" not in set(sys.modules) - before


# ---- threads and speed


def test_both_texts_are_of_one_moment_even_if_another_thread_changes_the_value() -> None:
    rows: list[Any] = [[0, "x"] for _ in range(50)]
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for row in rows:
                row[0] = number

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            canonical, codec = encode_arguments({"rows": rows})
            assert canonical_from_codec(codec) == canonical
    finally:
        stop.set()
        thread.join()
