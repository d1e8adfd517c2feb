"""The typed codec: values to JSON text and back with the same types, without pickle.

Plain JSON stands for itself; anything else is a tagged object `{"$c4a": tag, …}`, and a dict that has the key `$c4a` is
written as `{"$c4a": "map", …}`, so no plain data can be taken for a tag. Reading text runs nothing the text names.
"""

from __future__ import annotations

import base64
import collections
import datetime
import json
import pathlib
import types
import uuid
from collections.abc import Callable, Sized
from decimal import Decimal
from typing import Any, TypeVar

from c4a.classes import KnownClasses, field_names, model_base
from c4a.errors import RecordDamaged
from c4a.secret import RecordedSecret
from c4a.stack import run_deep
from c4a.tree import FACTORIES, TAG, StandIn, TreeWriter, compact_text, unescape_surrogates, write_tree

# Bounds what one result may cost; how much of it is kept is the caller's limit (MAX_RESULT_BYTES).
MAX_ENCODED_CHARACTERS = 16 * 1_048_576

# Too short to be nested deeper than any caller's stack allows.
_SHALLOW_CHARACTERS = 200

T = TypeVar("T", bound=Sized)

__all__ = ["StandIn", "decode", "encode"]


def encode(value: object, *, digest_key: bytes | None = None, path: str = "", annotation: object = None) -> str:
    """Codec text from which `decode` makes the same value of the same type.

    Contains no raw NUL and no lone surrogate, so any text column holds it. Costs a few µs for plain data.
    A class must be findable again: an attribute of its module, or in `annotation` (the function's return annotation).

    Raises:
        InvalidArguments: no stable form, nested over 200 levels, a cycle, or a secret without a digest key; `parameter` is the
            place, beginning with `path`. For a result the caller says ResultNotRecordable.
    """
    writer = TreeWriter(digest_key=digest_key, room=MAX_ENCODED_CHARACTERS, findable=KnownClasses(annotation))
    return compact_text(write_tree(writer, value, path or "value"))


def decode(text: str, *, annotation: object = None) -> object:
    """The value that `encode` wrote.

    A class named in the text is used only if it is in `annotation`, or is an attribute of a module already loaded, and is a
    real dataclass, attrs class, Pydantic model, enum or namedtuple; its `__init__`, validators and factories do not run.
    Otherwise a frozen `StandIn` with the same fields comes back. A secret comes back as `RecordedSecret`, without its value.

    Raises:
        RecordDamaged: the text is not codec text.
    """
    try:
        # An escape could spell the tag (`\u0024c4a`), which canonical text would read as one.
        if len(text) <= _SHALLOW_CHARACTERS and TAG not in text and "\\u" not in text:
            return json.loads(text)  # text without a tag is its own value; most repeats return such a one
        return run_deep(lambda: TreeReader(annotation).read(json.loads(text)))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RecordDamaged(f"expected codec text, got text that cannot be read ({error}); run `c4a verify` on the record") from error


class TreeReader:
    """Turns a codec tree back into the value."""

    def __init__(self, annotation: object = None) -> None:
        self._classes = KnownClasses(annotation)

    def read(self, tree: Any) -> Any:
        """The value of a tree."""
        kind = type(tree)
        if kind is list:
            return [self.read(item) for item in tree]
        if kind is not dict:
            return tree
        if TAG not in tree:
            return {key: self.read(item) for key, item in tree.items()}
        return _READERS[tree[TAG]](self, tree)

    def instance(self, tree: dict[str, Any]) -> Any:
        """The instance a class tag names, or its stand-in."""
        content = self.read(tree["v"])
        cls = self._classes.find(tree["class"], tree[TAG])
        made = None if cls is None else _REBUILD[tree[TAG]](self, cls, content, tree)
        if made is not None:
            return made
        return StandIn(tree, content if isinstance(content, dict) else {"member": content})


def _whole(made: T, count: int) -> T:
    # 1 and True are two values in a record but one key in Python: nothing may get lost without a word.
    if len(made) != count:
        raise ValueError("two members or keys are equal")
    return made


def _read_set(reader: TreeReader, tree: dict[str, Any]) -> Any:
    members = [reader.read(item) for item in tree["v"]]
    return _whole(set(members) if tree[TAG] == "set" else frozenset(members), len(members))


