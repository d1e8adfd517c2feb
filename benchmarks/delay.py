"""A TCP proxy that holds every message back for a while: a database on another machine, on one machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def delayed(host: str, port: int, *, seconds: float) -> Iterator[int]:
    """A local port that leads to `host:port`, with `seconds` added to each round trip (all of it on the way there)."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    ports: list[int] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait: float) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if wait:
                    await asyncio.sleep(wait)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(pump(reader, there_writer, seconds), pump(there_reader, writer, 0))

    async def serve() -> None:
        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        with suppress(asyncio.CancelledError):
            await server.serve_forever()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        thread.join(5)
