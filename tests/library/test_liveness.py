"""Alive, dead or unknown: dead only when it is proved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from c4a import liveness
from c4a.liveness import ALIVE, DEAD, UNKNOWN, holder_text, judge

TELL = "from c4a.liveness import holder_text; import sys, time; print(holder_text(), flush=True); time.sleep(60)"


def told() -> dict[str, Any]:
    """What this process says of itself."""
    found: dict[str, Any] = json.loads(holder_text())
    return found


def another() -> tuple[subprocess.Popen[str], str]:
    """A living process and its holder text."""
    process = subprocess.Popen([sys.executable, "-c", TELL], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_this_process_is_alive() -> None:
    assert judge(holder_text()) is ALIVE


def test_another_process_is_alive_then_a_zombie_then_gone() -> None:
    process, holder = another()
    try:
        assert judge(holder) is ALIVE
    finally:
        process.kill()
    deadline = time.monotonic() + 5
    while judge(holder) is not DEAD:  # killed, not waited for: kill(0) still answers
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.communicate()
    assert judge(holder) is DEAD


def test_a_pid_used_again_by_another_process_is_dead() -> None:
    holder = told()
    holder["start"] -= 1
    assert judge(json.dumps(holder)) is DEAD


def test_a_pid_nobody_has_is_dead() -> None:
    holder = told()
    holder["pid"] = 2**22 + 7
    assert judge(json.dumps(holder)) is DEAD


@pytest.mark.parametrize("name", ["boot", "pidns", "timens"])
def test_another_boot_or_namespace_is_unknown(name: str) -> None:
    holder = told()
    holder["pid"] = 2**22 + 7
    holder[name] = "another"
    assert judge(json.dumps(holder)) is UNKNOWN
    del holder[name]
    assert judge(json.dumps(holder)) is UNKNOWN


@pytest.mark.parametrize("text", ["", "x", "[]", "[" * 200_000, "null", "{}", '{"pid":1}', '{"pid":"1","start":1}'])
def test_a_text_that_tells_nothing_is_unknown(text: str) -> None:
    assert judge(text) is UNKNOWN


@pytest.mark.parametrize("change", [{"pid": 0}, {"pid": -1}, {"pid": 10**30}, {"pid": True}, {"start": None}, {"start": "1"}])
def test_a_holder_with_a_strange_pid_or_start_is_unknown(change: dict[str, Any]) -> None:
    assert judge(json.dumps(told() | change)) is UNKNOWN


def test_without_proc_it_tells_what_it_knows_and_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = holder_text()
    monkeypatch.setattr(liveness, "_BOOT_ID", "/nonexistent")
    monkeypatch.setattr(liveness, "_stat", lambda pid: None)
    monkeypatch.setattr(liveness, "_namespace", lambda name: None)
    monkeypatch.setattr(liveness, "_own", None)
    assert set(told()) == {"pid", "host"}
    assert judge(holder_text()) is ALIVE
    assert judge(whole) is UNKNOWN


def test_a_forked_child_tells_its_own_pid_and_start() -> None:
    mine = holder_text()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, holder_text().encode())
        os._exit(0)
    child = json.loads(os.read(read, 4096))
    os.waitpid(pid, 0)
    assert child["pid"] == pid
    assert json.loads(mine)["pid"] == os.getpid()


def test_a_process_whose_first_thread_ended_is_alive() -> None:
    code = (
        "import ctypes, threading, time; from c4a.liveness import holder_text; print(holder_text(), flush=True)\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    holder = process.stdout.readline().strip()
    try:
        time.sleep(0.3)
        assert judge(holder) is ALIVE
    finally:
        process.kill()
        process.communicate()
