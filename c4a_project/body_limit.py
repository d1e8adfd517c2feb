"""The limit of a request's body under ASGI, where Django would store a chunked body of any size before a view sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from django.conf import settings

from c4a.errors import BodyTooLarge
from gateway.problems import problem_body

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type Application = Callable[[Message, Receive, Send], Awaitable[None]]


class _TooLarge(Exception):
    """Read past the limit; caught by the call that counts."""


class BodyLimit:
    """Answer 413 as soon as a body is over `DATA_UPLOAD_MAX_MEMORY_SIZE`, whether its length was announced or not."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.limit_bytes: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hand one request on, counting what it reads."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        if self._announced(scope) > self.limit_bytes:
            await self._refuse(send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.limit_bytes:
                raise _TooLarge
            return message

        try:
            await self.application(scope, counted, send)
        except _TooLarge:
            # Django reads the whole body before it answers, so nothing has been sent yet.
            await self._refuse(send)

    def _announced(self, scope: Message) -> int:
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        return int(lengths[0]) if lengths and lengths[0].isdigit() else 0

    async def _refuse(self, send: Send) -> None:
        body = problem_body(
            BodyTooLarge(f"The body is over the limit of {self.limit_bytes} bytes: send less.", limit_bytes=self.limit_bytes, errors=[])
        )
        headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})
