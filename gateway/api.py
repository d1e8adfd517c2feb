"""The base of every API view: key, scope, body, answer; DRF gives routing and OpenAPI, and none of its per-request machinery.

DRF's own way (Request, negotiation, parsers, serializers, renderers) cost more than both commits of an action together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.views import APIView

from accounts.keys import Caller, caller_of_token
from c4a import keys
from c4a.canonical import parse_json
from c4a.errors import BodyTooLarge, C4AError, DecideNotAllowed, InvalidArguments, NotAuthenticated, RequestRefused, ScopeRefused
from c4a.record.types import Effect
from gateway.errors import MediaTypeRefused, MethodRefused
from gateway.fields import Fields
from gateway.problems import MEDIA_TYPE, problem_response, unexpected_response

NOTHING: Final = Fields({})
ANYBODY: Final = frozenset[str]()
"""The scopes of an operation that needs no key."""
_BODY_DEPTH: Final = 202
"""The body's own levels around arguments of 200."""

PROBLEM_SCHEMA: Final = {
    "type": "object",
    "description": "RFC 9457 problem details; `code` is stable.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "fields": {"type": "object", "additionalProperties": True},
    },
    "required": ["type", "title", "status", "detail", "code", "fields"],
}


@dataclass(frozen=True)
class Operation:
    """One method of one address: who may call it, with what, and what comes back. Its text is the handler's docstring."""

    name: str
    """The OpenAPI operationId."""
    scopes: frozenset[str]
    """Any one of these is enough; none: no key is needed."""
    answer: Mapping[str, Any]
    """JSON Schema of the answer."""
    body: Fields | None = None
    query: Fields = NOTHING
    paths: Mapping[str, str] = field(default_factory=dict)
    """What each part of the address means."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request whose key, scope, query and body were checked."""

    caller: Caller
    body: dict[str, Any]
    query: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON answer: `document`, and members whose JSON text is at hand and goes out as it is, no digit changed."""

    document: Mapping[str, Any]
    raw: Mapping[str, str | None] = field(default_factory=dict)
    status: int = 200

    def text(self) -> str:
        """The JSON text."""
        members = [f"{json.dumps(name)}: {'null' if text is None else text}" for name, text in self.raw.items()]
        document = json.dumps(self.document)
        if not members:
            return document
        return document[:-1] + (", " if self.document else "") + ", ".join(members) + "}"


class ApiView(APIView):
    """One address. A subclass lists its `operations` and has a handler per method: `def post(self, given, **path) -> Answer`."""

    operations: ClassVar[Mapping[str, Operation]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for method, operation in cls.__dict__.get("operations", {}).items():
            setattr(cls, method, _documented(operation, getattr(cls, method)))

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Check, call the handler, and write its answer; every error is a problem document."""
        try:
            operation, handler = self.operation_of(request)
            incoming = incoming_read(request, operation)
            if "run" in kwargs:
                keys.identifier(kwargs["run"], "run")
            return answer_response(handler(incoming, **kwargs))
        except C4AError as error:
            return problem_response(error)
        except Exception as error:  # noqa: BLE001  (whatever it is, the client gets a problem document)
            return unexpected_response(error)

    def operation_of(self, request: HttpRequest) -> tuple[Operation, Callable[..., Any]]:
        """The operation and its handler.

        Raises:
            MethodRefused: the address has no such method.
        """
        method = (request.method or "").lower()
        operation = self.operations.get("get" if method == "head" else method)
        if operation is None:
            allowed = sorted(name.upper() for name in self.operations)
            raise MethodRefused(f"{request.method} is not possible here: expected {', '.join(allowed)}.", allowed=allowed, errors=[])
        return operation, getattr(self, "get" if method == "head" else method)


def incoming_read(request: HttpRequest, operation: Operation) -> Incoming:
    """Check key, scope, query and body, in this order.

    Raises:
        NotAuthenticated, ScopeRefused, RequestRefused, BodyTooLarge, MediaTypeRefused.
    """
    caller = caller_of_request(request, operation.scopes) if operation.scopes else _NOBODY
    query = operation.query.read_query(_query(request)) if request.META.get("QUERY_STRING") or operation.query.fields else {}
    body = operation.body.read(body_json(request)) if operation.body is not None else {}
    return Incoming(caller, body, query)


