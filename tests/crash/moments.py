"""Where a process can be killed: before and after every statement that writes, before and after COMMIT, and inside the action.

`Moments` numbers them as the process comes by; at a chosen one it kills itself with SIGKILL, which no code can catch. Nothing in
the library knows of this: its driver calls are wrapped from outside.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections.abc import Callable
from typing import Any, Final

_WRITES: Final = re.compile(
    r"\s*(BEGIN IMMEDIATE|COMMIT|(INSERT INTO|UPDATE|DELETE FROM|CREATE \w+( \w+)?|DROP \w+)\s+(\w+))", re.IGNORECASE
)


class Moments:
    """Counts the moments of one process and kills it at number `kill_at` (None: never)."""

    def __init__(self, kill_at: int | None) -> None:
        self.kill_at = kill_at
        self.labels: list[str] = []
        self.counting = False

    def pass_by(self, label: str) -> None:
        """One moment; the process may not survive it."""
        if not self.counting:
            return
        self.labels.append(label)
        if len(self.labels) - 1 == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Wrap the drivers in this process."""
        _wrap_sqlite(self)
        _wrap_postgresql(self)
        _wrap_http(self)


def _what(sql: str) -> str | None:
    """`INSERT INTO c4a_entry` of a statement that writes, else None."""
    found = _WRITES.match(sql)
    if found is None:
        return None
    return " ".join(found.group(1).split())


def _wrap_sqlite(moments: Moments) -> None:
    class Killing(sqlite3.Connection):
        """Passes by before and after every statement that writes."""

        def execute(self, sql: str, *params: Any) -> sqlite3.Cursor:
            what = _what(sql)
            if what is None:
                return super().execute(sql, *params)
            moments.pass_by(f"before {what}")
            cursor = super().execute(sql, *params)
            moments.pass_by(f"after {what}")
            return cursor

    real = sqlite3.connect

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        return real(*args, **options, factory=Killing)

    sqlite3.connect = connect  # type: ignore[assignment]
    sqlite3.dbapi2.connect = connect  # type: ignore[assignment]  # where Django looks for it


def _wrap_postgresql(moments: Moments) -> None:
    """A trip is one pipeline: a statement is sent, all are sent, the server has them, the answers have come (so it is committed)."""
    import psycopg

    from c4a.record.postgres import PostgresExecutor

    send, wait = PostgresExecutor._send, psycopg.Connection.wait
    writing: list[str] = []

    def send_one(executor: Any, statement: Any, text: str, *more: Any) -> None:
        what = _what(text)
        if what is not None:
            moments.pass_by(f"before sending {what}")
            writing.append(what)
        send(executor, statement, text, *more)

    def wait_for(connection: Any, generator: Any, *options: Any) -> Any:
        if getattr(getattr(generator, "gi_code", None), "co_name", "") != "_answers" or not writing:
            return wait(connection, generator, *options)
        what = writing[-1]
        moments.pass_by(f"before the server has {what}")
        while connection.pgconn.flush():
            pass
        moments.pass_by(f"after the server has {what}")
        answers = wait(connection, generator, *options)
        writing.clear()
        moments.pass_by(f"after COMMIT of {what}")
        return answers

    PostgresExecutor._send = send_one  # type: ignore[method-assign,assignment]
    psycopg.Connection.wait = wait_for  # type: ignore[method-assign,assignment]


def _wrap_http(moments: Moments) -> None:
    """Over REST: before a request is sent, and once its answer has come."""
    import httpx

    def wrapped(send: Callable[..., Any]) -> Callable[..., Any]:
        def send_one(client: Any, request: Any, **options: Any) -> Any:
            if request.method == "GET":
                return send(client, request, **options)
            what = f"{request.method} {request.url.path.rsplit('/', 1)[-1]}"
            moments.pass_by(f"before {what}")
            answer = send(client, request, **options)
            moments.pass_by(f"after {what}")
            return answer

        return send_one

    httpx.Client.send = wrapped(httpx.Client.send)  # type: ignore[method-assign]
