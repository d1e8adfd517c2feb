"""The API's own way under ASGI, around Django's handler: a page's request costs Django a thread, a connection and four hops
between threads, and one middleware that cannot wait would make a long wait hold a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from io import BytesIO
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.core.handlers.asgi import ASGIRequest
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from c4a.errors import RequestRefused
from gateway.middleware import answer_later, is_mine
from gateway.problems import problem_response

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type Application = Callable[[Message, Receive, Send], Awaitable[None]]


class _Gone(Exception):
    """The client closed the connection."""


class ApiApplication:
    """Answers the API's addresses itself and hands everything else to `pages`."""

    def __init__(self, pages: Application) -> None:
        self.pages = pages

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        root = scope.get("root_path", "")
        if scope["type"] != "http" or not is_mine(scope["path"].removeprefix(root)):
            await self.pages(scope, receive, send)
            return
        try:
            body = await _body(receive)
            set_script_prefix(f"{root}/")
            response = await _unless_gone(_answer(scope, body), receive)
        except _Gone:
            return
        await _send(response, send)


async def _answer(scope: Message, body: bytes) -> HttpResponseBase:
    try:
        request = ASGIRequest(scope, BytesIO(body))
    except (UnicodeDecodeError, RequestDataTooBig):
        return problem_response(RequestRefused("The request's address cannot be read.", errors=[]))
    return await answer_later(request)


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _unless_gone(answer: Awaitable[HttpResponseBase], receive: Receive) -> HttpResponseBase:
    """The answer; a wait whose client has gone is given up."""
    answering, listening = asyncio.ensure_future(answer), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({answering, listening}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        raise _Gone
    finally:
        answering.cancel()
        listening.cancel()


async def _send(response: HttpResponseBase, send: Send) -> None:
    headers = [(name.lower().encode("ascii"), str(value).encode("latin-1")) for name, value in response.items()]
    body: bytes = getattr(response, "content", b"")
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
