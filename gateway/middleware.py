"""The API's short way through Django: no session, form, page or policy, so none of the middleware that serves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve

from c4a.errors import RequestRefused
from gateway.errors import HttpsRequired, NoSuchAddress
from gateway.problems import problem_response, unexpected_response
from gateway.threads import in_api_thread

PREFIX = "/api/"
# Asked by load balancers and supervisors, by address and in the clear.
PROBES = frozenset({"/healthz", "/readyz"})


class ApiMiddleware:
    """Answers `/api/…` and the probes itself; hands every other request on.

    Under ASGI `gateway.asgi` answers them before Django's middleware is met.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer one request."""
        return _answer(request) if is_mine(request.path_info) else self.get_response(request)


def is_mine(path: str) -> bool:
    """True for the API's addresses."""
    return path.startswith(PREFIX) or path in PROBES


def _answer(request: HttpRequest) -> HttpResponseBase:
    try:
        view, args, kwargs = _view(request)
        if iscoroutinefunction(view):
            response = async_to_sync(view)(request, *args, **kwargs)
        else:
            response = view(request, *args, **kwargs)
    except Exception as error:  # noqa: BLE001  (the API answers every error as a problem document)
        response = unexpected_response(error)
    return _finished(response)


async def answer_later(request: HttpRequest) -> HttpResponseBase:
    """The answer under ASGI: a view that cannot wait runs in one of the API's threads."""
    try:
        view, args, kwargs = _view(request)
        if iscoroutinefunction(view):
            response = await view(request, *args, **kwargs)
        else:
            response = await in_api_thread(view)(request, *args, **kwargs)
    except Exception as error:  # noqa: BLE001  (as above)
        response = unexpected_response(error)
    return _finished(response)


def _view(request: HttpRequest) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    if request.path_info not in PROBES and (refusal := _refusal(request)):
        return (lambda _request: refusal), (), {}
    try:
        match = resolve(request.path_info)
    except Resolver404:
        response = problem_response(NoSuchAddress(f"There is nothing at {request.path_info[:200]}: see /api/v1/openapi.json."))
        return (lambda _request: response), (), {}
    request.resolver_match = match
    return match.func, match.args, match.kwargs


def _refusal(request: HttpRequest) -> HttpResponse | None:
    try:
        request.get_host()
    except DisallowedHost:
        return problem_response(
            RequestRefused("This server does not answer to that host name.", errors=[{"field": "Host", "problem": "not allowed"}])
        )
    if settings.SECURE_SSL_REDIRECT and not request.is_secure():
        return problem_response(HttpsRequired("Use https: a key sent in the clear should be revoked."))
    return None


def _finished(response: HttpResponseBase) -> HttpResponseBase:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    if settings.SECURE_HSTS_SECONDS:
        response.headers["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}; includeSubDomains; preload"
    return response
