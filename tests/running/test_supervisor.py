"""The supervisor with real child processes: output, restarts, and an end that leaves nobody behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_SECONDS = 10.0


class Supervised:
    """A process that supervises the given Python programs, and what it printed so far."""

    def __init__(self, folder: Path, programs: dict[str, str], ready: str = "True") -> None:
        listed = [f"Program({name!r}, [sys.executable, '-u', '-c', {textwrap.dedent(code)!r}])" for name, code in programs.items()]
        script = f"""
import os, sys
from c4a_project import supervisor
from c4a_project.supervisor import Program, StartFailed, Supervisor
supervisor.BACKOFF_FIRST_SECONDS = 0.05
supervisor.STOP_SECONDS = 1.0
supervised = Supervisor([{", ".join(listed)}], environment=os.environ)
try:
    if supervised.start(lambda: {ready}, seconds=5):
        print("ready", flush=True)
except StartFailed as failure:
    sys.exit("start failed: " + str(failure))
supervised.run()
print("stopped", flush=True)
"""
        self.output = folder / "output"
        with self.output.open("wb") as file:
            self.process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=file, stderr=file, stdin=subprocess.DEVNULL)

    def text(self) -> str:
        return self.output.read_text()

    def says(self, words: str) -> str:
        """Wait until it printed these words; returns all it printed."""
        eventually(lambda: words in self.text(), f"{words!r} in:\n{self.text()}")
        return self.text()

    def number_after(self, words: str) -> int:
        """Wait for a line with these words and a process number after them."""
        return int(self.says(words).split(words)[-1].split()[0])


Start = Callable[..., Supervised]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a supervised set of programs; what still runs at the end is killed."""
    made: list[Supervised] = []

    def begin(programs: dict[str, str], **options: str) -> Supervised:
        made.append(Supervised(tmp_path, programs, **options))
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.process.wait()


def eventually(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:.0f} s for {what}"
        time.sleep(0.02)


def is_running(number: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


FOREVER = "import os, time\nprint('number', os.getpid())\ntime.sleep(600)"


def test_each_line_of_a_child_carries_its_name(start: Start) -> None:
    supervised = start({"web": "print('hello'); import time; time.sleep(600)", "worker": FOREVER})

    assert "web    | hello\n" in supervised.says("hello\n")


def test_a_child_that_ends_is_started_again(start: Start) -> None:
    supervised = start({"web": FOREVER})
    first = supervised.number_after("number")
    os.kill(first, signal.SIGKILL)

    supervised.says("ended with code -9; starting it again in 0.05 s")

    eventually(lambda: supervised.text().count("number") == 2, "a second start")
    assert is_running(supervised.number_after("number"))


def test_a_child_that_keeps_ending_is_started_more_and_more_seldom(start: Start) -> None:
    supervised = start({"web": "raise SystemExit(3)"})

    said = supervised.says("ended with code 3; starting it again in 0.2 s")

    assert re.findall(r"starting it again in ([\d.]+) s", said)[:3] == ["0.05", "0.1", "0.2"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_within_seconds(start: Start, number: int) -> None:
    supervised = start({"web": FOREVER})
    child = supervised.number_after("number")
    supervised.says("ready")

    supervised.process.send_signal(number)

    assert supervised.process.wait(PATIENCE_SECONDS) == 0
    assert not is_running(child)
    assert "stopped" in supervised.text()


def test_a_signal_before_everything_is_ready_ends_all_too(start: Start) -> None:
    supervised = start({"web": FOREVER}, ready="False")
    child = supervised.number_after("number")

    supervised.process.terminate()

    assert supervised.process.wait(PATIENCE_SECONDS) == 0
    assert not is_running(child)
    assert "ready" not in supervised.text()


def test_a_child_that_ignores_the_request_and_its_own_child_are_ended(start: Start) -> None:
    supervised = start(
        {
            "worker": """
                import os, signal, subprocess, sys, time
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
                print('inner', inner.pid)
                print('number', os.getpid())
                time.sleep(600)
            """
        }
    )
    child, inner = supervised.number_after("number"), supervised.number_after("inner")
    supervised.says("ready")

    supervised.process.terminate()

    assert supervised.process.wait(PATIENCE_SECONDS) == 0
    eventually(lambda: not is_running(child) and not is_running(inner), "the end of both")


def test_children_end_even_if_the_supervisor_is_killed(start: Start) -> None:
    supervised = start({"web": FOREVER})
    child = supervised.number_after("number")
    supervised.says("ready")

    assert is_running(child)
    supervised.process.kill()

    eventually(lambda: not is_running(child), "the end of the child")
    assert supervised.process.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_a_program_that_cannot_start_is_named_with_its_last_lines(start: Start) -> None:
    supervised = start({"web": "print('no such table'); raise SystemExit(1)", "worker": FOREVER}, ready="False")

    assert supervised.process.wait(PATIENCE_SECONDS) == 1
    assert "start failed: web ended twice before everything was ready. Its last lines:\nno such table" in supervised.text()
    assert not is_running(supervised.number_after("number"))


def test_a_flood_of_output_is_passed_on_whole(start: Start) -> None:
    supervised = start({"web": "for n in range(20000): print('line', n)\nimport time; time.sleep(600)"})

    assert supervised.says("line 19999\n").count("| line ") == 20000
