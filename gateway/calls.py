"""From a claim's body to a call with its digests: the server computes every digest, whatever a client sends along."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from c4a import canonical, codec, keys
from c4a.errors import InvalidArguments, RequestRefused
from c4a.record.types import MAX_RESULT_BYTES, Call, Claimant
from c4a.tree import TAG
from ledger.results import result_codec

_DECODER: Final = json.JSONDecoder()
_MAP: Final = f'{{"{TAG}":"map",'
_TAGGED: Final = f'{{"{TAG}":'
HEAD_CHARACTERS: Final = 1000
_RESULT_DEPTH: Final = 408
"""A tag adds one level of JSON to the level of the value it holds (200)."""


def call_from_body(body: Mapping[str, Any], organization: str) -> Call:
    """The call that a body asks for, every digest computed here.

    Raises:
        InvalidArguments: arguments without a stable form, or none at all.
        RequestRefused: a digest that came along says something else; field `errors`.
    """
    typed = _arguments_codec(body)
    arguments = canonical.canonical_from_codec(typed)
    if not arguments.startswith("{") or (arguments.startswith(_TAGGED) and not arguments.startswith(_MAP)):
        raise InvalidArguments("args: expected an object of parameter names to values.", parameter="args")
    tool, explicit = body["tool"], body["explicit_key"]
    exclude: tuple[str, ...] = body["exclude"]
    reduced = arguments_without(arguments, exclude) if exclude else arguments
    digest = keys.call_digest(tool, arguments)
    if explicit is None:
        key = keys.effect_key(organization, body["run"], tool, arguments=reduced)
    else:
        key = keys.effect_key(organization, body["run"], tool, explicit_key=explicit)
    args_digest = keys.call_digest(tool, reduced) if exclude else digest
    _refuse_other(body, key=key, call_digest=digest, args_digest=args_digest)
    return Call(
        run=body["run"],
        tool=tool,
        arguments=arguments,
        arguments_codec=typed,
        call_digest=digest,
        args_digest=args_digest,
        key=key,
        explicit_key=explicit,
        gated=body["gated"],
        parent=body["parent"],
        exclude=exclude,
        has_undo=body["has_undo"],
    )


def asked_call_from_body(body: Mapping[str, Any], organization: str) -> Call:
    """As `call_from_body`, of a body that asks people about a call or answers about it: it says what runs, not how.

    Raises as `call_from_body`.
    """
    plain = {"explicit_key": None, "call_digest": None, "key": None, "args_digest": None, "exclude": (), "parent": None}
    return call_from_body({**plain, "has_undo": False, **body, "gated": True}, organization)


def claimant_from_body(body: Mapping[str, Any], actor: str) -> Claimant:
    """Who claims; the actor is the key's, never the body's."""
    return Claimant(token=body["token"], actor=actor, holder=body["holder"], lease_seconds=body["lease_seconds"])


def result_from_body(body: Mapping[str, Any]) -> str | None:
    """Codec text of the result a body carries, plain or in codec text; None if it carries none.

    Raises:
        RequestRefused: both.
        InvalidArguments: text that is no JSON, or a result over the limit.
    """
    plain, typed = body["result"], body["result_codec"]
    if plain is not None and typed is not None:
        raise RequestRefused("Expected either result or result_codec, got both.", errors=[{"field": "result", "problem": "given twice"}])
    if typed is not None:
        canonical.parse_json(typed, limit_bytes=MAX_RESULT_BYTES, depth=_RESULT_DEPTH, root="result_codec")
        return str(typed)
    if plain is None:
        return None
    return result_codec(plain)


def result_unkept(body: Mapping[str, Any]) -> tuple[str, str]:
    """What is kept of a result that was refused, as codec text, and the note that says why it is not the result itself.

    Of one over the limit its digest and head, of any other its text, as the library keeps them.
    """
    text = str(body["result_codec"] if body["result"] is None else json.dumps(body["result"], default=str))
    data = text.encode()
    if len(data) > MAX_RESULT_BYTES:
        kept = {"sha256": hashlib.sha256(data).hexdigest(), "head": text[:HEAD_CHARACTERS], "size_bytes": str(len(data))}
        return codec.encode(kept), "oversize"
    return codec.encode({"text": text[:HEAD_CHARACTERS]}), "unrecordable"


def arguments_without(arguments: str, names: tuple[str, ...]) -> str:
    """Canonical text of an object without some of its members: the rest is cut out as it stands, so no digit changes."""
    if arguments.startswith(_MAP):
        raise InvalidArguments(f"exclude: a tool with a parameter named {TAG} cannot leave out others.", parameter="exclude")
    kept: list[str] = []
    at = 1
    while arguments[at] != "}":
        start = at + (arguments[at] == ",")
        name, at = _DECODER.raw_decode(arguments, start)
        _, at = _DECODER.raw_decode(arguments, at + 1)
        if name not in names:
            kept.append(arguments[start:at])
    return "{" + ",".join(kept) + "}"


def _arguments_codec(body: Mapping[str, Any]) -> str:
    plain, typed = body["arguments"], body["arguments_codec"]
    if (plain is None) == (typed is None):
        raise InvalidArguments(
            f"args: expected either arguments (plain JSON) or arguments_codec, got {'neither' if plain is None else 'both'}.",
            parameter="args",
        )
    return typed if typed is not None else canonical.plain_arguments_codec(plain)


def _refuse_other(body: Mapping[str, Any], **computed: str) -> None:
    errors = [
        {"field": name, "problem": f"computed {value} here, got {body[name]}"}
        for name, value in computed.items()
        if body[name] is not None and body[name] != value
    ]
    if errors:
        raise RequestRefused(
            "A digest that was sent along is not that of this call: client and server do not mean the same action. Nothing was written.",
            errors=errors,
        )
