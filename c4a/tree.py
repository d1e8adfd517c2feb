"""Values to codec trees: JSON trees in which everything that is not plain JSON is a tagged object `{"$c4a": tag, …}`.

A tree holds exact `dict` (text keys), `list`, `str` (no lone surrogates), `int`, `float` (finite), `bool` and None only.
"""

from __future__ import annotations

import base64
import collections
import datetime
import enum
import json
import math
import pathlib
import re
import sys
import types
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from c4a.classes import KnownClasses, class_name, class_tag, field_names
from c4a.errors import C4AError, InvalidArguments
from c4a.numerals import MAX_DIGITS, NumberRefused, check_integer, decimal_text
from c4a.refusals import MAX_DEPTH, Place, refuse, refuse_depth
from c4a.secret import RecordedSecret, Secret, secret_digest
from c4a.stack import run_deep

TAG = "$c4a"

# A factory in a record is only ever one of these names.
FACTORIES: dict[str, Callable[[], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "dict": dict,
    "set": set,
    "tuple": tuple,
    "bool": bool,
}

_SURROGATES = re.compile("[\ud800-\udfff]")
_MISSING = object()

_compact: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


def compact_text(tree: Any) -> str:
    """The JSON text of a tree, keys in the order they stand."""
    return run_deep(lambda: _compact(tree))


class StandIn:
    """What comes back for a class that is not loaded here: its name and its fields, frozen; the class's code never ran.

    `stand_in.amount` reads a field; `kind` is `dataclass`, `attrs`, `model`, `namedtuple`, `enum` or `flag`; `fields` is a
    read-only mapping (for an enum or flag: `{"member": …}`). Encoded again it gives the text it came from.
    """

    __slots__ = ("_tree", "class_name", "fields", "kind")

    def __init__(self, tree: dict[str, Any], fields: dict[str, Any]) -> None:
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "kind", tree[TAG])
        object.__setattr__(self, "class_name", tree["class"])
        object.__setattr__(self, "fields", types.MappingProxyType(fields))

    def __getattr__(self, name: str) -> Any:
        if name in StandIn.__slots__ or name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"the recorded {self.class_name} has no field {name!r}; it has {sorted(self.fields)}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a recorded {self.class_name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandIn) and compact_text(self._tree) == compact_text(other._tree)

    def __hash__(self) -> int:
        return hash(compact_text(self._tree))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"<recorded {self.class_name}({inside})>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (StandIn, (self._tree, dict(self.fields)))


def is_storable(text: str) -> bool:
    """True if the text has no lone surrogate, so that UTF-8 can hold it."""
    return text.isascii() or _SURROGATES.search(text) is None


def escape_surrogates(text: str) -> str:
    """Lone surrogates as `\\udXXX` and backslashes doubled: reversible text that UTF-8 can hold."""
    return _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\\", "\\\\"))


def unescape_surrogates(text: str) -> str:
    """Undo `escape_surrogates`."""
    return re.sub(r"\\(\\|u[0-9a-f]{4})", lambda found: "\\" if found[1] == "\\" else chr(int(found[1][1:], 16)), text)


