"""Every address of the server."""

from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.urls import include, path


@login_not_required
def home(request: HttpRequest) -> HttpResponse:
    """The admin for now; the inbox once it is built."""
    return HttpResponseRedirect(resolve_url("admin:index"))


urlpatterns = [
    # First, and claim and complete first in it: addresses are tried in order.
    path("", include("gateway.urls")),
    path("", home, name="home"),
    path("", include("accounts.urls")),
    path("admin/", admin.site.urls),
]
