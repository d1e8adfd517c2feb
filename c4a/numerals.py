"""Numbers as canonical text: one type, compared by value (protocol section 2)."""

from __future__ import annotations

import re
from decimal import Decimal

MAX_DIGITS = 1_000
MAX_EXPONENT = 10_000

_EXACT_INTEGER = 2**53
# 10**1000 has 3322 bits: a longer integer is refused before the quadratic conversion to text.
_MAX_BITS = 3_322
_DECIMAL_TEXT = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,6}))?")


class NumberRefused(ValueError):
    """The number is not finite, has too many digits or too large an exponent; the text says which."""


def float_text(number: float) -> str:
    """The text ECMAScript (and so RFC 8785) writes for a finite double: `10`, `0.1`, `1e+21`, `1e-7`; `-0.0` is `0`."""
    text = repr(number)
    if text.endswith(".0"):
        return "0" if text == "-0.0" else text[:-2]
    if "e" in text:
        return _ecmascript(text)
    if text in ("nan", "inf", "-inf"):
        raise NumberRefused(f"{text} is not a number JSON can hold")
    return text


def integer_text(number: int) -> str:
    """Canonical text of an integer that `check_integer` let through."""
    if -_EXACT_INTEGER <= number <= _EXACT_INTEGER:
        return str(number)
    digits = str(number)
    return _by_value("-" if number < 0 else "", digits.lstrip("-"), 0)


def check_integer(number: int) -> None:
    """Refuse an integer of more than 1,000 digits, in constant time.

    Raises:
        NumberRefused: more than 1,000 digits.
    """
    if number.bit_length() > _MAX_BITS or abs(number) >= _LIMIT:
        raise NumberRefused(f"an integer may have at most {MAX_DIGITS} digits")


def decimal_text(number: Decimal) -> str:
    """Canonical text of a Decimal.

    Raises:
        NumberRefused: not finite, more than 1,000 digits, or a normalised exponent beyond ±10,000.
    """
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise NumberRefused(f"Decimal {number} is not a number JSON can hold")
    if len(digits) > MAX_DIGITS:
        raise NumberRefused(f"a number may have at most {MAX_DIGITS} digits, got {len(digits)}")
    return _by_value("-" if sign else "", "".join(map(str, digits)), exponent)


def read_decimal(text: str) -> Decimal:
    """A Decimal from a JSON or codec number's text, with sizes checked before anything is computed.

    Raises:
        NumberRefused: malformed, more than 1,000 digits, or an exponent beyond ±10,000.
    """
    # 1,000 digits, a sign, a point, leading zeros of a small fraction and the exponent.
    if len(text) > MAX_DIGITS + MAX_EXPONENT + 16:
        raise NumberRefused(f"a number may have at most {MAX_DIGITS} digits")
    found = _DECIMAL_TEXT.fullmatch(text)
    if found is None:
        raise NumberRefused("not a decimal number, or an exponent beyond ±10,000")
    number = Decimal(text)
    decimal_text(number)
    return number


def _by_value(sign: str, digits: str, exponent: int) -> str:
    digits = digits.lstrip("0")
    if not digits:
        return "0"
    significant = digits.rstrip("0")
    exponent += len(digits) - len(significant)
    if not -MAX_EXPONENT <= exponent <= MAX_EXPONENT:
        raise NumberRefused(f"an exponent may be at most ±{MAX_EXPONENT}, got {exponent}")
    double = float(f"{sign}{significant}e{exponent}")
    if _normal_form(repr(double)) == (significant, exponent):
        return float_text(double)
    return f'{{"$c4a":"number","v":"{sign}{significant}e{exponent}"}}'


def _normal_form(text: str) -> tuple[str, int]:
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    return significant, int(exponent or 0) - len(fraction) + len(digits) - len(significant)


def _ecmascript(text: str) -> str:
    """Rewrite a `repr` with an exponent by ECMA-262 section 6.1.6.1.20 (Number::toString)."""
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    digits = mantissa.replace(".", "")
    point = int(exponent) + 1
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"


_LIMIT = 10**MAX_DIGITS