class TreeWriter:
    """Turns one value into a tree; made anew for each value.

    `arguments`: refuse what has no canonical text (NaN, lone surrogates). `findable`: refuse classes that `decode` could not
    find again here, looking in the annotation it holds. `plain`: the value is `parse_json` output, where a Decimal is only a
    number. `room`: how many characters and items may still be written. `simple` stays True while sorting the keys is all that
    canonical text needs.
    """

    __slots__ = ("arguments", "digest_key", "findable", "plain", "room", "simple")

    def __init__(
        self, *, digest_key: bytes | None, room: int, arguments: bool = False, findable: KnownClasses | None = None, plain: bool = False
    ) -> None:
        self.digest_key = digest_key
        self.room = room
        self.arguments = arguments
        self.findable = findable
        self.plain = plain
        self.simple = True

    def write(self, value: Any, place: Place, depth: int) -> Any:
        """The tree of a value that stands inside `depth` containers.

        Raises:
            InvalidArguments: no stable form, too deep, too large, or a cycle; names the place.
        """
        kind = type(value)
        if kind is str:
            return self._text(value, place)
        if kind is int:
            return self._integer(value, place)
        if kind is bool or value is None:
            return value
        if kind is dict:
            return self._mapping(value, place, depth)
        if kind is list:
            return self._items(value, place, depth)
        self.simple = False
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(self, value, place, depth)
        tag = class_tag(kind)
        return self._instance(value, kind, tag, place, depth) if tag else self._other(value, place, depth)

    def _text(self, value: str, place: Place) -> Any:
        self._spend(len(value), place)
        if is_storable(value):
            return value
        if self.arguments:
            refuse(place, "the text has a lone surrogate (half of a UTF-16 pair), which UTF-8 cannot hold; decode it properly first")
        self.simple = False
        return {TAG: "str", "v": escape_surrogates(value)}

    def _integer(self, value: int, place: Place) -> int:
        if not -9007199254740992 <= value <= 9007199254740992:
            self.simple = False
            try:
                check_integer(value)
            except NumberRefused as refused:
                refuse(place, f"{refused}; pass it as text")
        return value

    def _items(self, value: Any, place: Place, depth: int) -> list[Any]:
        if depth >= MAX_DEPTH:
            refuse_depth(place)
        self._spend(2 * len(value), place)
        # No comprehension: on Python 3.11 it takes a frame, and 200 levels must fit into 1,000 frames.
        trees: list[Any] = []
        for index, item in enumerate(value):
            trees.append(self.write(item, (place, index, item), depth + 1))
        return trees

    def _mapping(self, value: Any, place: Place, depth: int) -> dict[str, Any]:
        if depth >= MAX_DEPTH:
            refuse_depth(place)
        self._spend(2 * len(value), place)
        tree: dict[str, Any] = {}
        for key, item in list(value.items()):
            if type(key) is not str or key == TAG or not is_storable(key):
                return self._pairs(value, place, depth)
            if self.simple and not key.isascii():
                self.simple = False
            self.room -= len(key)
            tree[key] = self.write(item, (place, key, item), depth + 1)
        return tree

    def _pairs(self, value: Any, place: Place, depth: int) -> dict[str, Any]:
        """Keys that are no text, or look like a tag: a flat list of key, value, key, value."""
        self.simple = False
        flat: list[Any] = []
        for key, item in list(value.items()):
            flat.append(self.write(key, (place, key, key), depth + 1))
            flat.append(self.write(item, (place, key, item), depth + 1))
        return {TAG: "map", "v": flat}

    def _spend(self, size: int, place: Place) -> None:
        self.room -= size
        if self.room < 0:
            refuse(place, "the value is too large to record; pass a reference to it (an id, a path, a digest) instead")

    def _other(self, value: Any, place: Place, depth: int) -> Any:
        cls = type(value)
        late = _LATE_WRITERS.get((cls.__module__, cls.__qualname__))
        if late is not None:
            return late(self, value, place, depth)
        hidden = _hidden_value(value)
        if hidden is None:
            refuse(place, _no_stable_form(cls))
        return self._secret(hidden, cls.__name__, place)

    def _instance(self, value: Any, cls: type, tag: str, place: Place, depth: int) -> dict[str, Any]:
        if depth >= MAX_DEPTH:
            refuse_depth(place)
        name = class_name(cls)
        if self.findable is not None and self.findable.find(name, tag) is not cls:
            refuse(
                place,
                f"the class {cls.__qualname__} cannot be found again by name; "
                "move it to module level or put it in the function's return annotation",
            )
        tree: dict[str, Any] = {TAG: tag, "class": name}
        try:
            tree.update(_STATE[tag](self, value, place, depth))
        except (C4AError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001 - properties and descriptors are anybody's code
            refuse(place, f"reading the fields of this {cls.__qualname__} raised {type(error).__qualname__}")
        return tree

    def _secret(self, plain: str | bytes, kind: str, place: Place) -> dict[str, Any]:
        if self.digest_key is None:
            refuse(place, "a secret needs the organization's digest key: pass digest_key= to c4a.init, or keep it in .c4a/digest-key")
        return {TAG: "secret", "kind": kind, "v": secret_digest(plain, self.digest_key)}


_WELL_KNOWN = (str, bytes, int, float, list, dict, tuple, set, datetime.datetime, datetime.date, Decimal, uuid.UUID, pathlib.PurePath)


def _no_stable_form(cls: type) -> str:
    name = cls.__qualname__
    for base in _WELL_KNOWN:
        if issubclass(cls, base):
            plain = base.__name__
            return (
                f"{name} is a kind of {plain} whose extra meaning would be lost; pass a {plain} made of it, or c4a_key= to name the action"
            )
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return f"{article} {name} has no stable text form; pass plain values or a dataclass, or c4a_key= to name the action yourself"


def _hidden_value(value: Any) -> str | bytes | None:
    """The plain value of a Pydantic SecretStr or SecretBytes, else None."""
    module = sys.modules.get("pydantic.types"), sys.modules.get("pydantic.v1.types")
    for loaded in module:
        kinds = tuple(vars(loaded)[name] for name in ("SecretStr", "SecretBytes") if name in vars(loaded)) if loaded else ()
        if kinds and isinstance(value, kinds):
            plain = value.get_secret_value()
            return plain if isinstance(plain, (str, bytes)) else None
    return None


def _write_secret(writer: TreeWriter, value: Secret, place: Place, depth: int) -> Any:
    if isinstance(value, RecordedSecret):
        return {TAG: "secret", "kind": value.kind, "v": value.digest}
    return writer._secret(value.reveal(), "Secret", place)


def _write_stand_in(writer: TreeWriter, value: StandIn, place: Place, depth: int) -> Any:
    return value._tree


def _write_float(writer: TreeWriter, value: float, place: Place, depth: int) -> Any:
    if math.isfinite(value):
        return value
    if writer.arguments:
        refuse(place, f"{value} is not a number JSON can hold; pass None or text")
    return {TAG: "float", "v": repr(value)}


def _write_decimal(writer: TreeWriter, value: Decimal, place: Place, depth: int) -> Any:
    if not value.is_finite() and not writer.arguments:
        return {TAG: "decimal", "v": str(value)}
    try:
        decimal_text(value)
    except NumberRefused as refused:
        refuse(place, f"{refused} (at most {MAX_DIGITS} digits); pass it as text")
    if writer.plain:
        double = float(value)
        if math.isfinite(double) and Decimal(repr(double)).as_tuple() == value.as_tuple():
            return double
    return {TAG: "decimal", "v": str(value)}


def _write_bytes(writer: TreeWriter, value: Any, place: Place, depth: int) -> Any:
    writer._spend(len(value), place)
    return {TAG: "bytes" if type(value) is bytes else "bytearray", "v": base64.b64encode(value).decode()}


def _write_date(writer: TreeWriter, value: datetime.date, place: Place, depth: int) -> Any:
    return {TAG: "date", "v": value.isoformat()}


def _write_time(writer: TreeWriter, value: Any, place: Place, depth: int) -> Any:
    """A time or datetime: its ISO text (with offset), the zone's name where it has one, and the fold."""
    tree: dict[str, Any] = {TAG: "datetime" if type(value) is datetime.datetime else "time"}
    try:
        tree["v"] = value.isoformat()
    except Exception:  # noqa: BLE001 - a tzinfo is anybody's code
        refuse(place, "its tzinfo gives no valid offset; pass a datetime with datetime.timezone or zoneinfo.ZoneInfo")
    zone = getattr(value.tzinfo, "key", None) or getattr(value.tzinfo, "zone", None)
    if value.tzinfo is not None and type(zone) is str and is_storable(zone):
        tree["zone"] = zone
    elif value.tzinfo is not None and value.utcoffset() is None:
        refuse(place, "its tzinfo gives no offset; pass a datetime with datetime.timezone or zoneinfo.ZoneInfo")
    elif type(value.tzinfo) is datetime.timezone and value.tzinfo != datetime.timezone.utc:
        tree.update(_zone_name(value.tzinfo))
    if value.fold:
        tree["fold"] = 1
    return tree


def _zone_name(zone: datetime.timezone) -> dict[str, str]:
    name = zone.tzname(None)
    return {"name": name} if name != datetime.timezone(zone.utcoffset(None)).tzname(None) and is_storable(name) else {}


def _write_timedelta(writer: TreeWriter, value: datetime.timedelta, place: Place, depth: int) -> Any:
    return {TAG: "timedelta", "v": str(value // datetime.timedelta(microseconds=1))}


def _write_uuid(writer: TreeWriter, value: uuid.UUID, place: Place, depth: int) -> Any:
    return {TAG: "uuid", "v": str(value)}


def _write_path(writer: TreeWriter, value: pathlib.PurePath, place: Place, depth: int) -> Any:
    return {TAG: "path", "class": type(value).__name__, "v": writer.write(str(value), place, depth)}


def _write_tuple(writer: TreeWriter, value: tuple[Any, ...], place: Place, depth: int) -> Any:
    return {TAG: "tuple", "v": writer._items(value, place, depth)}


def _write_set(writer: TreeWriter, value: Any, place: Place, depth: int) -> Any:
    # Sorted, so that a set has one text whatever order its hashes gave.
    return {TAG: type(value).__name__, "v": sorted(writer._items(list(value), place, depth), key=compact_text)}


def _write_deque(writer: TreeWriter, value: Any, place: Place, depth: int) -> Any:
    return {TAG: "deque", "maxlen": value.maxlen, "v": writer._items(list(value), place, depth)}


def _write_mapping(writer: TreeWriter, value: Any, place: Place, depth: int) -> Any:
    return {TAG: type(value).__name__.lower(), "v": writer._mapping(value, place, depth)}


def _write_defaultdict(writer: TreeWriter, value: Any, place: Place, depth: int) -> Any:
    factory = value.default_factory
    names = [name for name, known in FACTORIES.items() if factory is known]
    if factory is not None and not names:
        refuse(place, "a defaultdict's default_factory cannot be recorded unless it is a built-in type; pass dict(…) of it")
    return {TAG: "defaultdict", "factory": names[0] if names else None, "v": writer._mapping(value, place, depth)}


def _write_range(writer: TreeWriter, value: range, place: Place, depth: int) -> Any:
    return {TAG: "range", "v": [writer._integer(part, place) for part in (value.start, value.stop, value.step)]}


def _write_complex(writer: TreeWriter, value: complex, place: Place, depth: int) -> Any:
    return {TAG: "complex", "v": [writer.write(value.real, place, depth), writer.write(value.imag, place, depth)]}


def _write_text_form(writer: TreeWriter, value: object, place: Place, depth: int) -> Any:
    return {TAG: type(value).__name__.lower(), "v": str(value)}


def _write_fraction(writer: TreeWriter, value: Any, place: Place, depth: int) -> Any:
    return {TAG: "fraction", "v": [writer._integer(value.numerator, place), writer._integer(value.denominator, place)]}


def _enum_state(writer: TreeWriter, value: enum.Enum, place: Place, depth: int) -> dict[str, Any]:
    return {"v": writer.write(value.name, place, depth)}


def _flag_state(writer: TreeWriter, value: enum.Flag, place: Place, depth: int) -> dict[str, Any]:
    return {"v": writer.write(int(value.value), place, depth)}


def _namedtuple_state(writer: TreeWriter, value: Any, place: Place, depth: int) -> dict[str, Any]:
    if getattr(value, "__dict__", None) or len(value) != len(value._fields):
        refuse(place, f"this {type(value).__qualname__} has more than its fields; pass a dataclass")
    return {"v": writer._mapping(dict(zip(value._fields, tuple(value), strict=True)), place, depth)}


def _fields_state(writer: TreeWriter, value: Any, place: Place, depth: int) -> dict[str, Any]:
    """A dataclass or attrs instance: its fields, and under `more` whatever else was set on it."""
    cls = type(value)
    names = field_names(cls, class_tag(cls) or "")
    read = {name: getattr(value, name, _MISSING) for name in names}
    tree: dict[str, Any] = {"v": writer._mapping({name: item for name, item in read.items() if item is not _MISSING}, place, depth)}
    more = {name: item for name, item in _own_state(value).items() if name not in read and not _is_cache(cls, name)}
    if more:
        tree["more"] = writer._mapping(more, place, depth)
    unset = [name for name, item in read.items() if item is _MISSING]
    return {**tree, "unset": unset} if unset else tree


def _model_state(writer: TreeWriter, value: Any, place: Place, depth: int) -> dict[str, Any]:
    cls = type(value)
    names = field_names(cls, "model")
    tree: dict[str, Any] = {"v": writer._mapping({name: item for name, item in vars(value).items() if name in names}, place, depth)}
    version_2 = hasattr(cls, "__pydantic_decorators__")
    tree["set"] = sorted(value.__pydantic_fields_set__ if version_2 else value.__fields_set__)
    if version_2:
        found = {"extra": value.__pydantic_extra__, "private": value.__pydantic_private__}
    else:
        extra = {name: item for name, item in vars(value).items() if name not in names}
        private = {name: getattr(value, name, _MISSING) for name in cls.__private_attributes__}
        found = {"extra": extra or None, "private": {name: item for name, item in private.items() if item is not _MISSING} or None}
    for part, content in found.items():
        if content is not None:
            tree[part] = writer._mapping(content, place, depth)
    return tree


def _own_state(value: Any) -> dict[str, Any]:
    """What is set on the instance itself: its `__dict__` and its slots."""
    state = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            private = name.startswith("__") and not name.endswith("__")
            attribute = f"_{base.__name__.lstrip('_')}{name}" if private else name
            item = getattr(value, attribute, _MISSING)
            if item is not _MISSING and name not in ("__dict__", "__weakref__", "_attrs_cached_hash"):
                state[attribute] = item
    return state


def _is_cache(cls: type, name: str) -> bool:
    """True for what a cached property left on the instance: it can be computed again, and says nothing new."""
    for base in cls.__mro__:
        if name in base.__dict__:
            kind = type(base.__dict__[name])
            return hasattr(kind, "__get__") and not hasattr(kind, "__set__") and not isinstance(base.__dict__[name], types.FunctionType)
    return False


def write_tree(writer: TreeWriter, value: object, root: str) -> Any:
    """`writer.write` of a whole value, whose place is called `root`.

    Raises:
        InvalidArguments: as `write`, and when the thread's stack is too small for the depth.
    """
    place: Place = (None, root, value)
    room = writer.room

    def work() -> Any:
        writer.room, writer.simple = room, True
        return writer.write(value, place, 0)

    try:
        return run_deep(work)
    except RecursionError:
        raise InvalidArguments(
            f"{root}: nested too deep for what is left of this thread's stack; pass a flatter value", parameter=root
        ) from None


_Writer = Callable[[TreeWriter, Any, Place, int], Any]

_WRITERS: dict[type, _Writer] = {
    float: _write_float,
    Decimal: _write_decimal,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    datetime.date: _write_date,
    datetime.time: _write_time,
    datetime.datetime: _write_time,
    datetime.timedelta: _write_timedelta,
    uuid.UUID: _write_uuid,
    pathlib.PurePosixPath: _write_path,
    pathlib.PureWindowsPath: _write_path,
    pathlib.PosixPath: _write_path,
    pathlib.WindowsPath: _write_path,
    tuple: _write_tuple,
    set: _write_set,
    frozenset: _write_set,
    collections.deque: _write_deque,
    collections.OrderedDict: _write_mapping,
    collections.Counter: _write_mapping,
    collections.defaultdict: _write_defaultdict,
    types.MappingProxyType: _write_mapping,
    range: _write_range,
    complex: _write_complex,
    Secret: _write_secret,
    RecordedSecret: _write_secret,
    StandIn: _write_stand_in,
}

# By name, so that a module nobody loaded is not imported for a type nobody can have.
_LATE_WRITERS: dict[tuple[str, str], _Writer] = {
    ("fractions", "Fraction"): _write_fraction,
    **{
        ("ipaddress", name): _write_text_form
        for name in ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
    },
}

_STATE: dict[str, _Writer] = {
    "enum": _enum_state,
    "flag": _flag_state,
    "namedtuple": _namedtuple_state,
    "dataclass": _fields_state,
    "attrs": _fields_state,
    "model": _model_state,
}
