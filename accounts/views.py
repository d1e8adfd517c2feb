"""The sign-in pages."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from accounts.forms import SignInForm
from accounts.models import User
from accounts.throttle import WINDOW_SECONDS, sign_in_failed, sign_in_is_throttled, sign_in_succeeded
from accounts.verbs import sign_in_link_is_usable, sign_in_link_use

BACKEND = "django.contrib.auth.backends.ModelBackend"


@sensitive_post_parameters("password")
@never_cache
@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in with an e-mail address and a password."""
    if request.user.is_authenticated:
        return HttpResponseRedirect(_next(request))
    form = SignInForm(request.POST or None)
    status = 200
    if request.method == "POST":
        email = request.POST.get("email", "")
        if sign_in_is_throttled(request, email):
            form.add_error(None, f"Too many attempts. Wait {WINDOW_SECONDS // 60} minutes, or ask for a sign-in link.")
            status = 429
        elif form.is_valid() and (user := form.user(request)):
            sign_in_succeeded(request, email)
            login(request, user, backend=BACKEND)
            return HttpResponseRedirect(_next(request))
        else:
            sign_in_failed(request, email)
            if not form.errors:
                form.add_error(None, "That address and password do not match. Check both and try again.")
            status = 422
    context = {"form": form, "next": request.POST.get("next", request.GET.get("next", ""))}
    response = render(request, "accounts/sign_in.html", context, status=status)
    if status == 429:
        response.headers["Retry-After"] = str(WINDOW_SECONDS)
    return response


@never_cache
@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in by a one-time link. A GET only shows the button: mail scanners and previews follow links."""
    now = timezone.now()
    if request.method == "POST":
        if (user := sign_in_link_use(token, now=now)) is not None:
            login(request, user, backend=BACKEND)
            return redirect(settings.LOGIN_REDIRECT_URL)
        return render(request, "accounts/sign_in_link.html", {"usable": False}, status=410)
    usable = sign_in_link_is_usable(token, now=now)
    return render(request, "accounts/sign_in_link.html", {"usable": usable}, status=200 if usable else 410)


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    """Set one's password; whoever has one gives it first. Other sessions of the person end."""
    user = request.user
    if not isinstance(user, User):
        raise PermissionDenied
    kind = PasswordChangeForm if user.has_usable_password() else SetPasswordForm
    form = kind(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, user)
        return render(request, "accounts/password.html", {"saved": True})
    return render(request, "accounts/password.html", {"form": form}, status=422 if form.errors else 200)


@login_not_required
@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    logout(request)
    return redirect("accounts-sign-in")


def _next(request: HttpRequest) -> str:
    """Where to go after signing in: only ever a page of this server."""
    wanted = request.POST.get("next", request.GET.get("next", ""))
    if url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        return wanted
    return resolve_url(settings.LOGIN_REDIRECT_URL)
