"""Keep a few processes running, and end them all together.

One thread, one `select`: signals, the children's output and the restarts all pass through the same loop, so there is
nothing to lock and forking is safe. On Linux a child dies with the supervisor even if that is killed with SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

BACKOFF_FIRST_SECONDS: Final = 0.5
BACKOFF_LAST_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 30.0
"""A child that ran this long is forgiven its earlier crashes."""
STOP_SECONDS: Final = 5.0
"""Between asking the children to end and ending them."""
TICK_SECONDS: Final = 0.2

_C: Final = ctypes.CDLL(None)  # loaded before any fork
_PR_SET_PDEATHSIG: Final = 1


class StartFailed(Exception):
    """A child ended before the whole was ready; the message names it and its exit code."""


@dataclass(frozen=True)
class Program:
    """What to run: its name in the output, its command, and file descriptors it inherits."""

    name: str
    command: Sequence[str]
    descriptors: Sequence[int] = ()


@dataclass
class _Running:
    """One life of a program."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]
    began_at: float
    unfinished: bytes = b""


@dataclass
class _Child:
    """A program over all its lives."""

    program: Program
    life: _Running | None = None
    crashes: int = 0
    start_at: float = 0.0
    last_lines: list[str] = field(default_factory=list)


class Supervisor:
    """Start programs, pass their output on with their names before each line, and restart those that end.

    Use from the main thread of a process that has no other threads.
    """

    def __init__(self, programs: Sequence[Program], *, environment: Mapping[str, str], output: IO[str] | None = None) -> None:
        self._children = [_Child(program) for program in programs]
        self._environment = dict(environment)
        self._output = output or sys.stdout
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._width = max(len(program.name) for program in programs)

    def start(self, is_ready: Callable[[], bool], *, seconds: float) -> bool:
        """Start all; True as soon as `is_ready` says so, asked a few times a second; False if a signal came first.

        Raises:
            StartFailed: a child ended twice, or `seconds` passed, before that; all children are ended.
        """
        self._catch_signals()
        deadline = time.monotonic() + seconds
        while not self._stopping:
            self._tick()
            if is_ready():
                return True
            failed = next((child for child in self._children if child.crashes > 1), None)
            if failed is not None or time.monotonic() > deadline:
                self.stop()
                raise StartFailed(_failure_text(failed, seconds))
        return False

    def run(self) -> None:
        """Keep all running until SIGINT, SIGTERM or SIGHUP, then end all and return."""
        while not self._stopping:
            self._tick()
        self.stop()

    def stop(self) -> None:
        """Ask every child to end, wait `STOP_SECONDS`, end what is left together with its own children."""
        self._stopping = True
        lives = [(child, child.life) for child in self._children if child.life is not None]
        for _, life in lives:
            os.kill(life.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while any(_is_alive(life) for _, life in lives) and time.monotonic() < deadline:
            self._read_output(0.05)
        for child, life in lives:
            self._finish(child, life)

    def _catch_signals(self) -> None:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end)
        self._selector.register(read_end, selectors.EVENT_READ, None)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask_to_stop)

    def _ask_to_stop(self, *_: object) -> None:
        self._stopping = True

    def _tick(self) -> None:
        for child in self._children:
            if child.life is None:
                if time.monotonic() >= child.start_at:
                    self._spawn(child)
            elif not _is_alive(child.life):
                self._restart_later(child, child.life)
        self._read_output(TICK_SECONDS)

    def _spawn(self, child: _Child) -> None:
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        process = subprocess.Popen(
            child.program.command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            pass_fds=child.program.descriptors,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then ends the children in order
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
        )
        os.close(write_end)
        output = open(read_end, "rb", buffering=0)  # noqa: SIM115 - closed by _finish
        child.life = _Running(process, output, time.monotonic())
        self._selector.register(output, selectors.EVENT_READ, child)

    def _restart_later(self, child: _Child, life: _Running) -> None:
        """A child ended by itself: say so, and start it again after a pause that doubles."""
        if time.monotonic() - life.began_at > STEADY_SECONDS:
            child.crashes = 0
        code = self._finish(child, life)
        pause = min(BACKOFF_FIRST_SECONDS * 2**child.crashes, BACKOFF_LAST_SECONDS)
        child.crashes += 1
        child.start_at = time.monotonic() + pause
        self._print(child, f"ended with code {code}; starting it again in {pause:g} s")

    def _finish(self, child: _Child, life: _Running) -> int:
        """End what is left of the child's process group, take the last output and return the exit code."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Before the wait: until then no other process can have got this number.
            os.killpg(life.process.pid, signal.SIGKILL)
        code = life.process.wait()
        self._take(child, life)
        if life.unfinished:
            self._pass_on(child, life.unfinished)
        self._forget_output(life)
        child.life = None
        return code

    def _read_output(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            child = key.data
            if child is None:
                os.read(key.fd, 4096)  # the wake-up bytes of signals
            elif child.life is not None:
                self._take(child, child.life)

    def _take(self, child: _Child, life: _Running) -> None:
        if life.output.closed:
            return
        while (chunk := life.output.read(65536)) is not None:  # None: nothing at the moment
            if not chunk:
                self._forget_output(life)
                return
            *lines, life.unfinished = (life.unfinished + chunk).split(b"\n")
            for line in lines:
                self._pass_on(child, line)

    def _forget_output(self, life: _Running) -> None:
        if not life.output.closed:
            self._selector.unregister(life.output)
            life.output.close()

    def _pass_on(self, child: _Child, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        child.last_lines = [*child.last_lines[-9:], text]
        self._print(child, text)

    def _print(self, child: _Child, text: str) -> None:
        # A reader that went away (a closed terminal, `| head`) must not take the agents' server down.
        with contextlib.suppress(BrokenPipeError):
            print(f"{child.program.name:<{self._width}} | {text}", file=self._output, flush=True)


def _failure_text(child: _Child | None, seconds: float) -> str:
    if child is None:
        return f"Not ready after {seconds:.0f} s; the output above says what was going on."
    return f"{child.program.name} ended twice before everything was ready. Its last lines:\n" + "\n".join(child.last_lines)


def _is_alive(life: _Running) -> bool:
    """Without taking the exit code, so that the process number stays its own."""
    return os.waitid(os.P_PID, life.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _C.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
