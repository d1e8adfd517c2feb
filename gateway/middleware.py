"""The API's short way through Django: no session, form, page or policy, so none of the middleware that serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import Resolver404, resolve

from c4a.errors import EffectUnknown, RequestRefused
from gateway.problems import problem_response, unexpected_response

PREFIX = "/api/"
# Asked by load balancers and supervisors, by address and in the clear.
PROBES = frozenset({"/healthz", "/readyz"})

type GetResponse = Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]


class NoSuchAddress(EffectUnknown):
    """No such address in the API."""

    code = "no-such-address"


class HttpsRequired(RequestRefused):
    """A key came over plain HTTP; it is not redirected, since it has been shown already."""

    code = "https-required"
    status = 403


class ApiMiddleware:
    """Answers `/api/…` and the probes itself; hands every other request on."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Answer one request."""
        mine = request.path_info.startswith(PREFIX) or request.path_info in PROBES
        if not mine:
            return self.get_response(request)
        if self.is_async:
            return _answer_later(request)
        return _answer(request)


def _answer(request: HttpRequest) -> HttpResponseBase:
    try:
        view, args, kwargs = _view(request)
        if iscoroutinefunction(view):
            from asgiref.sync import async_to_sync

            response = async_to_sync(view)(request, *args, **kwargs)
        else:
            response = view(request, *args, **kwargs)
    except Exception as error:  # noqa: BLE001  (the API answers every error as a problem document)
        response = unexpected_response(error)
    return _finished(response)


async def _answer_later(request: HttpRequest) -> HttpResponseBase:
    try:
        view, args, kwargs = _view(request)
        if iscoroutinefunction(view):
            response = await view(request, *args, **kwargs)
        else:
            response = await sync_to_async(view, thread_sensitive=True)(request, *args, **kwargs)
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
