"""A bare Starlette app that does the two commits of an action and nothing else: the floor of the REST benchmark."""

from __future__ import annotations

import os
import threading

import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

_local = threading.local()


def _insert(text: str) -> None:
    if not hasattr(_local, "connection"):
        _local.connection = psycopg.connect(os.environ["FLOOR_DATABASE_URL"], autocommit=True)
        _local.connection.execute("CREATE TABLE IF NOT EXISTS bare (id BIGSERIAL PRIMARY KEY, x TEXT)")
    _local.connection.execute("INSERT INTO bare (x) VALUES (%s)", (text,))


async def commit(request: Request) -> JSONResponse:
    """Parse the body, commit one row, answer."""
    body = await request.json()
    await run_in_threadpool(_insert, str(body)[:200])
    return JSONResponse({"ok": True})


app = Starlette(routes=[Route("/claim", commit, methods=["POST"]), Route("/complete", commit, methods=["POST"])])
