"""Canonical text of arguments: RFC 8785 JSON, with a tagged object for everything JSON has no form for.

Two calls mean the same exactly when their canonical texts are equal, byte for byte (protocol section 2).
"""

from __future__ import annotations

import base64
import binascii
import collections
import datetime
import json
import re
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from c4a.errors import InvalidArguments
from c4a.numerals import NumberRefused, check_integer, decimal_text, float_text, integer_text, read_decimal
from c4a.record.types import MAX_ARGUMENTS_BYTES
from c4a.refusals import MAX_DEPTH, Place, refuse, refuse_depth
from c4a.stack import run_deep
from c4a.tree import FACTORIES, TAG, TreeWriter, compact_text, is_storable, write_tree

__all__ = ["canonical_from_codec", "canonical_text", "encode_arguments", "parse_json", "plain_arguments_codec", "text_literal"]

# A tag adds one level of JSON to the level of the value it holds.
_CODEC_DEPTH = 2 * MAX_DEPTH + 8

_sorted: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode

text_literal: Callable[[str], str] = json.encoder.encode_basestring
"""A text as a JSON string the way RFC 8785 section 3.2.2.2 writes it."""


def encode_arguments(arguments: Mapping[str, object], *, digest_key: bytes | None = None) -> tuple[str, str]:
    """Canonical text and codec text of a call's arguments (parameter name to value), about 5 µs for a few plain values.

    Raises:
        InvalidArguments: a value has no stable form; `parameter` is its place (`args.items[3]`). Nothing was written.
    """
    plain = _plain_copy(arguments)
    if plain is not None:
        canonical = _sorted(plain)
        return canonical, canonical if list(plain) == sorted(plain) else compact_text(plain)
    writer = TreeWriter(digest_key=digest_key, room=MAX_ARGUMENTS_BYTES, arguments=True)
    tree = write_tree(writer, dict(arguments), "args")
    codec = compact_text(tree)
    _check_size(codec, "args", MAX_ARGUMENTS_BYTES)
    canonical = run_deep(lambda: _sorted(tree)) if writer.simple else _canonical(tree, "args")
    _check_size(canonical, "args", MAX_ARGUMENTS_BYTES)
    return canonical, codec


def canonical_text(value: object, *, digest_key: bytes | None = None) -> str:
    """Canonical text of any one value; equal to `canonical_from_codec(encode(value))`.

    Raises:
        InvalidArguments: as `encode_arguments`.
    """
    writer = TreeWriter(digest_key=digest_key, room=MAX_ARGUMENTS_BYTES, arguments=True)
    tree = write_tree(writer, value, "value")
    return run_deep(lambda: _sorted(tree)) if writer.simple else _canonical(tree, "value")


def canonical_from_codec(text: str) -> str:
    """Canonical text of the value that codec text stands for, from its structure alone: no class is looked up.

    Raises:
        InvalidArguments: not codec text, or a value that arguments may not have (NaN, lone surrogate).
    """
    return _canonical(parse_json(text, depth=_CODEC_DEPTH, root="codec"), "codec")


def plain_arguments_codec(parsed: Mapping[str, object]) -> str:
    """Codec text of arguments that came as plain JSON, from `parse_json`: an object that looks like a tag is only data.

    Raises:
        InvalidArguments: not an object, or a value beyond the limits.
    """
    if not isinstance(parsed, dict):
        raise InvalidArguments(
            f"args: expected a JSON object of parameter names to values, got {type(parsed).__qualname__}", parameter="args"
        )
    writer = TreeWriter(digest_key=None, room=MAX_ARGUMENTS_BYTES, arguments=True, plain=True)
    codec = compact_text(write_tree(writer, parsed, "args"))
    _check_size(codec, "args", MAX_ARGUMENTS_BYTES)
    return codec


