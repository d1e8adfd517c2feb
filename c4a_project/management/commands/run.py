"""`manage.py run`: everything on this machine, nothing to install: web, worker and beat on SQLite under one supervisor."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from c4a_project.supervisor import Program, StartFailed, Supervisor

READY_PATH: Final = "/readyz"
READY_SECONDS: Final = 60.0
DEFAULT_PORT: Final = 8000


class Command(BaseCommand):
    """Prepare, start, print where to sign in, and keep running until Ctrl-C."""

    help = "Migrate, make the demo organization and start web, worker and beat; end with Ctrl-C. C4A_PORT chooses the port."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The port; without one C4A_PORT, else 8000 or, if that is taken, any free one."""
        parser.add_argument("--port", type=int, default=None, help="port of 127.0.0.1; 0 for any free one (default: C4A_PORT, else 8000)")

    def handle(self, *args: object, **options: Any) -> None:
        """Run until a signal; every child has ended when this returns."""
        if settings.PRODUCTION:
            raise CommandError("`run` is for one machine. In production each process is started on its own: see compose.yaml.")
        with _only_one(settings.VAR_DIR / "run.lock"), _listener(_wished_port(options["port"])) as listener:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            environment = {"C4A_PUBLIC_URL": address, **os.environ, "PYTHONUNBUFFERED": "1"}
            self._stage("Preparing the database", environment, "migrate", "--verbosity", "0")
            self._stage("Collecting static files", environment, "collectstatic", "--noinput", "--verbosity", "0")
            demo = json.loads(self._stage("Making the demo organization and its agent key", environment, "demo_organization"))
            supervisor = Supervisor(_programs(listener), environment=environment)
            if self._start(supervisor, listener, address):
                link = self._stage("", environment, "sign_in_link", "--base-url", address).strip()
                _announce(address, demo["key_file"], link)
            supervisor.run()
            print("Stopped.", flush=True)

    def _start(self, supervisor: Supervisor, listener: socket.socket, address: str) -> bool:
        print(f"Starting web, worker and beat at {address} …", flush=True)
        began = time.monotonic()
        try:
            ready = supervisor.start(lambda: _is_ready(listener.getsockname()[1]), seconds=READY_SECONDS)
        except StartFailed as failure:
            raise CommandError(str(failure)) from None
        if ready:
            print(f"Ready after {time.monotonic() - began:.0f} s.", flush=True)
        return ready

    def _stage(self, text: str, environment: dict[str, str], *command: str) -> str:
        """Run one management command in a process of its own, with this address in its settings; returns what it printed."""
        if text:
            print(f"{text} …", end=" ", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "manage.py", *command], env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            print("failed", flush=True)
            raise CommandError(f"manage.py {' '.join(command)} ended with code {done.returncode}:\n{done.stderr or done.stdout}")
        if text:
            print(f"{time.monotonic() - began:.0f} s", flush=True)
        return done.stdout


def _programs(listener: socket.socket) -> list[Program]:
    descriptor = listener.fileno()
    # One machine, one user: what Celery says to root about shared machines only hides the sign-in link.
    celery = [sys.executable, "-W", "ignore:You're running the worker", "-m", "celery", "--quiet", "--app", "c4a_project"]
    # Threads: a worker of one process starts quickly and SQLite has one writer anyway.
    worker = [*celery, "worker", "--pool", "threads", "--concurrency", "4", "--without-gossip", "--without-mingle", "--loglevel", "warning"]
    beat = [*celery, "beat", "--loglevel", "warning", "--pidfile="]
    return [
        Program("web", [sys.executable, "-m", "c4a_project.serve", str(descriptor)], descriptors=[descriptor]),
        Program("worker", worker),
        Program("beat", beat),
    ]


def _announce(address: str, key_file: str, link: str) -> None:
    print(f'\nC4A runs at {address}. An agent uses it by c4a.init("{address}", key=…) with the key in {key_file}.')
    print("Ctrl-C stops it. Sign in once, within ten minutes, with:\n")
    print(f"    {link}\n", flush=True)


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold the lock of this data folder; it is let go when the process ends, however it ends.

    Raises:
        CommandError: another `run` holds it.
    """
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise CommandError(
                f"C4A already runs on {path.parent} (process {holder}). Stop it, or set C4A_VAR_DIR to another folder."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _wished_port(option: int | None) -> int | None:
    """The port asked for, or None where any will do if the usual one is taken."""
    text = os.environ.get("C4A_PORT", "").strip()
    if option is None and not text:
        return None
    try:
        port = int(text) if option is None else option
    except ValueError:
        raise CommandError(f"C4A_PORT is {text!r}: expected a port number, or 0 for any free one.") from None
    if not 0 <= port <= 65535:
        raise CommandError(f"The port is {port}: expected 0 to 65535.")
    return port


def _listener(wished: int | None) -> socket.socket:
    """A listening socket on loopback.

    Raises:
        CommandError: the port asked for is taken.
    """
    listener = socket.socket()
    # Else the port of a run that just ended could not be used again for a minute.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", DEFAULT_PORT if wished is None else wished))
    except OSError as error:
        if wished is not None:
            listener.close()
            raise CommandError(f"Port {wished} of 127.0.0.1 cannot be used ({error.strerror}): set C4A_PORT to another, or to 0.") from None
        listener.bind(("127.0.0.1", 0))
        print(f"Port {DEFAULT_PORT} is taken; using {listener.getsockname()[1]}.", flush=True)
    listener.listen(128)
    return listener


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", READY_PATH)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
