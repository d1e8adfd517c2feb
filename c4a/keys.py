"""Digests and keys: what a person approves, what runs once, and what the outside world is told.

Every digest is SHA-256 over a domain line and canonical text; texts are joined from parts that are canonical already.
"""

from __future__ import annotations

import base64
import os
from hashlib import sha256

from c4a.canonical import text_literal
from c4a.errors import InvalidArguments
from c4a.record.types import MAX_IDENTIFIER_BYTES
from c4a.tree import is_storable

# 80 bits: at a thousand million keys two coincide with a chance of one in two million.
_LEAST_BITS = 80


def call_digest(tool: str, arguments: str) -> str:
    """What a person approves: `c4a/call/v1` over `{"args","tool"}`; `arguments` is canonical text. 64 hex."""
    return _digest("c4a/call/v1", f'{{"args":{arguments},"tool":{text_literal(tool)}}}')


def effect_key(organization: str, run: str, tool: str, *, arguments: str | None = None, explicit_key: str | None = None) -> str:
    """Which action runs once: `c4a/effect/v1` over organization, run, tool and the arguments or the explicit key. 64 hex.

    Raises:
        TypeError: not exactly one of `arguments` (canonical text) and `explicit_key` was given.
    """
    if (arguments is None) == (explicit_key is None):
        raise TypeError("effect_key takes either arguments= or explicit_key=")
    place = f'"org":{text_literal(organization)},"run":{text_literal(run)},"tool":{text_literal(tool)}'
    if explicit_key is not None:
        return _digest("c4a/effect/v1", f'{{"explicit_key":{text_literal(explicit_key)},{place}}}')
    return _digest("c4a/effect/v1", f'{{"args":{arguments},{place}}}')


def undo_key(key: str) -> str:
    """The effect key of the effect that reverses `key`: `c4a/undo/v1` over it. 64 hex."""
    return _digest("c4a/undo/v1", key)


def outside_key(key: str, epoch: int = 0, *, undo: bool = False, form: str = "uuid", max: int | None = None) -> str:
    """The idempotency key to send to a service: the same on every attempt of an effect, other for its undo or a new epoch.

    `form` is `uuid` (UUIDv8 of RFC 9562, 36 characters), `hex` (64) or `base32` (52, lower case); `max` cuts the latter two.

    Raises:
        InvalidArguments: unknown form, or a `max` that leaves less than 80 bits.
    """
    text = f"{key}\n{epoch}\nundo" if undo else f"{key}\n{epoch}"
    digest = sha256(f"c4a/outside/v1\n{text}".encode()).digest()
    if form == "uuid":
        return _uuid8(digest, max)
    if form == "hex":
        return _cut(digest.hex(), max, bits_a_character=4)
    if form == "base32":
        return _cut(base64.b32encode(digest).decode().rstrip("=").lower(), max, bits_a_character=5)
    raise InvalidArguments(f"form: expected uuid, hex or base32, got {form!r}", parameter="form")


def explicit_key_text(value: object) -> str:
    """An explicit key as text: 7 and "7" are one key.

    Raises:
        InvalidArguments: neither text nor int, a bool, blank, over 256 bytes, or with NUL or a lone surrogate.
    """
    if type(value) is int and value.bit_length() <= 8 * MAX_IDENTIFIER_BYTES:
        value = str(value)
    if type(value) is not str:
        raise InvalidArguments(
            f"key: expected text or an int of at most {MAX_IDENTIFIER_BYTES} digits, got {type(value).__qualname__}; "
            "leave it out to key the action by its arguments",
            parameter="key",
        )
    return identifier(value, "key")


def identifier(value: object, what: str) -> str:
    """The name of a run, tool, organization or actor, checked and unchanged.

    Raises:
        InvalidArguments: not text, blank, over 256 bytes of UTF-8, or with NUL or a lone surrogate; `parameter` is `what`.
    """
    if not isinstance(value, str):
        raise InvalidArguments(f"{what}: expected text, got {type(value).__qualname__}", parameter=what)
    if not value.strip():
        raise InvalidArguments(f"{what}: expected text, got blank text", parameter=what)
    if "\0" in value or not is_storable(value):
        raise InvalidArguments(f"{what}: expected text without NUL or lone surrogates, which not every database can hold", parameter=what)
    if len(value) > MAX_IDENTIFIER_BYTES or len(value.encode()) > MAX_IDENTIFIER_BYTES:
        raise InvalidArguments(f"{what}: expected at most {MAX_IDENTIFIER_BYTES} bytes, got {len(value.encode())}", parameter=what)
    return str(value)


def new_token() -> str:
    """A fresh claim token: 128 random bits, 32 hex."""
    return os.urandom(16).hex()


def token_hash(token: str) -> str:
    """SHA-256 of a claim token, which is all the record keeps of it. 64 hex."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def payload_digest(salt: str, text: str) -> str:
    """SHA-256 over salt and payload text of an entry: stays in the chain when the payload is erased. 64 hex."""
    return sha256(f"{salt}{text}".encode()).hexdigest()


def _digest(domain: str, text: str) -> str:
    try:
        return sha256(f"{domain}\n{text}".encode()).hexdigest()
    except UnicodeEncodeError:
        raise InvalidArguments("a name has a lone surrogate, which UTF-8 cannot hold", parameter="name") from None


def _uuid8(digest: bytes, limit: int | None) -> str:
    if limit is not None and limit < 36:
        raise InvalidArguments(f"max: a uuid has 36 characters, got {limit}; use form='hex' or 'base32'", parameter="max")
    data = bytearray(digest[:16])
    data[6] = data[6] & 0x0F | 0x80
    data[8] = data[8] & 0x3F | 0x80
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _cut(text: str, limit: int | None, *, bits_a_character: int) -> str:
    least = -(-_LEAST_BITS // bits_a_character)
    if limit is not None and limit < least:
        raise InvalidArguments(f"max: expected at least {least} characters, got {limit}; fewer could coincide", parameter="max")
    return text[:limit]
