"""An operator at the admin, over HTTP with a real session and the same pages and forms that a browser would send."""

from __future__ import annotations

import html
import re
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from typing import Final

_TOKEN: Final = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
_CHANGE: Final = re.compile(r'href="(/admin/ledger/effect/\d+/change/)')
_RESOLVE: Final = re.compile(r'href="(/admin/ledger/effect/[^"]*resolve[^"]*)"')
_ATTEMPT: Final = re.compile(r'name="attempt" value="(\d+)"')


class OperatorSession:
    """Signs in by the one-time link and settles doubts."""

    def __init__(self, sign_in_link: str) -> None:
        parts = urllib.parse.urlsplit(sign_in_link)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        page = self._get(parts.path)
        self._post(parts.path, {"csrfmiddlewaretoken": _found(_TOKEN, page, "the sign-in page's form")})

    def resolve(self, key: str, *, verdict: str, result: str, note: str) -> None:
        """Search the action, open it, press Resolve and settle it.

        Raises:
            LookupError: a page does not show what an operator would need.
            urllib.error.HTTPError: the admin refused.
        """
        listed = self._get(f"/admin/ledger/effect/?q={key}")
        shown = self._get(_found(_CHANGE, listed, "the action in the admin's list"))
        address = _found(_RESOLVE, shown, "the Resolve button")
        form = self._get(address)
        fields = {
            "csrfmiddlewaretoken": _found(_TOKEN, form, "the form"),
            "attempt": _found(_ATTEMPT, form, "the attempt"),
            "verdict": verdict,
            "result": result,
            "note": note,
        }
        after = self._post(address, fields)
        if "is settled" not in after:
            raise LookupError("the admin did not say that the action is settled")

    def _get(self, path: str) -> str:
        with self._opener.open(self._origin + path, timeout=30) as answer:
            return str(answer.read().decode("utf-8"))

    def _post(self, path: str, fields: dict[str, str]) -> str:
        request = urllib.request.Request(
            self._origin + path, data=urllib.parse.urlencode(fields).encode(), headers={"Referer": self._origin + path}
        )
        with self._opener.open(request, timeout=30) as answer:
            return str(answer.read().decode("utf-8"))


def _found(pattern: re.Pattern[str], page: str, what: str) -> str:
    found = pattern.search(page)
    if found is None:
        raise LookupError(f"expected {what}, but the page does not hold it:\n{page[:2000]}")
    return html.unescape(found[1])
