"""What a request may carry: one description that both checks a body or a query and documents it in OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from c4a import keys
from c4a.errors import C4AError, InvalidArguments, RequestRefused
from c4a.record.entries import plain_text

_HEX: Final = re.compile(r"\A[0-9a-f]+\Z")
_WHOLE: Final = re.compile(r"\A[0-9]{1,18}\Z")

_DECIMAL: Final = re.compile(r"\A[0-9]{1,9}(\.[0-9]{1,6})?\Z")

type Check = Callable[[Any], Any]


class Wrong(ValueError):
    """A value is not what a field expects; the text says what was expected."""


@dataclass(frozen=True)
class Field:
    """One field: `check` returns the value to use, or raises `Wrong`; `schema` is its JSON Schema."""

    check: Check
    schema: dict[str, Any]
    about: str
    required: bool = False
    default: Any = None
    from_text: Check | None = None
    """For a query, where everything is text: makes the value that `check` expects of it, or leaves the text for `check` to refuse."""


@dataclass(frozen=True)
class Fields:
    """All fields of a body or a query. A name that is not among them is refused, since a misspelt option must not be ignored."""

    fields: Mapping[str, Field]

    def read(self, given: object) -> dict[str, Any]:
        """Every field checked, with defaults for those left out (null counts as left out).

        Raises:
            RequestRefused: not an object, an unknown name, one that is missing, or a wrong value; field `errors` lists all of them.
        """
        if not isinstance(given, dict):
            raise RequestRefused(
                f"The body: expected a JSON object, got {_kind(given)}.", errors=[{"field": "", "problem": "expected a JSON object"}]
            )
        errors = [{"field": str(name), "problem": "unknown field"} for name in given.keys() - self.fields.keys()]
        read: dict[str, Any] = {}
        for name, field in self.fields.items():
            value = given.get(name)
            if value is None:
                read[name] = field.default
                if field.required:
                    errors.append({"field": name, "problem": "missing"})
                continue
            try:
                read[name] = field.check(value)
            except Wrong as wrong:
                errors.append({"field": name, "problem": f"{wrong}, got {_kind(value)}"})
        if errors:
            listed = "; ".join(f"{error['field'] or 'body'}: {error['problem']}" for error in errors[:5])
            raise RequestRefused(f"The request is not as expected: {listed}.", errors=errors)
        return read

    def read_query(self, given: Mapping[str, str]) -> dict[str, Any]:
        """As `read`, of a query."""
        made: dict[str, Any] = {}
        for name, value in given.items():
            field = self.fields.get(name)
            made[name] = field.from_text(value) if field is not None and field.from_text is not None else value
        return self.read(made)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the object."""
        properties = {
            name: {**field.schema, "description": field.about} | ({} if field.default is None else {"default": field.default})
            for name, field in self.fields.items()
        }
        required = [name for name, field in self.fields.items() if field.required]
        return {"type": "object", "properties": properties, "additionalProperties": False} | ({"required": required} if required else {})


def identifier(about: str, *, required: bool = False) -> Field:
    """The name of a run, tool or actor: at most 256 bytes, no NUL."""

    def check(value: Any) -> str:
        try:
            return keys.identifier(value, "it")
        except InvalidArguments as error:
            raise Wrong(error.message.removeprefix("it: ")) from None

    return Field(check, {"type": "string", "minLength": 1, "maxLength": 256}, about, required)


def explicit_key(about: str) -> Field:
    """Text or a whole number that names the action itself."""

    def check(value: Any) -> str:
        try:
            return keys.explicit_key_text(value)
        except InvalidArguments as error:
            raise Wrong(error.message.removeprefix("key: ")) from None

    return Field(check, {"type": ["string", "integer"]}, about)


def text(about: str, *, required: bool = False, most: int = 10_000, default: str | None = None) -> Field:
    """Free text; NUL is refused, since PostgreSQL cannot hold it."""

    def check(value: Any) -> str:
        if type(value) is not str or len(value) > most or "\0" in value:
            raise Wrong(f"expected text of at most {most} characters without NUL")
        return value

    return Field(check, {"type": "string", "maxLength": most}, about, required, default)


