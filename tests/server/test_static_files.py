"""Static files, under WSGI and under ASGI."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client

CSS = "/static/css/base.css"


def test_a_file_is_the_same_under_wsgi_and_asgi(db: None) -> None:
    plain = Client().get(CSS)
    body = b"".join(plain.streaming_content)  # type: ignore[attr-defined]
    plain.close()
    whole = async_to_sync(AsyncClient().get)(CSS)
    assert (plain.status_code, whole.status_code) == (200, 200)
    assert whole.content == body
    for name in ("Content-Type", "ETag", "Content-Length"):
        assert whole.headers[name] == plain.headers[name]


def test_a_file_that_was_not_changed_is_not_sent_again(db: None) -> None:
    etag = async_to_sync(AsyncClient().get)(CSS).headers["ETag"]
    again = async_to_sync(AsyncClient().get)(CSS, headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/static/../settings.py", "/static/%2e%2e/settings.py", "/static/no-such-file.css"])
def test_only_static_files_are_served(db: None, path: str) -> None:
    assert async_to_sync(AsyncClient().get)(path).status_code == 404
