"""Calls as `@c4a.effect` makes them, for tests that speak to a server from processes without Django."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from c4a import canonical, keys
from c4a.record.http import ServerRecord
from c4a.record.types import Call, Claimant


def new_token() -> str:
    """A fresh claim token."""
    return secrets.token_hex(16)


def claimant(token: str | None = None) -> Claimant:
    """A caller."""
    return Claimant(token=token or new_token(), actor="local:nobody")


def call(
    record: ServerRecord, run: str | None = None, explicit_key: str | None = None, exclude: tuple[str, ...] = (), **arguments: Any
) -> Call:
    """An action as `@c4a.effect` makes it."""
    run = run or uuid.uuid4().hex
    canon, codec = canonical.encode_arguments(arguments)
    kept = {name: value for name, value in arguments.items() if name not in exclude}
    reduced = canonical.encode_arguments(kept)[0]
    named = {"explicit_key": explicit_key} if explicit_key else {"arguments": reduced}
    return Call(
        run=run,
        tool="shop.pay",
        arguments=canon,
        arguments_codec=codec,
        call_digest=keys.call_digest("shop.pay", canon),
        args_digest=keys.call_digest("shop.pay", reduced),
        key=keys.effect_key(record.organization, run, "shop.pay", **named),
        explicit_key=explicit_key,
        exclude=exclude,
    )
