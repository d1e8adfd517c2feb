"""The typed codec: the same type and value come back, and nothing a record names is run."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import enum
import ipaddress
import json
import math
import pathlib
import pickle
import sqlite3
import traceback
import types
import uuid
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pydantic
import pydantic.v1
import pytest
from hypothesis import given
from hypothesis import strategies as st

from c4a.canonical import canonical_from_codec, canonical_text, encode_arguments
from c4a.codec import StandIn, decode, encode
from c4a.errors import InvalidArguments, RecordDamaged
from c4a.secret import RecordedSecret, Secret
from tests.library import cast
from tests.library.cast import Charge, Color, Invoice, Level, Line, Loud, OldPoint, Order, Parcel, Point, Refund, Right
from tests.library.values import same, values

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "values.json").read_text())["values"]
NAMES: dict[str, Any] = {
    **vars(datetime),
    **vars(collections),
    **vars(pathlib),
    **vars(uuid),
    **vars(ipaddress),
    **vars(cast),
    "Decimal": Decimal,
    "Fraction": Fraction,
    "Secret": Secret,
}


def again(value: object, **options: Any) -> Any:
    return decode(encode(value, digest_key=b"digest-key"), **options)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_it_writes_the_vectors_and_reads_them_back(vector: dict[str, str]) -> None:
    value = eval(vector["python"], NAMES)
    assert encode(value, digest_key=b"digest-key") == vector["codec"]
    if vector["name"] != "secret":
        assert same(decode(vector["codec"]), value)


@given(values)
def test_what_comes_back_is_the_same_type_and_value(value: Any) -> None:
    text = encode(value)
    assert same(decode(text), value)
    assert encode(decode(text)) == text
    assert "\0" not in text
    assert text.encode().decode() == text


@given(st.text(st.characters()), st.text(st.characters(categories=["Cs"])))
def test_any_text_comes_back_even_one_that_utf_8_cannot_hold(text: str, lone: str) -> None:
    for value in (text, lone, text + lone, lone + "\\" + text, {lone: text}, f"\\ud800{lone}"):
        encode(value).encode()
        assert again(value) == value


# ---- cases by id


@pytest.mark.parametrize(
    "value",
    [
        Level.HIGH,
        [Level.HIGH, 2],
        Color.BLUE,
        Right.READ,
        Right.READ | Right.WRITE,
        Right(0),
        bytearray(b"ab"),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.OrderedDict([(1, 2)]),
        uuid.uuid4(),
        Path("/tmp/x"),
        pathlib.PurePosixPath("a"),
        pathlib.PureWindowsPath("C:/x"),
        Point(1, 2),
        OldPoint(1, y=[2]),
        datetime.timedelta(days=-1, microseconds=3),
        (1, (2, [3])),
        (),
        {"a"},
        frozenset(),
        Decimal("123.400"),
        Decimal("-0E+3"),
        Decimal("NaN"),
        math.inf,
        -0.0,
        10.0,
        True,
        Charge("bob", 3),
        [Charge(), Refund()],
        Parcel(1.5, ["x"]),
        Line("a", 1),
        collections.Counter("aab"),
        collections.defaultdict(list, a=[1]),
        collections.defaultdict(None, a=1),
        collections.deque([1, 2], 2),
        range(1, 9, 3),
        Fraction(1, 3),
        1 + 2j,
        {1: "a", "1": "b"},
        {"$c4a": 1},
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.IPv6Interface("::1/64"),
        datetime.time(1, 2, tzinfo=datetime.timezone.utc),
        {Point(1, 2): {Color.RED: (1,)}},
        types.MappingProxyType({"a": 1}),
        datetime.datetime.max,
        datetime.date.min,
        [None, {}, [], ""],
    ],
    ids=lambda value: type(value).__name__,
)
def test_c_d1_the_same_type_comes_back_on_every_repeat(value: Any) -> None:
    text = encode(value)
    for _ in range(2):
        back = decode(text)
        assert type(back) is type(value)
        assert repr(back) == repr(value)
        assert encode(back) == text


def test_c_d1_a_dataclass_with_init_false_fields_comes_back_without_running_its_code() -> None:
    order = Order([Line("a", 2)])
    order.total = 99
    back = again(order)
    assert type(back) is Order
    assert (back.lines, back.total, back.opened_by) == (order.lines, 99, "alice")
    assert not hasattr(back, "note")
    assert back.skus == ["a"]


def test_c_d1_a_local_dataclass_comes_back_by_annotation_or_is_refused_at_once() -> None:
    @dataclasses.dataclass
    class Receipt:
        id: str
        parts: list[Any]

    @dataclasses.dataclass
    class Part:
        n: int

    receipt = Receipt("r1", [Part(1)])
    with pytest.raises(InvalidArguments, match="cannot be found again by name"):
        encode(receipt)
    with pytest.raises(InvalidArguments, match="Part"):
        encode(receipt, annotation=Receipt)
    for annotation in (tuple[Receipt, list[Part]], dict[str, Receipt | Part], Receipt | Part | None):
        text = encode(receipt, annotation=annotation)
        assert decode(text, annotation=annotation) == receipt
    assert encode_arguments({"receipt": receipt})[0].startswith(
        '{"receipt":{"$c4a":"dataclass","class":"tests.library.test_codec:test_c_d1_'
    )


def test_a_local_class_inside_a_field_is_found_through_the_annotation_of_the_field() -> None:
    class Side(enum.Enum):
        LEFT = 1

    holder: Any = dataclasses.make_dataclass("Holder", [("side", Side | None), ("sides", dict[str, Side])])
    holder.__module__ = "nowhere"
    value = holder(Side.LEFT, {"a": Side.LEFT})
    assert decode(encode(value, annotation=list[holder]), annotation=list[holder]) == value


def invoice_made(**fields: Any) -> Invoice:
    return Invoice.model_validate({"invoiceNumber": 7, **fields})


def test_c_f3_an_aliased_field_comes_back_and_a_secret_is_masked() -> None:
    invoice = invoice_made(lines=[Line("a", 1)], token="hunter2", colour="red")
    invoice._seen = 3
    text = encode(invoice, digest_key=b"digest-key")
    assert "hunter2" not in text
    for _ in range(2):
        back: Any = decode(text)
        assert type(back).__name__ == "Invoice"
        assert isinstance(invoice, type(back))
        assert (back.number, back.lines, back._seen, back.colour) == (7, [Line("a", 1)], 3, "red")
        assert back.model_fields_set == invoice.model_fields_set
        assert isinstance(back.token, RecordedSecret)
        assert str(back.token) == "**********"
        with pytest.raises(LookupError, match="digest"):
            back.token.get_secret_value()
        assert encode(back, digest_key=b"digest-key") == text
    bare = Invoice(invoiceNumber=7)
    assert again(bare) == bare


def test_models_of_the_version_1_interface_come_back() -> None:
    back = again(OldInvoice.parse_obj({"invoiceNumber": 7, "token": "hunter2"}))
    assert type(back) is OldInvoice
    assert back.number == 7
    assert back.__fields_set__ == {"number", "token"}
    assert str(back.token) == "**********"


class OldInvoice(pydantic.v1.BaseModel):
    """A model of the version 1 interface."""

    number: int = pydantic.v1.Field(alias="invoiceNumber")
    token: pydantic.v1.SecretStr = pydantic.v1.SecretStr("")


def test_models_are_told_apart_by_class_and_by_all_they_hold() -> None:
    other = pydantic.create_model("Invoice", number=(int, 7))
    texts = {
        canonical_text(value, digest_key=b"k")
        for value in (
            Invoice(invoiceNumber=7),
            other(),
            {"number": 7},
            invoice_made(colour="red"),
            invoice_made(token="a"),
            invoice_made(token="b"),
        )
    }
    assert len(texts) == 6


HOSTILE = {"log": "a\0b", "half": "\ud800", "pair": "\ud83d\ude00", "both": "\0\udfff\\ud800\\", "\0\ud800": ["\0"]}


def test_case_20_nul_and_lone_surrogates_in_a_result_survive_postgresql_and_sqlite(postgres_url: str) -> None:
    text = encode(HOSTILE)
    with sqlite3.connect(":memory:") as file:
        assert decode(file.execute("SELECT ?", (text,)).fetchone()[0]) == HOSTILE
    with psycopg.connect(postgres_url) as database:
        database.execute("CREATE TABLE kept (result text)")
        database.execute("INSERT INTO kept VALUES (%s)", (text,))
        row = database.execute("SELECT result FROM kept").fetchone()
    assert row is not None
    assert decode(row[0]) == HOSTILE
    file.close()


def test_case_20_nul_in_arguments_is_escaped_in_both_texts() -> None:
    assert encode_arguments({"log": "a\0b"}) == ('{"log":"a\\u0000b"}', '{"log":"a\\u0000b"}')
    assert encode_arguments({"\0": 1.5}) == ('{"\\u0000":1.5}', '{"\\u0000":1.5}')


# ---- times


def test_an_aware_datetime_keeps_its_offset_and_its_zone_s_name() -> None:
    import zoneinfo

    athens = zoneinfo.ZoneInfo("Europe/Athens")
    for moment in (
        datetime.datetime(2025, 7, 1, 9, tzinfo=athens),
        datetime.datetime(2025, 10, 26, 3, 30, tzinfo=athens, fold=1),
        datetime.datetime(2025, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2), "EET")),
        datetime.datetime(2025, 1, 1, tzinfo=datetime.timezone.utc),
        datetime.time(9, tzinfo=athens),
        datetime.datetime(2025, 1, 1, fold=1),
    ):
        back = again(moment)
        assert back == moment
        assert (back.tzname(), back.tzinfo, back.fold) == (moment.tzname(), moment.tzinfo, moment.fold)


def test_a_zone_whose_rules_changed_or_that_is_unknown_never_moves_the_instant() -> None:
    for zone in ("Europe/Athens", "Nowhere/Land", "../../etc/passwd", ""):
        text = json.dumps({"$c4a": "datetime", "v": "2025-01-01T09:00:00+09:00", "zone": zone})
        back: Any = decode(text)
        assert back.isoformat() == "2025-01-01T09:00:00+09:00"


def test_a_tzinfo_without_an_offset_is_refused() -> None:
    class Broken(datetime.tzinfo):
        def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta | None:
            return None

        dst = utcoffset

        def tzname(self, moment: datetime.datetime | None) -> str | None:
            return None

    with pytest.raises(InvalidArguments, match="offset"):
        encode(datetime.datetime(2025, 1, 1, tzinfo=Broken()))


# ---- what is not understood is refused, never lost


class Shout(str):
    __slots__ = ()


class Cents(int):
    pass


class Rows(list[int]):
    pass


class Table(dict[str, int]):
    pass


class Moment(datetime.datetime):
    pass


class NamedPlus(Point):
    pass


@dataclasses.dataclass
class DataList(list[int]):
    n: int = 0


@pytest.mark.parametrize(
    "value",
    [
        Shout("a"),
        Cents(1),
        Rows([1]),
        Table(a=1),
        Moment(2025, 1, 1),
        DataList(),
        collections.defaultdict(lambda: 1),
        object(),
        Loud,
        len,
        iter([]),
        {"k": Shout("v")},
    ],
)
def test_what_is_not_understood_is_refused(value: object) -> None:
    with pytest.raises(InvalidArguments):
        encode(value, path="result")


def test_a_named_tuple_with_more_than_its_fields_is_refused() -> None:
    point = NamedPlus(1, 2)
    point.label = "x"  # type: ignore[attr-defined]
    with pytest.raises(InvalidArguments, match="more than its fields"):
        encode(point)


def test_a_field_that_cannot_be_read_is_refused_naming_the_place() -> None:
    with pytest.raises(InvalidArguments, match="raised ZeroDivisionError") as caught:
        encode([Trap()], path="result")
    assert caught.value.parameter == "result[0]"


@dataclasses.dataclass
class Trap:
    value: int = 0

    def __getattribute__(self, name: str) -> Any:
        return 1 / 0 if name == "value" else super().__getattribute__(name)


# ---- reading runs nothing


def read(**tag: Any) -> Any:
    return decode(json.dumps({"$c4a": tag.pop("tag", "dataclass"), **tag}))


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("dataclass", "os:system"),
        ("dataclass", "subprocess:Popen"),
        ("dataclass", "builtins:eval"),
        ("dataclass", "antigravity:x"),
        ("dataclass", "tests.library.cast:Loud"),
        ("dataclass", "tests.library.cast:Color"),
        ("enum", "tests.library.cast:Charge"),
        ("model", "tests.library.cast:Charge"),
        ("attrs", "tests.library.cast:Charge"),
        ("namedtuple", "builtins:tuple"),
        ("model", "pydantic.main:BaseModel"),
        ("dataclass", "tests.library.test_codec:Charge"),
        ("dataclass", ":"),
        ("dataclass", ""),
        ("dataclass", "tests.library.cast:Charge.__init__.__globals__"),
        ("dataclass", "tests.library.test_codec:DataList"),
    ],
)
def test_a_name_in_a_record_never_reaches_anything_but_a_real_class_of_its_kind(tag: str, name: str) -> None:
    back = read(tag=tag, **{"class": name, "v": "RED" if tag == "enum" else {"to": "alice", "amount": 1}})
    assert type(back) is StandIn
    assert back.class_name == name


def test_a_module_s_own_getattr_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            ran.append(name)
            return super().__getattribute__(name)

    monkeypatch.setitem(__import__("sys").modules, "lazy_for_test", Lazy("lazy_for_test"))
    assert type(read(**{"class": "lazy_for_test:Charge", "v": {}})) is StandIn
    assert ran == []


def test_neither_init_nor_validators_run_on_reading() -> None:
    ran: list[str] = []

    @dataclasses.dataclass(frozen=True)
    class Payment:
        amount: int

        def __post_init__(self) -> None:
            ran.append("post_init")

    class Model(pydantic.BaseModel):
        amount: int

        @pydantic.field_validator("amount")
        @classmethod
        def checked(cls, value: int) -> int:
            ran.append("validator")
            return value

    made = (Payment(1), Model(amount=2))
    ran.clear()
    annotation = tuple[Payment, Model]
    assert decode(encode(made, annotation=annotation), annotation=annotation) == made
    assert ran == []


def test_a_stand_in_shows_the_fields_stays_frozen_and_encodes_to_what_it_came_from() -> None:
    text = '{"$c4a":"dataclass","class":"shop.old:Charge","v":{"amount":10,"at":{"$c4a":"date","v":"2025-01-01"}}}'
    back: Any = decode(text)
    assert type(back) is StandIn
    assert (back.amount, back.at, back.kind) == (10, datetime.date(2025, 1, 1), "dataclass")
    assert encode(back) == text
    assert canonical_text(back) == canonical_from_codec(text)
    assert repr(back) == "<recorded shop.old:Charge(amount=10, at=datetime.date(2025, 1, 1))>"
    assert {back: 1}[pickle.loads(pickle.dumps(copy.deepcopy(back)))] == 1
    with pytest.raises(AttributeError, match="no field 'to'"):
        back.to  # noqa: B018
    with pytest.raises(AttributeError, match="cannot be changed"):
        back.amount = 5
    with pytest.raises(TypeError):
        back.fields["amount"] = 5


def test_a_class_whose_fields_changed_since_gives_a_stand_in() -> None:
    for content in ({"to": "a", "amount": 1, "gone": 2}, {"to": "a"}):
        assert type(read(**{"class": "tests.library.cast:Charge", "v": content})) is StandIn
    assert type(read(tag="enum", **{"class": "tests.library.cast:Color", "v": "GONE"})) is StandIn
    assert type(read(tag="namedtuple", **{"class": "tests.library.cast:Point", "v": {"x": 1}})) is StandIn


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"$c4a":"wat","v":1}',
        '{"$c4a":"date","v":"x"}',
        '{"$c4a":"map","v":[1]}',
        '{"$c4a":"bytes","v":"*"}',
        '{"$c4a":"set","v":[[]]}',
        '{"$c4a":"tuple"}',
        '{"$c4a":{},"v":1}',
        '{"$c4a":"decimal","v":"x"}',
        '{"$c4a":"dataclass","v":{}}',
        "[" * 100_000,
        '{"$c4a":"defaultdict","factory":"eval","v":{}}',
    ],
)
def test_text_that_is_not_codec_text_is_a_damaged_record(text: str) -> None:
    with pytest.raises(RecordDamaged):
        decode(text)


@pytest.mark.parametrize(
    "text", ['{"$c4a":"map","v":[1,"a",true,"b"]}', '{"$c4a":"set","v":[0,false]}', '{"$c4a":"frozenset","v":[1,1.0]}']
)
def test_nothing_gets_lost_where_python_knows_one_key_and_the_record_two(text: str) -> None:
    with pytest.raises(RecordDamaged, match="equal"):
        decode(text)


def test_the_key_of_an_attrs_object_does_not_change_when_it_is_hashed() -> None:
    first, second = Badge("a"), Badge("a")
    hash(first)
    assert canonical_text(first) == canonical_text(second)
    assert again(first) == first


@attrs.frozen(cache_hash=True)
class Badge:
    """Remembers its hash, which differs between processes."""

    name: str


def test_a_tag_spelt_with_an_escape_is_a_tag_all_the_same() -> None:
    text = '{"\\u0024c4a":"date","v":"2025-01-01"}'
    assert decode(text) == datetime.date(2025, 1, 1)
    assert canonical_from_codec(text) == canonical_text(decode(text))


# ---- secrets


def test_a_secret_is_keyed_by_its_digest_and_never_written() -> None:
    texts = [encode_arguments({"token": secret}, digest_key=b"k") for secret in (Secret("a-token"), pydantic.SecretStr("a-token"))]
    assert texts[0][0] == texts[1][0]
    assert all("a-token" not in text for pair in texts for text in pair)
    others = [Secret("a-tokem"), Secret(b"a-token"), pydantic.SecretBytes(b"a-token")]
    assert texts[0][0] not in {encode_arguments({"token": other}, digest_key=b"k")[0] for other in others}
    assert encode_arguments({"token": Secret("a-token")}, digest_key=b"other")[0] != texts[0][0]


def test_a_secret_without_a_digest_key_is_refused_saying_what_to_do() -> None:
    for secret in (Secret("a-token"), pydantic.SecretStr("a-token"), pydantic.SecretBytes(b"a-token")):
        with pytest.raises(InvalidArguments, match="digest_key=") as caught:
            encode_arguments({"auth": {"token": secret}})
        assert caught.value.parameter == "args.auth.token"
        assert "a-token" not in "".join(traceback.format_exception(caught.value))


def test_a_secret_shows_itself_nowhere() -> None:
    secret = Secret("hunter2")
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>20}",
        str.format("{}", secret),
        repr([secret]),
        repr({"a": secret}),
        f"{secret:>12}",
    ]
    shown += [repr(copy.deepcopy(secret)), str(dir(secret)), repr(dataclasses.asdict(Charge(to=secret)))]  # type: ignore[arg-type]
    assert all("hunter2" not in text for text in shown)
    assert not hasattr(secret, "__dict__")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(secret, protocol)
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(AttributeError):
        secret.value = 1


def test_secrets_compare_by_value_and_reveal_it() -> None:
    assert Secret("a").reveal() == "a"
    assert Secret("a") == Secret("a")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != Secret(b"a")
    assert Secret("a") != "a"
    with pytest.raises(TypeError, match="str or bytes"):
        Secret(7)  # type: ignore[arg-type]


def test_a_recorded_secret_keeps_its_digest_but_not_its_value() -> None:
    text = encode(Secret("hunter2"), digest_key=b"k")
    back: Any = decode(text)
    assert (str(back), encode(back), back == decode(text), back == Secret("hunter2")) == ("**********", text, True, False)
    with pytest.raises(LookupError):
        back.reveal()