def _read_map(reader: TreeReader, tree: dict[str, Any]) -> dict[Any, Any]:
    flat = [reader.read(item) for item in tree["v"]]
    made = dict(zip(flat[::2], flat[1::2], strict=True))
    return _whole(made, len(flat) // 2)


def _read_time(reader: TreeReader, tree: dict[str, Any]) -> Any:
    made = (datetime.datetime if tree[TAG] == "datetime" else datetime.time).fromisoformat(tree["v"])
    made = made.replace(fold=1) if tree.get("fold") else made
    offset = made.utcoffset()
    if "name" in tree and offset is not None:
        return made.replace(tzinfo=datetime.timezone(offset, tree["name"]))
    zone = _zone(tree["zone"]) if "zone" in tree else None
    zoned = made if zone is None else made.replace(tzinfo=zone)
    # A zone whose rules changed since would move the instant: then the recorded offset stands.
    return zoned if offset is None or zoned.utcoffset() == offset else made


def _zone(name: str) -> datetime.tzinfo | None:
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _read_path(reader: TreeReader, tree: dict[str, Any]) -> pathlib.PurePath:
    text = reader.read(tree["v"])
    if tree["class"] == type(pathlib.Path()).__name__:
        return pathlib.Path(text)
    windows = tree["class"] in ("WindowsPath", "PureWindowsPath")
    return pathlib.PureWindowsPath(text) if windows else pathlib.PurePosixPath(text)


def _read_ip(reader: TreeReader, tree: dict[str, Any]) -> Any:
    import ipaddress

    kinds: tuple[Any, ...] = (
        ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network,
        ipaddress.IPv6Network, ipaddress.IPv4Interface, ipaddress.IPv6Interface,
    )  # fmt: skip
    return next(kind for kind in kinds if kind.__name__.lower() == tree[TAG])(tree["v"])


def _read_fraction(reader: TreeReader, tree: dict[str, Any]) -> Any:
    import fractions

    return fractions.Fraction(*tree["v"])


def _rebuild_enum(reader: TreeReader, cls: Any, content: Any, tree: dict[str, Any]) -> Any:
    return cls.__members__.get(content)


def _rebuild_flag(reader: TreeReader, cls: Any, content: Any, tree: dict[str, Any]) -> Any:
    try:
        return cls(content)
    except ValueError:
        return None


def _rebuild_namedtuple(reader: TreeReader, cls: Any, content: dict[str, Any], tree: dict[str, Any]) -> Any:
    return tuple.__new__(cls, content.values()) if list(content) == list(cls._fields) else None


def _rebuild_fields(reader: TreeReader, cls: Any, content: dict[str, Any], tree: dict[str, Any]) -> Any:
    """A dataclass or attrs instance, filled without `__init__`; None if the class's fields are no longer the recorded ones."""
    names = set(field_names(cls, tree[TAG]))
    lacking = names - set(content) - set(tree.get("unset", ()))
    if lacking or not set(content) <= names:
        return None
    made = object.__new__(cls)
    for name, item in {**content, **reader.read(tree.get("more", {}))}.items():
        object.__setattr__(made, name, item)
    return made


def _rebuild_model(reader: TreeReader, cls: Any, content: dict[str, Any], tree: dict[str, Any]) -> Any:
    """A Pydantic model, filled by Pydantic's own way back from a pickle: by field name, without validators or aliases."""
    if not set(content) <= set(field_names(cls, "model")):
        return None
    base: Any = model_base(cls)
    extra, private = (reader.read(tree[part]) if part in tree else None for part in ("extra", "private"))
    if hasattr(cls, "__pydantic_decorators__"):
        state = {
            "__dict__": content,
            "__pydantic_fields_set__": set(tree["set"]),
            "__pydantic_extra__": extra,
            "__pydantic_private__": private,
        }
    else:
        state = {
            "__dict__": {**content, **(extra or {})},
            "__fields_set__": set(tree["set"]),
            "__private_attribute_values__": private or {},
        }
    made = cls.__new__(cls)
    base.__setstate__(made, state)
    return made


def _made_of(make: Callable[[Any], Any]) -> Callable[[TreeReader, dict[str, Any]], Any]:
    return lambda reader, tree: make(reader.read(tree["v"]))


_READERS: dict[str, Callable[[TreeReader, dict[str, Any]], Any]] = {
    "str": _made_of(unescape_surrogates),
    "float": _made_of(float),
    "decimal": _made_of(Decimal),
    "bytes": _made_of(lambda text: base64.b64decode(text, validate=True)),
    "bytearray": _made_of(lambda text: bytearray(base64.b64decode(text, validate=True))),
    "date": _made_of(datetime.date.fromisoformat),
    "time": _read_time,
    "datetime": _read_time,
    "timedelta": _made_of(lambda text: datetime.timedelta(microseconds=int(text))),
    "uuid": _made_of(uuid.UUID),
    "path": _read_path,
    "tuple": _made_of(tuple),
    "set": _read_set,
    "frozenset": _read_set,
    "deque": lambda reader, tree: collections.deque(reader.read(tree["v"]), tree["maxlen"]),
    "map": _read_map,
    "ordereddict": _made_of(collections.OrderedDict),
    "counter": _made_of(collections.Counter),
    "defaultdict": lambda reader, tree: collections.defaultdict(
        FACTORIES[tree["factory"]] if tree["factory"] is not None else None, reader.read(tree["v"])
    ),
    "mappingproxy": _made_of(types.MappingProxyType),
    "range": _made_of(lambda parts: range(*parts)),
    "complex": _made_of(lambda parts: complex(*parts)),
    "fraction": _read_fraction,
    "secret": lambda reader, tree: RecordedSecret(tree["v"], tree["kind"]),
    **dict.fromkeys(("ipv4address", "ipv6address", "ipv4network", "ipv6network", "ipv4interface", "ipv6interface"), _read_ip),
    **dict.fromkeys(("enum", "flag", "namedtuple", "dataclass", "attrs", "model"), TreeReader.instance),
}

_REBUILD: dict[str, Callable[[TreeReader, Any, Any, dict[str, Any]], Any]] = {
    "enum": _rebuild_enum,
    "flag": _rebuild_flag,
    "namedtuple": _rebuild_namedtuple,
    "dataclass": _rebuild_fields,
    "attrs": _rebuild_fields,
    "model": _rebuild_model,
}
