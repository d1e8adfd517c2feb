"""Where the API's views run under ASGI: a few threads that stay, so that a request pays for no new thread and no new connection.

Django itself gives each ASGI request a thread of its own, and with it a database connection of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from asgiref.sync import sync_to_async
from django.db import connections

THREADS: Final = 8


def in_api_thread[**P, Returned](function: Callable[P, Returned]) -> Callable[P, Awaitable[Returned]]:
    """An awaitable form of `function` that runs in one of the API's threads and holds no pooled connection afterwards."""

    def run(*args: P.args, **kwargs: P.kwargs) -> Returned:
        try:
            return function(*args, **kwargs)
        finally:
            _connections_give_back()

    return sync_to_async(run, thread_sensitive=False, executor=_threads())


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="c4a-api")


def _connections_give_back() -> None:
    """PostgreSQL's go back to the pool. SQLite has none, and opening a file anew costs more than a claim: those stay, unless broken."""
    for one in connections.all(initialized_only=True):
        if one.vendor != "sqlite" or one.errors_occurred or one.in_atomic_block:
            one.close()
