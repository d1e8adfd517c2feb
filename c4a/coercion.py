"""Shown = run: bring shown JSON to the types the tool will be called with, by the tool's annotations.

A framework that calls the tool turns "2025-01-01" into `date(2025, 1, 1)` before the call; a yes to the shown text
must be a yes to that call. What an annotation doesn't force is left exactly as shown, and the digest decides.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import re
import types
import typing
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from c4a.errors import InvalidArguments
from c4a.secret import Secret

_DURATION: Final = re.compile(
    r"(?P<sign>[+-])?P(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNIONS: Final = (typing.Union, getattr(types, "UnionType", typing.Union))


def coerce(value: Any, annotation: Any, path: str = "args") -> Any:
    """`value` as the tool will get it under `annotation`; the value itself where the annotation asks for nothing.

    Raises:
        InvalidArguments: no framework could call the tool with this (a date that is none, a model that refuses it).
    """
    annotation = _bare(annotation)
    origin = typing.get_origin(annotation)
    if origin in _UNIONS:
        return _one_of(value, typing.get_args(annotation), path)
    if origin is typing.Literal or annotation is Any:
        return value
    target = origin or annotation
    if not isinstance(target, type) or value is None:
        return value
    if isinstance(value, str):
        return _from_text(value, target, path)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _from_items(value, target, typing.get_args(annotation), path)
    if isinstance(value, Mapping):
        return _from_object(value, annotation, target, path)
    return _from_scalar(value, target, path)


def _bare(annotation: Any) -> Any:
    """Without Annotated, Required, NewType, Final and `type X = …` around it."""
    for _ in range(32):
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated or getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly", "Final"):
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation
    return annotation


def _one_of(value: Any, members: tuple[Any, ...], path: str) -> Any:
    bare = [_bare(member) for member in members]
    if value is None and type(None) in bare:
        return None
    if any(_is_exactly(value, member) for member in bare):
        return value
    problem: InvalidArguments | None = None
    for member in members:
        try:
            found = coerce(value, member, path)
        except InvalidArguments as error:
            problem = error
            continue
        if found is not value or isinstance(value, (list, Mapping)):
            return found
    if problem is not None and not any(isinstance(member, type) and isinstance(value, member) for member in bare):
        raise problem
    return value


def _is_exactly(value: Any, member: Any) -> bool:
    if typing.get_origin(member) is typing.Literal:
        return value in typing.get_args(member)
    return type(value) is member and not isinstance(value, (list, dict))


def _from_text(value: str, target: type, path: str) -> Any:
    if issubclass(target, str) and not issubclass(target, enum.Enum):
        return value
    for kind, read in _READERS.items():
        if issubclass(target, kind):
            return _read(read, value, target, path)
    if target.__name__ in ("SecretStr", "SecretBytes") and target.__module__.startswith("pydantic"):
        secret: Any = target
        return secret(value if target.__name__ == "SecretStr" else value.encode())
    return value


def _from_scalar(value: Any, target: type, path: str) -> Any:
    if issubclass(target, enum.Enum) and not isinstance(value, enum.Enum):
        return _read(_member, value, target, path)
    if target is dt.timedelta and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return dt.timedelta(seconds=float(value))
    return value  # numbers are one type, compared by value: int, float and Decimal need no change, and lose no digit


def _from_items(value: Any, target: type, members: tuple[Any, ...], path: str) -> Any:
    if issubclass(target, tuple) and hasattr(target, "_fields"):
        fields: Any = target._fields
        if len(value) != len(fields):
            raise InvalidArguments(f"{path}: expected the {len(fields)} items of a {target.__qualname__}, got {len(value)}", parameter=path)
        return _from_fields(dict(zip(fields, value)), target, list(fields), path)  # noqa: B905
    if target is tuple and members and members[-1] is not Ellipsis:
        each: list[Any] = list(members) + [Any] * (len(value) - len(members))
    else:
        each = [members[0] if members else Any] * len(value)
    items = [coerce(item, hint, f"{path}[{index}]") for index, (item, hint) in enumerate(zip(value, each))]  # noqa: B905
    try:
        if issubclass(target, (set, frozenset)):
            made: Any = target
            return made(items)
    except TypeError as error:
        raise InvalidArguments(f"{path}: expected items that fit into a {target.__name__}, got {error}", parameter=path) from None
    if target is tuple:
        return tuple(items)
    if (typing.get_origin(target) is None and issubclass(target, list)) or _is_abstract_sequence(target):
        return items
    return value


def _is_abstract_sequence(target: type) -> bool:
    return target.__module__ == "collections.abc" and target.__name__ in ("Sequence", "MutableSequence", "Iterable", "Collection")


def _from_object(value: Mapping[str, Any], annotation: Any, target: type, path: str) -> Any:
    if typing.is_typeddict(target):
        hints = _hints(target)
        return {name: coerce(item, hints.get(name, Any), f"{path}.{name}") for name, item in value.items()}
    validate = getattr(target, "model_validate", None) or getattr(target, "parse_obj", None)
    if validate is not None and hasattr(target, "__pydantic_fields__" if hasattr(target, "model_validate") else "__fields__"):
        return _read(lambda raw, _: validate(raw), dict(value), target, path)
    if dataclasses.is_dataclass(target):
        return _from_fields(value, target, [f.name for f in dataclasses.fields(target) if f.init], path)
    if issubclass(target, tuple) and hasattr(target, "_fields"):
        return _from_fields(value, target, list(target._fields), path)
    members = typing.get_args(annotation)
    if len(members) == 2:
        return {coerce(_key(k, members[0]), members[0], path): coerce(v, members[1], f"{path}.{k}") for k, v in value.items()}
    return value


def _key(key: Any, annotation: Any) -> Any:
    """JSON object keys are texts; `dict[int, …]` means numbers."""
    return int(key) if isinstance(key, str) and _bare(annotation) is int and re.fullmatch(r"-?\d{1,1000}", key) else key


def _from_fields(value: Mapping[str, Any], target: type, names: list[str], path: str) -> Any:
    hints = _hints(target)
    unknown = sorted(str(name) for name in value if name not in names)
    if unknown:
        raise InvalidArguments(f"{path}: expected a {target.__qualname__} with fields {names}, got also {unknown}", parameter=path)
    fields = {name: coerce(item, hints.get(name, Any), f"{path}.{name}") for name, item in value.items()}
    return _read(lambda found, cls: cls(**found), fields, target, path)


def _hints(target: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001 - a class whose annotations name something unknown is coerced without them
        return {}


def _read(read: Callable[[Any, Any], Any], value: Any, target: type, path: str) -> Any:
    try:
        return read(value, target)
    except InvalidArguments:
        raise
    except Exception as error:  # noqa: BLE001 - constructors and validators of users raise what they like
        raise InvalidArguments(f"{path}: expected a {target.__qualname__}, got {value!r:.200} ({error})", parameter=path) from None


def _member(value: Any, target: Any) -> Any:
    try:
        return target(value)
    except ValueError:
        if isinstance(value, str) and issubclass(target, int) and re.fullmatch(r"-?\d{1,18}", value):
            return target(int(value))
        raise


def _moment(value: str, target: Any) -> Any:
    # Python 3.10 reads no "Z" and no one- or two-digit fractions, which JSON writers use.
    text = re.sub(r"[zZ]$", "+00:00", value)
    text = re.sub(r"\.(\d{1,6})\d*", lambda found: "." + found[1].ljust(6, "0"), text)
    return target.fromisoformat(text)


def _duration(value: str, target: Any) -> Any:
    found = _DURATION.fullmatch(value)
    if found is None or not any(found[name] for name in ("days", "hours", "minutes", "seconds")):
        raise ValueError("an ISO 8601 duration such as PT1H30M is expected")
    parts = {name: float(found[name]) for name in ("days", "hours", "minutes", "seconds") if found[name]}
    whole = target(**parts)
    return -whole if found["sign"] == "-" else whole


def _decimal(value: str, target: Any) -> Any:
    try:
        return target(value.strip())
    except InvalidOperation:
        raise ValueError("digits are expected") from None


def _whole(value: str, target: Any) -> Any:
    if not re.fullmatch(r"\s*[+-]?\d{1,1000}\s*", value):
        raise ValueError("digits are expected")
    return target(int(value))


def _truth(value: str, target: Any) -> Any:
    try:
        return {"true": True, "false": False}[value.strip().lower()]
    except KeyError:
        raise ValueError("true or false is expected") from None


_READERS: Final[dict[type, Callable[[str, Any], Any]]] = {
    enum.Enum: _member,
    bool: _truth,
    int: _whole,
    float: lambda value, _: _decimal(value, Decimal),
    Decimal: _decimal,
    dt.datetime: _moment,
    dt.date: lambda value, target: target.fromisoformat(value),
    dt.time: _moment,
    dt.timedelta: _duration,
    UUID: lambda value, target: target(value),
    PurePath: lambda value, target: target(value),
    bytes: lambda value, target: target(value.encode()),
    bytearray: lambda value, target: target(value.encode()),
    Secret: lambda value, target: target(value),
}
"""How text becomes a value, by the first base class that fits: bool before int, datetime before date."""