def free_text(about: str, *, required: bool = False, most: int = 10_000, default: str | None = None) -> Field:
    """Text that is never refused for what it says, such as an error's: it is cut, and what no column can hold is shown as an escape."""

    def check(value: Any) -> str:
        if type(value) is not str:
            raise Wrong("expected text")
        return plain_text(value[:most])

    return Field(check, {"type": "string"}, about, required, default)


def codec(about: str) -> Field:
    """Typed codec text, as the library writes it."""

    def check(value: Any) -> str:
        if type(value) is not str:
            raise Wrong("expected text")
        return value

    return Field(check, {"type": "string", "contentMediaType": "application/json"}, about)


def hexadecimal(about: str, *, least: int, most: int, required: bool = False) -> Field:
    """Lower-case hexadecimal digits."""

    def check(value: Any) -> str:
        if type(value) is not str or not least <= len(value) <= most or not _HEX.match(value):
            raise Wrong(f"expected {least if least == most else f'{least} to {most}'} lower-case hexadecimal digits")
        return value

    return Field(check, {"type": "string", "pattern": f"^[0-9a-f]{{{least},{most}}}$"}, about, required)


def boolean(about: str) -> Field:
    """True or false; false if left out."""

    def check(value: Any) -> bool:
        if type(value) is not bool:
            raise Wrong("expected true or false")
        return value

    return Field(check, {"type": "boolean"}, about, default=False)


def integer(about: str, *, least: int, most: int = 2**53, required: bool = False, default: int | None = None) -> Field:
    """A whole number; in a query its digits."""

    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise Wrong(f"expected a whole number from {least} to {most}")
        return value

    return Field(check, {"type": "integer", "minimum": least, "maximum": most}, about, required, default, _whole)


def seconds(about: str, *, least: float, most: float, required: bool = False, default: float | None = None) -> Field:
    """A length of time in seconds, whole or not; in a query its decimal text."""

    def check(value: Any) -> float:
        if type(value) not in (int, Decimal) or not least <= value <= most:
            raise Wrong(f"expected a number of seconds from {least:g} to {most:g}")
        return float(value)

    return Field(check, {"type": "number", "minimum": least, "maximum": most}, about, required, default, _decimal)


def choice(about: str, *values: str, required: bool = False, default: str | None = None) -> Field:
    """One of a few words."""

    def check(value: Any) -> str:
        if value not in values:
            raise Wrong(f"expected one of {', '.join(values)}")
        return str(value)

    return Field(check, {"type": "string", "enum": list(values)}, about, required, default)


def json_object(about: str) -> Field:
    """A JSON object, as it came from `parse_json`."""

    def check(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Wrong("expected a JSON object")
        return value

    return Field(check, {"type": "object", "additionalProperties": True}, about)


def any_json(about: str) -> Field:
    """Any JSON value but null, which means left out."""
    return Field(lambda value: value, {}, about)


def names(about: str) -> Field:
    """A list of parameter names."""

    def check(value: Any) -> tuple[str, ...]:
        if type(value) is not list or not all(type(one) is str for one in value) or len(value) > 256:
            raise Wrong("expected a list of at most 256 names")
        return tuple(sorted(set(value)))

    return Field(check, {"type": "array", "items": {"type": "string"}, "maxItems": 256}, about, default=())


def list_of(fields: Fields, about: str, *, most: int) -> Field:
    """A list of objects, each with these fields."""

    def check(value: Any) -> list[dict[str, Any]]:
        if type(value) is not list or not 1 <= len(value) <= most:
            raise Wrong(f"expected a list of 1 to {most} objects")
        try:
            return [fields.read(one) for one in value]
        except C4AError as error:
            raise Wrong(error.message) from None

    return Field(check, {"type": "array", "items": fields.schema(), "minItems": 1, "maxItems": most}, about, required=True)


def _whole(value: str) -> object:
    return int(value) if _WHOLE.match(value) else value


def _decimal(value: str) -> object:
    return Decimal(value) if _DECIMAL.match(value) else value


def _kind(value: object) -> str:
    """A wrong value as it is shown: its JSON type, never its content, which may be a secret."""
    names_of: dict[type, str] = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        int: "a number",
        Decimal: "a number",
    }
    return names_of.get(type(value), "null" if value is None else type(value).__name__)
