"""`python -m benchmarks.rest`: claim + complete, and pause, over REST, one client, beside a bare Starlette app doing as many commits.

Production shape: granian (WSGI, 2 workers × 4 threads), PostgreSQL, a Redis-protocol server; the floor under uvicorn.
Databases are named by C4A_TEST_DATABASE_URL / C4A_TEST_REDIS_URL, else started from the test requirements.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Figure, medians, table
from tests import services

ROOT: Final = Path(__file__).resolve().parent.parent
LIMIT: Final = 1.8
PAUSE_LIMIT: Final = 2.5


class Client:
    """One keep-alive connection that posts JSON."""

    def __init__(self, port: int, key: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._headers = {"Content-Type": "application/json", "X-Forwarded-Proto": "https"} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The parsed answer; anything but 200 ends the benchmark."""
        self._connection.request("POST", path, json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {text[:300]!r}")
        return dict(json.loads(text))


def main(argv: list[str] | None = None) -> int:
    """Measure, print the report, and exit 1 if the figure falls short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args(argv)
    folder = services.run_folder_make()
    server = services.postgres_server_url(folder)
    urls = [services.database_create(server) for _ in range(2)]
    try:
        with tempfile.TemporaryDirectory(prefix="c4a-rest-") as var:
            environment = _environment(urls[0], services.redis_server_url(folder), var)
            key = _prepare(environment)
            with _floor(urls[1]) as floor_port, _server(environment) as port:
                text, figures = _measure(Client(floor_port), Client(port, key), rounds=8 if options.quick else 80)
    finally:
        for url in urls:
            services.database_drop(url)
    print(text)
    if options.write:
        options.write.write_text(text + "\n", encoding="utf-8")
    return 0 if all(figure.holds for figure in figures) else 1


def _measure(floor: Client, ours: Client, *, rounds: int) -> tuple[str, list[Figure]]:
    run = f"bench-{secrets.token_hex(4)}"

    def floor_pair(number: int) -> None:
        floor.post("/claim", {"amount": number, "to": "alice"})
        floor.post("/complete", {"amount": number, "to": "alice"})

    def pair(number: int) -> None:
        token = secrets.token_hex(16)
        claim = {"run": run, "tool": "pay", "arguments": {"amount": number, "to": "alice"}, "token": token}
        key = ours.post("/api/v1/effects/claim", claim)["key"]
        ours.post(f"/api/v1/effects/{key}/complete", {"run": run, "token": token, "result_codec": '"paid"'})

    def floor_insert(number: int) -> None:
        floor.post("/claim", {"amount": number, "to": "alice"})

    def pause(number: int) -> None:
        ours.post("/api/v1/tickets", {"run": run, "tool": "pay", "arguments": {"amount": number, "to": "alice"}})

    for number in range(50):
        for warmed in (floor_pair, pair, floor_insert, pause):
            warmed(-1 - number)
    found = medians(
        {
            "Starlette, two commits": floor_pair,
            "C4A, claim + complete": pair,
            "Starlette, one commit": floor_insert,
            "C4A, pause": pause,
        },
        rounds=rounds,
    )
    figures = [
        Figure(
            "REST: claim + complete against a bare Starlette app", found["C4A, claim + complete"] / found["Starlette, two commits"], LIMIT
        ),
        Figure("REST: pause against a bare Starlette insert", found["C4A, pause"] / found["Starlette, one commit"], PAUSE_LIMIT),
    ]
    rows = "\n".join(["", "| figure | measured | must | |", "|---|---|---|---|", *(figure.row() for figure in figures)])
    return table("REST, one client", found) + "\n" + rows, figures


def _environment(database: str, redis: str, var: str) -> dict[str, str]:
    return {
        **os.environ,
        "C4A_DATABASE_URL": database,
        "C4A_REDIS_URL": redis,
        "C4A_VAR_DIR": var,
        "C4A_SECRET_KEY": secrets.token_hex(32),
        "C4A_RECORD_SECRET": secrets.token_hex(32),
        "C4A_DIGEST_KEY": secrets.token_hex(32),
        "C4A_ALLOWED_HOSTS": "127.0.0.1",
        "C4A_PUBLIC_URL": "https://127.0.0.1",
        "C4A_BEHIND_PROXY": "true",
        "DJANGO_SETTINGS_MODULE": "c4a_project.settings",
    }


def _prepare(environment: dict[str, str]) -> str:
    for command in (
        ["migrate", "--verbosity", "0"],
        ["collectstatic", "--noinput", "--verbosity", "0"],
        ["demo_organization", "--in-production"],
    ):
        done = subprocess.run(
            [sys.executable, "manage.py", *command], cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    return Path(json.loads(done.stdout)["key_file"]).read_text(encoding="utf-8").strip()


@contextlib.contextmanager
def _server(environment: dict[str, str]) -> Iterator[int]:
    port = _free_port()
    command = ["granian", "--interface", "wsgi", "--port", str(port), "--workers", "2", "--blocking-threads", "4", "--log-level", "warning",
               "c4a_project.wsgi:application"]  # fmt: skip
    with _running(command, port, environment):
        yield port


@contextlib.contextmanager
def _floor(database: str) -> Iterator[int]:
    port = _free_port()
    command = ["uvicorn", "benchmarks.floor_app:app", "--port", str(port), "--log-level", "warning"]
    with _running(command, port, {**os.environ, "FLOOR_DATABASE_URL": database}):
        yield port


@contextlib.contextmanager
def _running(command: list[str], port: int, environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen([str(Path(sys.executable).parent / command[0]), *command[1:]], cwd=ROOT, env=environment)
    try:
        _await_port(port, process)
        yield
    finally:
        process.terminate()
        process.wait(15)


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
