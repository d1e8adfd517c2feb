"""A page to read the API by, made from the same OpenAPI document that programs read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator

from c4a.errors import error_classes


@dataclass(frozen=True)
class Shown:
    """One operation as the page shows it."""

    method: str
    path: str
    name: str
    summary: str
    description: str
    fields: tuple[dict[str, Any], ...]
    answer: str


@login_not_required
@require_safe
def api_reference(request: HttpRequest) -> HttpResponse:
    """Every operation with its fields and its answer. Works without JavaScript."""
    return render(request, "gateway/api_reference.html", {"operations": operations_shown(), "problems": problems_shown()})


@login_not_required
@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    """The OpenAPI 3.1 document."""
    return HttpResponse(openapi_text(), content_type="application/json")


@cache
def openapi_text() -> bytes:
    """The OpenAPI 3.1 document as JSON; made once a process."""
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return json.dumps(document, indent=1).encode()


@cache
def operations_shown() -> tuple[Shown, ...]:
    """The operations in the order of their addresses; made once a process."""
    paths = json.loads(openapi_text())["paths"]
    return tuple(_shown(path, method, operation) for path, methods in paths.items() for method, operation in methods.items())


@cache
def problems_shown() -> tuple[dict[str, Any], ...]:
    """Every problem with its stable code, status and meaning."""
    return tuple(
        {"code": code, "status": cls.status, "about": (cls.__doc__ or "").strip().splitlines()[0]}
        for code, cls in sorted(error_classes().items())
    )


def _shown(path: str, method: str, operation: dict[str, Any]) -> Shown:
    return Shown(
        method=method.upper(),
        path=path,
        name=operation["operationId"],
        summary=operation.get("summary", ""),
        description=operation.get("description", ""),
        fields=tuple(_fields(operation)),
        answer=json.dumps(operation["responses"]["200"]["content"], indent=2) if "200" in operation["responses"] else "",
    )


def _fields(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in operation.get("parameters", ()):
        yield {"name": one["name"], "where": one["in"], "required": one.get("required", False), "about": one.get("description", "")}
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for name, one in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        yield {"name": name, "where": "body", "required": required, "about": one.get("description", "")}
