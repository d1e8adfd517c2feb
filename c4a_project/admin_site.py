"""The admin site: operators and admins of an organization, and superusers; its own sign-in is the project's page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.csp import csp_override
from unfold.sites import UnfoldAdminSite  # type: ignore[import-untyped]

ADMIN_ROLES = frozenset({"operator", "admin"})


class AdminSite(UnfoldAdminSite):  # type: ignore[misc]
    """Unfold's site, the only place where the content security policy is relaxed."""

    def has_permission(self, request: HttpRequest) -> bool:
        """True for a superuser, and for an operator or admin of the request's organization."""
        user = request.user
        return bool(user.is_active and (user.is_superuser or ADMIN_ROLES & getattr(request, "roles", frozenset())))

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Callable[..., Any]:
        """Every admin page runs under the admin's own policy."""
        relaxed: Callable[..., Any] = csp_override(settings.ADMIN_CSP)(super().admin_view(view, cacheable))
        return relaxed

    @method_decorator(never_cache)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Signing in happens on one page only; somebody signed in without the role is told so."""
        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied("The admin is for operators and admins of an organization.")
        return redirect_to_login(request.GET.get("next", request.get_full_path()), settings.LOGIN_URL)
