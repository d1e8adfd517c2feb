"""Put the signed-in person's organization and roles on the request, so that lower apps need not import this one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from accounts.models import Member, User

SESSION_ORGANIZATION = "organization"

type GetResponse = Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]


class OrganizationMiddleware:
    """Set `request.organization` (id or ""), `request.roles` (frozenset) and `request.actor` (text for the record)."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Hand the request on with its organization."""
        if self.is_async:
            return self._later(request)
        request_set_organization(request)
        return cast(HttpResponseBase, self.get_response(request))

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        await sync_to_async(request_set_organization)(request)
        return await cast(Awaitable[HttpResponseBase], self.get_response(request))


def request_set_organization(request: HttpRequest) -> None:
    """Choose the membership the session names, else the person's first. One query for a signed-in person, none for others."""
    member = _member(request)
    request.organization = member.organization_id if member else ""  # type: ignore[attr-defined]
    request.roles = frozenset(member.roles) if member else frozenset()  # type: ignore[attr-defined]
    request.actor = member.subject if member else f"user:{request.user.pk}"  # type: ignore[attr-defined]


def _member(request: HttpRequest) -> Member | None:
    user = request.user
    if not isinstance(user, User):
        return None
    memberships = list(Member.objects.filter(user=user, is_active=True).order_by("joined_at", "id"))
    chosen = request.session.get(SESSION_ORGANIZATION)
    return next((member for member in memberships if member.organization_id == chosen), memberships[0] if memberships else None)
