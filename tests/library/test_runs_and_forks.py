"""Where a run holds, and processes that fork."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import c4a
from tests.library.conftest import Library


def test_runs_nest_and_the_innermost_counts() -> None:
    with c4a.run("a") as a:
        assert (a, c4a.current_run()) == ("a", "a")
        with c4a.run("b"):
            assert c4a.current_run() == "b"
        assert c4a.current_run() == "a"
    with pytest.raises(c4a.NoCurrentRun):
        c4a.current_run()


@pytest.mark.parametrize("bad", ["", " ", None, 7, "a\0", "\ud800", "x" * 257])
def test_a_run_is_named_by_a_short_text(bad: Any) -> None:
    with pytest.raises(c4a.InvalidArguments, match="run"):
        c4a.run(bad)


def test_a_new_thread_does_not_inherit_the_run() -> None:
    found: list[Any] = []

    def look() -> None:
        try:
            found.append(c4a.current_run())
        except RuntimeError as error:
            found.append(error)

    with c4a.run("a"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert isinstance(found[0], c4a.NoCurrentRun)
    assert "thread" in str(found[0])


def test_tasks_inherit_the_run_and_do_not_disturb_each_other() -> None:
    async def inner(name: str) -> list[str]:
        found = [c4a.current_run()]
        with c4a.run(name):
            await asyncio.sleep(0.01)
            found.append(c4a.current_run())
        return [*found, c4a.current_run(), await asyncio.to_thread(c4a.current_run)]

    async def main() -> list[list[str]]:
        with c4a.run("outer"):
            return await asyncio.gather(*(inner(name) for name in "abc"))

    assert asyncio.run(main()) == [["outer", name, "outer", "outer"] for name in "abc"]


def test_a_run_left_in_another_context_restores_what_was() -> None:
    import contextvars

    entered = c4a.run("a")
    contextvars.copy_context().run(entered.__enter__)
    entered.__exit__(None, None, None)
    with pytest.raises(c4a.NoCurrentRun):
        c4a.current_run()


def _forked(work: Any, seconds: float = 15.0) -> int:
    """The exit code of a forked child that does `work`; -9 if it hung."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -9


def test_c_e3_children_forked_while_other_threads_write_act_and_end(library: Library) -> None:
    stop = threading.Event()

    @c4a.effect
    def act(n: int, who: int) -> int:
        return n

    def write(who: int) -> None:
        with c4a.run(f"busy-{who}"):
            for n in range(100_000):
                if stop.is_set():
                    return
                act(n, who)

    def child() -> None:
        with c4a.run("child"):
            assert act(7, 7) == 7

    async def achild() -> None:
        @c4a.effect
        async def aact() -> int:
            return 1

        with c4a.run("child"):
            assert await aact() == 1

    with ThreadPoolExecutor(3) as pool:
        for who in range(3):
            pool.submit(write, who)
        time.sleep(0.1)
        try:
            codes = [_forked(child) for _ in range(10)]
            codes += [_forked(lambda: asyncio.run(achild())) for _ in range(3)]
        finally:
            stop.set()
    assert codes == [0] * 13
    assert [effect.state for effect in library.effects("child")] == ["done", "done"]


def test_a_forked_child_keeps_its_own_claims_alive_and_not_its_parents(library: Library) -> None:
    @c4a.effect(lease=0.6)
    def slow(n: int) -> int:
        time.sleep(1.5)
        return n

    def child() -> None:
        from c4a import connect

        assert connect.connection().heartbeat.holds() == 0
        with c4a.run("child"):
            assert slow(2) == 2

    with ThreadPoolExecutor(1) as pool:
        parent = pool.submit(lambda: _in_run(lambda: slow(1)))
        time.sleep(0.3)
        assert _forked(child) == 0
        assert parent.result(10) == 1
    kinds = [entry.kind for entry in library.record.entries(run="child")]
    assert kinds == ["effect.running", "effect.done"]


def test_a_forked_childs_crash_is_seen_by_its_parent_at_once(library: Library) -> None:
    @c4a.effect(wait=5.0)
    def act() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    assert _forked(lambda: _in_run(act)) == -signal.SIGKILL
    began = time.monotonic()
    with c4a.run("r"), pytest.raises(c4a.EffectInDoubt) as caught:
        act()
    assert caught.value.reason == "dead"
    assert time.monotonic() - began < 2.5


def _in_run(call: Any) -> Any:
    with c4a.run("r"):
        return call()
