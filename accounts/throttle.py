"""How often one may try to sign in: counted per address, per person and per both, in the shared cache."""

from __future__ import annotations

import hashlib
from typing import Final

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest

WINDOW_SECONDS: Final = 300
# The pair is tight against guessing; the person alone is wide, so that a stranger can hardly lock somebody out.
LIMITS: Final = {"both": 5, "person": 50, "address": 100}


def sign_in_is_throttled(request: HttpRequest, email: str) -> bool:
    """True if this address or person has failed too often within the window."""
    counters = _counters(request, email)
    counts = cache.get_many(counters.values())
    return any(counts.get(counter, 0) >= LIMITS[kind] for kind, counter in counters.items())


def sign_in_failed(request: HttpRequest, email: str) -> None:
    """Count one failure. The window begins with the first."""
    for counter in _counters(request, email).values():
        cache.add(counter, 0, WINDOW_SECONDS)
        try:
            cache.incr(counter)
        except ValueError:
            # It ran out between the two calls.
            cache.set(counter, 1, WINDOW_SECONDS)


def sign_in_succeeded(request: HttpRequest, email: str) -> None:
    """Forget the failures of this person from this address."""
    cache.delete(_counters(request, email)["both"])


def client_address(request: HttpRequest) -> str:
    """The client's address; behind a proxy the last one in X-Forwarded-For, which the proxy itself appended."""
    if settings.BEHIND_PROXY and (forwarded := request.headers.get("X-Forwarded-For")):
        return forwarded.rsplit(",", 1)[-1].strip()
    return str(request.META.get("REMOTE_ADDR", ""))


def _counters(request: HttpRequest, email: str) -> dict[str, str]:
    address, person = client_address(request), email.strip().lower()
    parts = {"both": f"{address}\n{person}", "person": person, "address": address}
    return {kind: f"sign-in:{kind}:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}" for kind, text in parts.items()}