def caller_of_request(request: HttpRequest, scopes: frozenset[str]) -> Caller:
    """The caller whose key came in the Authorization header.

    Raises:
        NotAuthenticated: no key, or one that is unknown, revoked or expired.
        ScopeRefused: the key has none of `scopes`.
    """
    scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise NotAuthenticated("No key: send `Authorization: Bearer c4a_…`.")
    caller = caller_of_token(token.strip(), now=timezone.now())
    if not caller.scopes & scopes:
        needs, has = sorted(scopes), sorted(caller.scopes)
        kind = DecideNotAllowed if caller.is_agent and "decide" in scopes else ScopeRefused
        raise kind(f"This key may not do this: it needs {' or '.join(needs)}, it has {', '.join(has) or 'nothing'}.", needs=needs, has=has)
    return caller


def body_json(request: HttpRequest) -> object:
    """The body, parsed strictly: exact numbers, no duplicate keys, no NaN.

    Raises:
        MediaTypeRefused: another media type, charset or encoding.
        BodyTooLarge: over `DATA_UPLOAD_MAX_MEMORY_SIZE`.
        RequestRefused: malformed JSON.
    """
    content_type = request.content_type or ""
    if content_type != "application/json" and not (content_type.startswith("application/") and content_type.endswith("+json")):
        raise MediaTypeRefused(f"Content-Type is {content_type[:100]!r}: expected application/json.", errors=[])
    charset = (request.content_params or {}).get("charset", "utf-8").lower()
    if charset not in ("utf-8", "utf8") or request.META.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise MediaTypeRefused("The body: expected plain UTF-8, without another charset or a Content-Encoding.", errors=[])
    limit = int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    try:
        body = request.body
    except RequestDataTooBig:
        raise _too_large(limit) from None
    except UnreadablePostError as error:
        raise RequestRefused("The body broke off before its end.", errors=[]) from error
    if len(body) > limit:
        raise _too_large(limit)
    try:
        return parse_json(body, limit_bytes=limit, depth=_BODY_DEPTH, root="body")
    except InvalidArguments as error:
        raise RequestRefused(f"{error.message}.", errors=[{"field": "", "problem": error.message}]) from None


def answer_response(answer: Answer) -> HttpResponse:
    """The answer as JSON."""
    return HttpResponse(answer.text().encode(), status=answer.status, content_type="application/json")


def effect_answer(effect: Effect) -> tuple[dict[str, Any], dict[str, str | None]]:
    """An effect as document and raw members: `arguments` and `result` as JSON, and beside them their codec texts."""
    document = asdict(effect)
    raw = {name: document.pop(name) for name in ("arguments", "result")}
    document["result_codec"] = raw["result"]
    return document, raw


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is over the limit of {limit} bytes: send less, or a reference instead.", limit_bytes=limit, errors=[])


def _query(request: HttpRequest) -> dict[str, str]:
    twice = [name for name, values in request.GET.lists() if len(values) > 1]
    if twice:
        raise RequestRefused("A query parameter stands twice.", errors=[{"field": name, "problem": "stands twice"} for name in twice])
    return {name: str(value) for name, value in request.GET.items() if value}


def _documented(operation: Operation, handler: Callable[..., Any]) -> Callable[..., Any]:
    summary, _, description = (handler.__doc__ or "").strip().partition("\n")
    scopes = " or ".join(sorted(operation.scopes))
    needs = f"Needs a key with `{scopes}`." if scopes else "Needs no key."
    parameters = [
        OpenApiParameter(name, one.schema, OpenApiParameter.QUERY, description=one.about, required=one.required)
        for name, one in operation.query.fields.items()
    ]
    parameters += [
        OpenApiParameter(name, {"type": "string"}, OpenApiParameter.PATH, description=about) for name, about in operation.paths.items()
    ]
    documented: Callable[..., Any] = extend_schema(
        operation_id=operation.name,
        summary=summary.rstrip("."),
        description="\n".join([line.strip() for line in description.strip().splitlines()] + [needs]).strip(),
        parameters=parameters,
        request={"application/json": operation.body.schema()} if operation.body is not None else None,
        responses={(200, "application/json"): dict(operation.answer), ("default", MEDIA_TYPE): PROBLEM_SCHEMA},
        auth=None if operation.scopes else [],
        tags=["C4A"],
    )(handler)
    return documented


_NOBODY: Final = Caller("", "", frozenset(), "", "")
