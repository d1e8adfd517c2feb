"""The records the demo goes through: a file, a server, and PostgreSQL where there is one."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

ROOT: Final = Path(__file__).resolve().parent.parent.parent
READY_SECONDS: Final = 90.0
STOP_SECONDS: Final = 20.0
_LINK: Final = re.compile(r"^    (http://127\.0\.0\.1:\d+/\S+)$", re.MULTILINE)


class PlaceMissing(Exception):
    """There is no such record on this machine; the message says how to give one."""


@dataclass(frozen=True)
class Place:
    """One record, as agents name it, and what their environment must hold."""

    name: str
    address: str
    environment: dict[str, str] = field(default_factory=dict)
    sign_in_link: str | None = None
    """Signs the operator of the demo's server in, once."""


@contextmanager
def file_place(folder: Path) -> Iterator[Place]:
    """A record in a new file."""
    yield Place("file", str(folder / "file" / "ledger.sqlite"))


@contextmanager
def server_place(folder: Path) -> Iterator[Place]:
    """The real server with all its processes, started as `make run` starts it, on data of its own."""
    if not (ROOT / "manage.py").exists():
        raise PlaceMissing("the server is not part of the installed library: run `make demo` in the source tree")
    data = folder / "server"
    environment = {**environment_without_settings(), "C4A_VAR_DIR": str(data), "C4A_PORT": "0"}
    output = folder / "server.log"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "run"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops the server
        )
    try:
        link = _link_of(process, output)
        key = (data / "demo-agent-key").read_text(encoding="utf-8").strip()
        yield Place("server", link.split("/sign-in")[0], {"C4A_KEY": key}, link)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def postgres_place() -> Iterator[Place]:
    """A database of its own on the PostgreSQL server named by C4A_TEST_DATABASE_URL, dropped afterwards."""
    server = os.environ.get("C4A_TEST_DATABASE_URL")
    if not server:
        raise PlaceMissing("no PostgreSQL: name a server whose user may create databases in C4A_TEST_DATABASE_URL")
    from c4a.record import postgres

    name = f"c4a_demo_{secrets.token_hex(6)}"
    address = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    with postgres.connect(server) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        postgres.migrate(address)
        yield Place("PostgreSQL", address, {"C4A_SECRET": secrets.token_hex(32)})
    finally:
        with postgres.connect(server) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def environment_without_settings() -> dict[str, str]:
    """This process's environment without any setting of C4A: the demo decides them all."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("C4A_", "DJANGO_"))}


def _link_of(process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = _LINK.search(output.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"the server did not start; it said:\n{output.read_text(encoding='utf-8', errors='replace')[-3000:]}")