def parse_json(text: str | bytes, *, limit_bytes: int = MAX_ARGUMENTS_BYTES, depth: int = MAX_DEPTH, root: str = "JSON") -> object:
    """Strictly parsed JSON (RFC 8259): integers exact, other numbers Decimal, nothing guessed.

    Raises:
        InvalidArguments: malformed, over `limit_bytes`, nested over `depth`, a duplicate key, NaN, Infinity, a number over 1,000
            digits or beyond 10^±10,000, a lone surrogate, or bytes that are not UTF-8.
    """
    text = _as_text(text, limit_bytes, root)
    _check_depth(text, depth, root)
    try:
        value = run_deep(lambda: _PARSER(text))
    except InvalidArguments as error:
        raise InvalidArguments(f"{root}: {error.message}", parameter=root) from None
    except ValueError as error:
        raise InvalidArguments(f"{root}: not valid JSON: {error}", parameter=root) from None
    except RecursionError:
        raise InvalidArguments(f"{root}: nested too deep for what is left of this thread's stack", parameter=root) from None
    if "\\ud" in text or "\\uD" in text:
        _refuse_surrogates(value, root)
    return value


def _plain_copy(arguments: Mapping[str, object]) -> dict[str, object] | None:
    """A copy of arguments that are short plain scalars, which need no walk; None for anything else."""
    plain: dict[str, object] = {}
    value: Any
    for name, value in arguments.items():
        kind = type(value)
        if kind is str:
            if not value.isascii() or len(value) > 1_024:
                return None
        elif kind is int:
            if not -9007199254740992 <= value <= 9007199254740992:
                return None
        elif kind is not bool and value is not None:
            return None
        if type(name) is not str or not name.isascii() or len(name) > 256 or name == TAG:
            return None
        plain[name] = value
    return plain if len(plain) <= 64 else None


def _check_size(text: str, root: str, limit_bytes: int) -> None:
    if len(text) > limit_bytes or (not text.isascii() and len(text.encode()) > limit_bytes):
        raise InvalidArguments(f"{root}: over the limit of {limit_bytes} bytes; pass a reference instead", parameter=root)


# ---- parsing


def _as_text(text: str | bytes, limit_bytes: int, root: str) -> str:
    if len(text) > limit_bytes:
        raise InvalidArguments(f"{root}: expected at most {limit_bytes} bytes, got {len(text)}", parameter=root)
    if isinstance(text, str):
        if not is_storable(text):
            raise InvalidArguments(f"{root}: the text has a lone surrogate, which UTF-8 cannot hold", parameter=root)
        _check_size(text, root, limit_bytes)
        return text
    try:
        return bytes(text).decode()
    except UnicodeDecodeError as error:
        raise InvalidArguments(f"{root}: expected UTF-8, got a wrong byte at position {error.start}", parameter=root) from None


# The closing quote is optional, so that an unfinished string cannot make the search start over at every quote in it.
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_NOT_BRACKETS = re.compile(r"[^\[\]{}]+")


def _check_depth(text: str, depth: int, root: str) -> None:
    # Before parsing, since the parser's own recursion ends in an interpreter error; in linear time.
    if text.count("[") + text.count("{") <= depth:
        return
    level = 0
    for bracket in _NOT_BRACKETS.sub("", _STRINGS.sub("", text)):
        level += 1 if bracket in "[{" else -1
        if level > depth:
            raise InvalidArguments(f"{root}: nested deeper than {depth} levels", parameter=root)


def _parse_integer(text: str) -> int:
    if len(text) > 1_001:
        _refuse_here("an integer may have at most 1000 digits")
    return _integer(int(text))


def _integer(number: int) -> int:
    try:
        check_integer(number)
    except NumberRefused as refused:
        _refuse_here(str(refused))
    return number


def _parse_decimal(text: str) -> Decimal:
    try:
        return read_decimal(text)
    except NumberRefused as refused:
        _refuse_here(str(refused))


