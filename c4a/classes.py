"""Finding the class a record names, without importing or running anything for the record's sake."""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
import typing
from typing import Any, cast

_MAX_ANNOTATED = 500


def class_name(cls: type) -> str:
    """`module:Qualified.Name`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def class_tag(cls: type) -> str | None:
    """The codec tag of a class with a stable form (`enum`, `flag`, `model`, `dataclass`, `attrs`, `namedtuple`), else None."""
    if issubclass(cls, enum.Flag):
        return "flag"
    if issubclass(cls, enum.Enum):
        return "enum"
    if model_base(cls) is not None:
        return "model"
    if issubclass(cls, tuple):
        return "namedtuple" if _is_namedtuple(cls) else None
    if issubclass(cls, (str, bytes, bytearray, int, float, complex, list, dict, set, frozenset, BaseException, type)):
        return None
    if dataclasses.is_dataclass(cls):
        return "dataclass"
    return "attrs" if isinstance(getattr(cls, "__attrs_attrs__", None), tuple) else None


def model_base(cls: type) -> Any | None:
    """Pydantic's BaseModel that `cls` derives from (of version 2, or the version 1 interface), or None."""
    for module in ("pydantic.main", "pydantic.v1.main"):
        base = vars(sys.modules[module]).get("BaseModel") if module in sys.modules else None
        if isinstance(base, type) and issubclass(cls, base) and cls is not base:
            return base
    return None


def field_names(cls: Any, tag: str) -> list[str]:
    """The declared fields of a class of that tag, in order."""
    if tag == "dataclass":
        return [field.name for field in dataclasses.fields(cls)]
    if tag == "attrs":
        return [attribute.name for attribute in cls.__attrs_attrs__]
    if tag == "namedtuple":
        return list(cls._fields)
    for holder in ("__pydantic_fields__", "__fields__"):
        found = vars(cls).get(holder)
        if isinstance(found, dict):
            return list(found)
    return list(cls.model_fields)


class KnownClasses:
    """Classes a record may name: those in an annotation, or attributes of modules that are already loaded."""

    def __init__(self, annotation: object = None) -> None:
        self._annotation = annotation
        self._annotated: dict[str, type] | None = None

    def find(self, name: str, tag: str) -> Any | None:
        """The class called `name`, if it is a real one of the kind `tag`; None if not loaded or of another kind.

        No module's and no proxy's own attribute code runs.
        """
        if self._annotated is None:
            self._annotated = _annotated_classes(self._annotation)
        found = self._annotated.get(name) or _loaded(name)
        if isinstance(found, type) and class_name(found) == name and class_tag(found) == tag:
            return found
        return None


def _loaded(name: str) -> object:
    module, _, path = name.partition(":")
    if not issubclass(type(sys.modules.get(module)), types.ModuleType):
        return None
    # Past `__getattribute__`, since a lazy module or proxy would run code when it is asked for its attributes.
    found: object = None
    names: Any = object.__getattribute__(sys.modules[module], "__dict__")
    for part in path.split("."):
        found = names.get(part)
        if not issubclass(type(found), type):
            return None
        names = type.__getattribute__(cast(type, found), "__dict__")
    return found


def _annotated_classes(annotation: object) -> dict[str, type]:
    found: dict[str, type] = {}
    pending: list[object] = [annotation]
    while pending and len(found) < _MAX_ANNOTATED:
        hint = pending.pop()
        pending.extend(typing.get_args(hint))
        # Python 3.10 calls list[int] a type as well.
        if typing.get_origin(hint) is not None or not isinstance(hint, type):
            continue
        if class_name(hint) in found or class_tag(hint) is None:
            continue
        found[class_name(hint)] = hint
        pending.extend(_field_hints(hint))
    return found


def _field_hints(cls: type) -> list[object]:
    try:
        return list(typing.get_type_hints(cls).values())
    except Exception:  # noqa: BLE001 - hints of local classes may not resolve; then only module attributes are found
        return [hint for hint in getattr(cls, "__annotations__", {}).values() if not isinstance(hint, str)]


def _is_namedtuple(cls: type) -> bool:
    fields = getattr(cls, "_fields", None)
    return isinstance(fields, tuple) and all(type(name) is str for name in fields)
