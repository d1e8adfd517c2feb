"""How a command ends when its output or its user goes away: no traceback, and the code says which."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.cli.conftest import process_start

SECONDS: Final = 30.0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def test_a_reader_that_goes_away_ends_it_quietly_with_141(record: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)

    process = process_start("doubt", record, stdout=write_end)
    os.close(write_end)
    _, err = process.communicate(timeout=SECONDS)

    assert (process.returncode, err) == (141, "")


def test_a_full_disk_behind_the_output_is_one_line(record: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        process = process_start("doubt", record, stdout=full)
    _, err = process.communicate(timeout=SECONDS)

    assert process.returncode == 1
    assert err.startswith("c4a: ")
    assert err.count("\n") == 1


def test_a_terminal_that_knows_ascii_only_gets_escapes(record: Path) -> None:
    process = process_start("doubt", record, env={"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=SECONDS)

    assert (process.returncode, err) == (0, "")
    assert "send_email" in out


def test_ctrl_c_while_it_waits_is_one_line_and_130(record: Path) -> None:
    with record.with_name(record.name + "-queue").open("r+b") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)
        process = process_start("rebuild", record)
        until(lambda: f"-> FLOCK  ADVISORY  WRITE {process.pid} " in Path("/proc/locks").read_text())

        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)

    assert (process.returncode, err) == (130, "c4a: interrupted\n")


def test_ctrl_c_ends_quickstart_together_with_its_agent() -> None:
    process = process_start("quickstart", start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until(lambda: bool(children.read_text()))
    agent = int(children.read_text().split()[0])

    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=SECONDS)

    assert (process.returncode, err) == (130, "c4a: interrupted\n")
    until(lambda: not Path(f"/proc/{agent}").exists())


def test_python_m_c4a_is_the_same_command() -> None:
    process = process_start("--version", stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    assert out.startswith("c4a 0.")