def _parse_constant(text: str) -> NoReturn:
    _refuse_here(f"{text} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = collections.Counter(name for name, _ in pairs).most_common(1)[0][0]
        _refuse_here(f"the key {twice[:80]!r} stands twice in one object")
    return made


def _refuse_here(problem: str) -> NoReturn:
    raise InvalidArguments(problem, parameter="JSON")


_PARSER = json.JSONDecoder(
    parse_int=_parse_integer, parse_float=_parse_decimal, parse_constant=_parse_constant, object_pairs_hook=_unique
).decode


def _refuse_surrogates(value: object, root: str) -> None:
    pending: list[Place] = [(None, root, value)]
    while pending:
        place = pending.pop()
        item = place[2]
        if isinstance(item, str) and not is_storable(item):
            refuse(place, "the text has a lone surrogate (half of a UTF-16 pair), which UTF-8 cannot hold")
        if isinstance(item, list):
            pending.extend((place, index, part) for index, part in enumerate(item))
        elif isinstance(item, dict):
            pending.extend((place, key, part) for key, part in item.items())
            pending.extend((place, key, key) for key in item)


# ---- canonical text of a codec tree


def _canonical(tree: Any, root: str) -> str:
    try:
        return run_deep(lambda: _write(tree, (None, root, tree), 0))
    except RecursionError:
        raise InvalidArguments(f"{root}: nested too deep for what is left of this thread's stack", parameter=root) from None


def _write(tree: Any, place: Place, depth: int) -> str:
    kind = type(tree)
    if kind is str:
        return text_literal(tree)
    if kind is bool:
        return "true" if tree else "false"
    if tree is None:
        return "null"
    if kind is list:
        return f"[{','.join(_items(tree, place, depth))}]"
    if kind is dict:
        return _write_tag(tree, place, depth) if TAG in tree else _object(tree.items(), place, depth)
    return _number(tree, place)


def _number(tree: Any, place: Place) -> str:
    try:
        if type(tree) is int:
            return integer_text(tree)
        if type(tree) is Decimal:
            # In codec text a number with a point or an exponent is a float, so it must be one to the last digit.
            text, double = decimal_text(tree), float(tree)
            if text.startswith("{"):
                raise NumberRefused("it has more digits than a double holds; write it as a decimal tag")
            return float_text(double)
        return float_text(tree)
    except NumberRefused as refused:
        refuse(place, str(refused))


def _items(tree: list[Any], place: Place, depth: int) -> list[str]:
    if depth >= MAX_DEPTH:
        refuse_depth(place)
    # No comprehension: on Python 3.11 it takes a frame, and 200 levels must fit into 1,000 frames.
    texts: list[str] = []
    for index, item in enumerate(tree):
        texts.append(_write(item, (place, index, item), depth + 1))
    return texts


def _object(items: Any, place: Place, depth: int) -> str:
    if depth >= MAX_DEPTH:
        refuse_depth(place)
    texts: list[str] = []
    for key, item in sorted(items, key=_utf16):
        texts.append(f"{text_literal(key)}:{_write(item, (place, key, item), depth + 1)}")
    return "{" + ",".join(texts) + "}"


def _utf16(item: tuple[str, Any]) -> bytes:
    # RFC 8785 section 3.2.3: keys are ordered by UTF-16 code units.
    return item[0].encode("utf-16-be")


def _tag(name: str, *parts: tuple[str, str]) -> str:
    return "{" + ",".join([f'"{TAG}":"{name}"', *(f'"{key}":{text}' for key, text in parts)]) + "}"


def _write_tag(tree: dict[str, Any], place: Place, depth: int) -> str:
    name = tree[TAG]
    handler = _HANDLERS.get(name) if type(name) is str else None
    if handler is None:
        refuse(place, f"unknown tag {str(name)[:40]!r}; an object with the key {TAG} is escaped as a map in codec text")
    allowed, write = handler
    if "v" not in tree or not tree.keys() <= {TAG, "v", *allowed}:
        refuse(place, f"a {name} tag has wrong parts: expected v{''.join(', ' + part for part in allowed)}")
    try:
        _check_parts(tree)
        return write(tree, place, depth)
    except (ValueError, TypeError, KeyError, OverflowError, binascii.Error) as error:
        if isinstance(error, InvalidArguments):
            raise
        refuse(place, f"malformed {name} tag ({error})")


def _check_parts(tree: dict[str, Any]) -> None:
    """The parts beside `v` have the kinds that reading needs, whatever of them canonical text leaves out."""
    for part, kinds in _PART_KINDS.items():
        if part in tree and type(tree[part]) not in kinds:
            raise ValueError(f"{part} is of another kind")
    for names in (tree.get("set", []), tree.get("unset", [])):
        if any(type(name) is not str for name in names):
            raise ValueError("field names are not text")


def _check_hashable(trees: list[Any]) -> None:
    """Members of sets and keys of mappings cannot be what no Python set or mapping could hold."""
    pending = list(trees)
    while pending:
        tree = pending.pop()
        if type(tree) is list or (type(tree) is dict and tree.get(TAG) not in _HASHABLE):
            raise ValueError("a member or key cannot be hashed")
        if type(tree) is dict and tree[TAG] in ("tuple", "frozenset"):
            pending.extend(_listed(tree))


def _string(tree: dict[str, Any], part: str = "v") -> str:
    value = tree[part]
    if type(value) is not str:
        raise ValueError(f"{part} is not text")
    return value


def _listed(tree: dict[str, Any]) -> list[Any]:
    if type(tree["v"]) is not list:
        raise ValueError("v is not a list")
    return tree["v"]


def _same(read: object, text: str) -> str:
    if str(read) != text:
        raise ValueError(f"expected {str(read)[:80]!r}")
    return text_literal(text)


def _refused(problem: str) -> Callable[[dict[str, Any], Place, int], str]:
    return lambda tree, place, depth: refuse(place, problem)


def _decimal(tree: dict[str, Any], place: Place, depth: int) -> str:
    text = _string(tree)
    if text.lstrip("-+")[:1].upper() in ("N", "I", "S"):
        refuse(place, f"Decimal {text[:12]} is not a number JSON can hold")
    return decimal_text(read_decimal(text))


def _bytes(tree: dict[str, Any], place: Place, depth: int) -> str:
    text = _string(tree)
    return _tag("bytes", ("v", _same(base64.b64encode(base64.b64decode(text, validate=True)).decode(), text)))


def _date(tree: dict[str, Any], place: Place, depth: int) -> str:
    text = _string(tree)
    return _tag("date", ("v", _same(datetime.date.fromisoformat(text).isoformat(), text)))


def _time(tree: dict[str, Any], place: Place, depth: int) -> str:
    text = _string(tree)
    made = datetime.time.fromisoformat(text)
    value = ("v", _same(made.isoformat(), text))
    # Without a date a named zone has no offset, so only its name tells two such times apart.
    return (
        _tag("time", value, ("zone", text_literal(_string(tree, "zone"))))
        if "zone" in tree and made.tzinfo is None
        else _tag("time", value)
    )


def _datetime(tree: dict[str, Any], place: Place, depth: int) -> str:
    text = _string(tree)
    made = datetime.datetime.fromisoformat(text)
    literal = _same(made.isoformat(), text)
    if made.tzinfo is None:
        return _tag("datetime", ("v", literal))
    try:
        instant = made.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    except OverflowError:
        refuse(place, "this moment lies outside the years 1 to 9999 in UTC")
    return _tag("instant", ("v", f'"{instant.isoformat()}Z"'))


def _timedelta(tree: dict[str, Any], place: Place, depth: int) -> str:
    text = _string(tree)
    if len(text) > 24:
        raise ValueError("too long")
    microseconds = int(text)
    datetime.timedelta(microseconds=microseconds)
    return _tag("timedelta", ("v", _same(microseconds, text)))


def _uuid(tree: dict[str, Any], place: Place, depth: int) -> str:
    text = _string(tree)
    return _tag("uuid", ("v", _same(uuid.UUID(text), text)))


_PATHS = {"PosixPath": "path", "PurePosixPath": "path", "WindowsPath": "windows-path", "PureWindowsPath": "windows-path"}


def _path(tree: dict[str, Any], place: Place, depth: int) -> str:
    return _tag(_PATHS[tree["class"]], ("v", _write_text_only(tree["v"], place, depth)))


def _write_text_only(tree: Any, place: Place, depth: int) -> str:
    if type(tree) is not str and not (type(tree) is dict and tree.get(TAG) == "str"):
        raise ValueError("v is not text")
    return _write(tree, place, depth)


def _as_list(tree: dict[str, Any], place: Place, depth: int) -> str:
    return f"[{','.join(_items(_listed(tree), place, depth))}]"


def _set(tree: dict[str, Any], place: Place, depth: int) -> str:
    _check_hashable(_listed(tree))
    texts = sorted(_items(_listed(tree), place, depth), key=str.encode)
    if len(set(texts)) != len(texts):
        refuse(place, "two members of the set are one value in canonical text; pass only one of them")
    return _tag("set", ("v", f"[{','.join(texts)}]"))


def _map(tree: dict[str, Any], place: Place, depth: int) -> str:
    flat = _listed(tree)
    keys, items = flat[::2], flat[1::2]
    if len(keys) != len(items):
        raise ValueError("a key has no value")
    _check_hashable(keys)
    if depth >= MAX_DEPTH:
        refuse_depth(place)
    keyed = [_write(key, (place, "key", key), depth + 1) for key in keys]
    if len(set(keyed)) != len(keyed):
        refuse(place, "two keys of the mapping are one value in canonical text; pass only one of them")
    if all(type(key) is str and key != TAG for key in keys):
        return _object(zip(keys, items, strict=True), place, depth)
    texts = [(key, _write(item, (place, source, item), depth + 1)) for key, source, item in zip(keyed, keys, items, strict=True)]
    texts.sort(key=lambda pair: pair[0].encode())
    return _tag("map", ("v", f"[{','.join([part for pair in texts for part in pair])}]"))


def _as_object(tree: dict[str, Any], place: Place, depth: int) -> str:
    content = tree["v"]
    if type(content) is not dict or content.get(TAG, "map") != "map":
        raise ValueError("v is not an object")
    if tree[TAG] == "defaultdict" and tree["factory"] is not None and tree["factory"] not in FACTORIES:
        raise ValueError("unknown factory")
    return _write(content, place, depth) if TAG in content else _object(content.items(), place, depth)


def _deque(tree: dict[str, Any], place: Place, depth: int) -> str:
    if tree["maxlen"] is not None and not len(_listed(tree)) <= tree["maxlen"] < 2**31:
        raise ValueError("maxlen is less than the items")
    return _tag("deque", ("v", f"[{','.join(_items(_listed(tree), place, depth))}]"))


def _numbers(tree: dict[str, Any], place: Place, depth: int) -> str:
    parts = _listed(tree)
    kinds = (float, Decimal) if tree[TAG] == "complex" else (int,)
    if len(parts) != {"range": 3}.get(tree[TAG], 2) or any(type(part) not in kinds for part in parts):
        raise ValueError("v holds other than its numbers")
    if tree[TAG] != "complex" and parts[-1] == 0:
        raise ValueError("zero")
    return _tag(tree[TAG], ("v", f"[{','.join([_number(part, place) for part in parts])}]"))


def _ip(tree: dict[str, Any], place: Place, depth: int) -> str:
    import ipaddress

    text = _string(tree)
    make: Any = {
        "address": ipaddress.ip_address, "network": ipaddress.ip_network, "interface": ipaddress.ip_interface,
    }[tree[TAG][4:]]  # fmt: skip
    made = make(text)
    if made.version != int(tree[TAG][3]):
        raise ValueError("another version")
    return _tag(tree[TAG], ("v", _same(made, text)))


def _secret(tree: dict[str, Any], place: Place, depth: int) -> str:
    text = _string(tree)
    if re.fullmatch("[0-9a-f]{64}", text) is None or type(tree["kind"]) is not str:
        raise ValueError("v is not 64 hexadecimal digits")
    return _tag("secret", ("v", f'"{text}"'))


def _instance(tree: dict[str, Any], place: Place, depth: int) -> str:
    """An instance of a class: keyed by the class's module and qualified name and by all its content."""
    name: str = _string(tree, "class")
    content: Any = tree["v"]
    if not all(name.partition(":")):
        raise ValueError("class is not module:Name")
    if type(content) is not {"enum": str, "flag": int}.get(tree[TAG], dict):
        raise ValueError("v is of another kind")
    parts = [("class", text_literal(name))]
    parts += [(part, _write(tree[part], place, depth)) for part in ("extra", "more", "private") if tree.get(part)]
    if isinstance(content, dict) and TAG not in content:
        return _tag(tree[TAG], *parts, ("v", _object(content.items(), place, depth)))
    return _tag(tree[TAG], *parts, ("v", _write(content, place, depth)))


_PART_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("class", "kind", "name", "zone"), (str,)),
    **dict.fromkeys(("extra", "more", "private"), (dict,)),
    **dict.fromkeys(("set", "unset"), (list,)),
    "factory": (str, type(None)),
    "fold": (int,),
    "maxlen": (int, type(None)),
}
_HASHABLE = {
    *("str", "float", "decimal", "bytes", "date", "time", "datetime", "timedelta", "uuid", "path", "tuple", "frozenset", "range"),
    *("complex", "fraction", "secret", "enum", "flag", "namedtuple", "dataclass", "attrs", "model"),
    *("ipv4address", "ipv6address", "ipv4network", "ipv6network", "ipv4interface", "ipv6interface"),
}

