"""Real server processes: the embedded shape (one ASGI process, SQLite) and the production shape (granian, uvicorn, PostgreSQL, Redis)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
START_SECONDS: Final = 60.0
SECRETS: Final = {name: letter * 50 for name, letter in (("C4A_SECRET_KEY", "k"), ("C4A_RECORD_SECRET", "r"), ("C4A_DIGEST_KEY", "d"))}
COMPANIES: Final = """
import dataclasses, json
from tests.server.cast import company
for slug in ("acme", "other"):
    made = company(slug)
    keys = {"key": made.key, "actor": made.actor, "admin": made.admin, "decider": made.decider}
    print(json.dumps({"slug": slug, "organization": made.organization.id, "agent": made.agent.id, **keys}))
"""


@dataclass
class LiveServer:
    """A server that runs in processes of its own. `url` answers everything, `events_url` the long waits."""

    folder: Path
    database_url: str = ""
    redis_url: str = ""
    keys: dict[str, dict[str, str]] = field(default_factory=dict)
    port: int = 0
    events_port: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def events_url(self) -> str:
        """Where long waits are answered without holding a thread."""
        return f"http://127.0.0.1:{self.events_port or self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its processes, with nothing of this one's settings."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("C4A_", "DJANGO_"))}
        clean |= {"C4A_VAR_DIR": str(self.folder)}
        if self.database_url:
            clean |= SECRETS | {"C4A_DATABASE_URL": self.database_url, "C4A_REDIS_URL": self.redis_url}
            clean |= {"C4A_ALLOWED_HOSTS": "127.0.0.1", "C4A_HTTPS": "false"}
        return clean

    def prepare(self) -> None:
        """Make the tables and two organizations."""
        self._manage("migrate", "-v0")
        made = self._manage("shell", "-v0", "-c", COMPANIES)
        self.keys = {row["slug"]: row for row in map(json.loads, made.splitlines())}

    def start(self) -> None:
        """Start its processes and wait until they answer. A second start after `kill` uses the same port."""
        self.port = self.port or free_port()
        if self.database_url:
            self.events_port = self.events_port or free_port()
            wsgi = ["granian", "--interface", "wsgi", "--workers", "2", "--blocking-threads", "4", "c4a_project.wsgi:application"]
            self._run([sys.executable, "-m", *wsgi, "--port", str(self.port), "--log-level", "warning"])
            asgi = ["uvicorn", "c4a_project.asgi:application", "--lifespan", "off", "--log-level", "warning"]
            self._run([sys.executable, "-m", *asgi, "--port", str(self.events_port)])
        else:
            self.serve([sys.executable, "-m", "c4a_project.serve"])
            return
        for url in {self.url, self.events_url}:
            self._wait_ready(url)

    def serve(self, command: list[str], *arguments: str) -> None:
        """Start one process that serves everything, on a listening socket whose descriptor it gets before `arguments`."""
        self.port = self.port or free_port()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        self._run([*command, str(listener.fileno()), *arguments], (listener.fileno(),))
        listener.close()
        self._wait_ready(self.url)

    def kill(self) -> None:
        """SIGKILL, as a crash of the machine would."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def _run(self, command: list[str], descriptors: tuple[int, ...] = ()) -> None:
        log = (self.folder / "server.log").open("ab")
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=log, stderr=log, pass_fds=descriptors, start_new_session=True
        )
        log.close()
        self.processes.append(process)

    def _wait_ready(self, url: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, OSError) as error:
                ended = [process for process in self.processes if process.poll() is not None]
                if ended or time.monotonic() > deadline:
                    raise RuntimeError(f"{url} does not answer ({error}):\n{(self.folder / 'server.log').read_text()[-4000:]}") from error
                time.sleep(0.1)

    def _manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"manage.py {arguments[0]} failed:\n{done.stderr}")
        return done.stdout


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
