"""Results that come as plain JSON, from a REST client or a person, as the codec text that the record keeps."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any

from c4a import canonical


def result_codec(plain: object) -> str:
    """Codec text of a value from `parse_json`. A number that a double holds is one, however it was written.

    Raises:
        InvalidArguments: the value has no stable form or is over the limit.
    """
    # One more object around it, taken off again: the library's writer of plain JSON takes an object.
    return canonical.plain_arguments_codec({"result": _with_floats(plain)})[len('{"result":') : -1]


def _with_floats(value: Any) -> Any:
    if type(value) is Decimal:
        number = float(value)
        return number if isfinite(number) and Decimal(repr(number)) == value else value
    if type(value) is list:
        return [_with_floats(item) for item in value]
    if type(value) is dict:
        return {name: _with_floats(item) for name, item in value.items()}
    return value