_Handler = Callable[[dict[str, Any], Place, int], str]
_LONE = "the text has a lone surrogate (half of a UTF-16 pair), which UTF-8 cannot hold; decode it properly first"

# tag → (other parts it may have, its canonical text)
_HANDLERS: dict[str, tuple[tuple[str, ...], _Handler]] = {
    "str": ((), _refused(_LONE)),
    "float": ((), _refused("NaN and infinities are not numbers JSON can hold; pass None or text")),
    "decimal": ((), _decimal),
    "bytes": ((), _bytes),
    "bytearray": ((), _bytes),
    "date": ((), _date),
    "time": (("fold", "name", "zone"), _time),
    "datetime": (("fold", "name", "zone"), _datetime),
    "timedelta": ((), _timedelta),
    "uuid": ((), _uuid),
    "path": (("class",), _path),
    "tuple": ((), _as_list),
    "set": ((), _set),
    "frozenset": ((), _set),
    "map": ((), _map),
    "ordereddict": ((), _as_object),
    "counter": ((), _as_object),
    "defaultdict": (("factory",), _as_object),
    "mappingproxy": ((), _as_object),
    "deque": (("maxlen",), _deque),
    "range": ((), _numbers),
    "complex": ((), _numbers),
    "fraction": ((), _numbers),
    "secret": (("kind",), _secret),
    **dict.fromkeys(("ipv4address", "ipv6address", "ipv4network", "ipv6network", "ipv4interface", "ipv6interface"), ((), _ip)),
    **dict.fromkeys(("enum", "flag", "namedtuple"), (("class",), _instance)),
    **dict.fromkeys(("dataclass", "attrs"), (("class", "more", "unset"), _instance)),
    "model": (("class", "set", "extra", "private"), _instance),
}
