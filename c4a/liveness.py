"""Is the process that made a claim still there? Three answers: alive, dead, unknown.

A process is *dead* only when that is proved: same boot, same pid and time namespaces, and yet its pid, start time or
zombie state say it is gone. Where namespaces differ (containers), or where the system doesn't tell (no /proc), the
answer is unknown and only the lease counts.
"""

from __future__ import annotations

import json
import os
import platform
from enum import Enum
from typing import Any

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_COMPARED = ("boot", "pidns", "timens")


class Liveness(Enum):
    """What is known about the process behind a claim."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


ALIVE = Liveness.ALIVE
DEAD = Liveness.DEAD
UNKNOWN = Liveness.UNKNOWN

_own: tuple[int, str] | None = None


def holder_text() -> str:
    """This process as JSON text of at most some 300 bytes, stored beside a claim; read again after a fork, else cached.

    Keys: `pid`, `host`, and where the system offers them `boot` (boot id), `start` (clock ticks since boot),
    `pidns` and `timens` (namespace names).
    """
    global _own  # noqa: PLW0603 - a cache of what this process is
    pid = os.getpid()
    if _own is None or _own[0] != pid:
        _own = (pid, json.dumps(_describe(pid), sort_keys=True, separators=(",", ":")))
    return _own[1]


def judge(holder: str) -> Liveness:
    """Say whether the process that `holder` describes is alive, proved dead, or unknown. Costs a few reads of /proc."""
    if holder and holder == holder_text():
        return ALIVE
    told = _parse(holder)
    mine = _parse(holder_text())
    if told is None or mine is None or any(not mine.get(name) or told.get(name) != mine[name] for name in _COMPARED):
        return UNKNOWN
    pid, start = told.get("pid"), told.get("start")
    if type(pid) is not int or type(start) is not int or pid <= 0:
        return UNKNOWN
    return _judge_here(pid, start)


def _judge_here(pid: int, start: int) -> Liveness:
    # kill(0) first: with /proc mounted hidepid, a living process of another user has no visible directory.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return DEAD
    except OverflowError:
        return UNKNOWN  # the holder's text is another process's word: no pid is that large
    except OSError:
        pass
    stat = _stat(pid)
    if stat is None:
        return UNKNOWN
    state, started = stat
    if started != start:
        return DEAD
    if state in "ZXx":
        # A thread group whose first thread has ended shows as a zombie while its other threads still run.
        return ALIVE if _threads(pid) > 1 else DEAD
    return ALIVE


def _describe(pid: int) -> dict[str, Any]:
    found: dict[str, Any] = {"pid": pid, "host": platform.node()[:64]}
    stat = _stat(pid)
    if stat is not None:
        found["start"] = stat[1]
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            found["boot"] = file.read().strip()
    except OSError:
        pass
    for name, link in (("pidns", "pid"), ("timens", "time")):
        namespace = _namespace(link)
        if namespace:
            found[name] = namespace
    if "timens" not in found and "pidns" in found:
        found["timens"] = "none"  # a kernel before 5.6 has no time namespaces: all processes share one clock
    return found


def _parse(holder: str) -> dict[str, Any] | None:
    try:
        told = json.loads(holder)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time (clock ticks since boot), fields 3 and 22 of proc(5)'s stat."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        # The command name stands in brackets and may itself contain spaces and brackets: split after the last one.
        fields = text[text.rindex(b")") + 2 :].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _namespace(name: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return None


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
