"""A real SMTP server that keeps nothing but how often each recipient was sent a mail."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Sink:
    """Counts accepted mails. `on_mail` is called with the recipient after a mail was counted and before the sender is told so."""

    def __init__(self) -> None:
        self.port = 0
        self.counts: Counter[str] = Counter()
        self.on_mail: Callable[[str], None] | None = None

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        """Accept the mail; from here on it is out, whether or not the sender lives to hear it."""
        for recipient in envelope.rcpt_tos:
            self.counts[recipient] += 1
            if self.on_mail is not None:
                self.on_mail(recipient)
        return "250 accepted"


@contextmanager
def sink_running() -> Iterator[Sink]:
    """A sink that listens on a free port of 127.0.0.1, in a thread of its own."""
    from aiosmtpd.smtp import SMTP

    sink = Sink()
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: SMTP(sink, loop=loop, hostname="localhost"), "127.0.0.1", 0))
    sink.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, name="mail-sink", daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(_end_tasks(loop))
        loop.close()


async def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    rest = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
