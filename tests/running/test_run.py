"""`manage.py run` as a person starts it: real processes in a folder of their own, from the first line to Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No C4A setting but a fresh data folder and any free port."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("C4A_", "DJANGO_"))}
    return {**kept, "C4A_VAR_DIR": str(tmp_path / "var"), "C4A_PORT": "0"}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A running `manage.py run` whose output goes to `tmp_path/output`."""
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "run"], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    yield process
    process.kill()
    process.wait()


def link_of(process: subprocess.Popen[bytes], output: Path) -> str:
    """The one-time sign-in link, the last thing it prints."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"^    (http://127\.0\.0\.1:\d+/\S+)$", output.read_text(), re.MULTILINE)
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"no sign-in link; it printed:\n{output.read_text()}")


def children_of(number: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{number}/task/{number}/children").read_text().split()]


def test_it_starts_everything_signs_a_person_in_and_stops_on_ctrl_c(run: subprocess.Popen[bytes], tmp_path: Path) -> None:
    link = link_of(run, tmp_path / "output")
    children = children_of(run.pid)

    with urllib.request.urlopen(link, timeout=10) as page:
        assert page.status == 200

    run.send_signal(signal.SIGINT)
    assert run.wait(STOP_SECONDS) == 0
    assert len(children) == 3
    assert [number for number in children if Path(f"/proc/{number}").exists()] == []
    assert "Traceback" not in (tmp_path / "output").read_text()


def test_a_killed_web_process_comes_back_on_the_same_port(run: subprocess.Popen[bytes], tmp_path: Path) -> None:
    address = link_of(run, tmp_path / "output").split("/sign-in")[0]
    web = next(number for number in children_of(run.pid) if b"c4a_project.serve" in Path(f"/proc/{number}/cmdline").read_bytes())

    os.kill(web, signal.SIGKILL)

    # The supervisor holds the socket: this request only waits until the new process takes it.
    with urllib.request.urlopen(f"{address}/readyz", timeout=30) as answer:
        assert answer.status == 200


def test_a_second_run_on_the_same_folder_is_refused(run: subprocess.Popen[bytes], environment: dict[str, str], tmp_path: Path) -> None:
    link_of(run, tmp_path / "output")

    second = subprocess.run([sys.executable, "manage.py", "run"], cwd=ROOT, env=environment, capture_output=True, text=True)

    assert second.returncode == 1
    assert f"process {run.pid}" in second.stderr


def test_a_port_that_is_taken_is_refused_with_a_way_out(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "manage.py", "run", "--port", str(port)], cwd=ROOT, env=environment, capture_output=True, text=True
        )

    assert done.returncode == 1
    assert f"Port {port} of 127.0.0.1 cannot be used" in done.stderr
    assert "set C4A_PORT to another" in done.stderr
