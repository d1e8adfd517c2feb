"""Async tools: the record stays off the event loop, and a caller may leave at any moment."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import c4a
from c4a.record.types import Record
from tests.library.conftest import Library


class Slow:
    """A record whose verbs take their time; everything else is the real one's."""

    def __init__(self, record: Record, seconds: float, verbs: tuple[str, ...] = ("claim", "complete", "fail")) -> None:
        self.record = record
        self.seconds = seconds
        self.verbs = verbs
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.record, name)
        if name not in self.verbs:
            return found

        def slowly(*args: Any, **kwargs: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            time.sleep(self.seconds)
            return found(*args, **kwargs)

        return slowly


def use_slow(library: Library, seconds: float, *verbs: str) -> Slow:
    """Put a slow record in front of the real one."""
    from c4a import connect

    slow = Slow(library.record, seconds, verbs or ("claim", "complete", "fail"))
    connect.use_record(slow)
    return slow


async def longest_stall(work: Any) -> tuple[Any, float]:
    """What `work` gives, and the longest time the event loop did not get to run."""
    worst, last, ended = 0.0, time.monotonic(), False

    async def tick() -> None:
        nonlocal worst, last
        while not ended:
            await asyncio.sleep(0.005)
            worst, last = max(worst, time.monotonic() - last), time.monotonic()

    ticking = asyncio.create_task(tick())
    try:
        return await work, worst
    finally:
        ended = True
        await ticking


def test_an_async_action_runs_once_among_gathered_callers(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect(wait=20.0)
    async def act(n: int) -> int:
        ran.append(n)
        await asyncio.sleep(0.1)
        return len(ran)

    async def main() -> list[int]:
        with c4a.run("r"):
            return await asyncio.gather(*(act(1) for _ in range(50)))

    assert asyncio.run(main()) == [1] * 50
    assert ran == [1]


def test_c_e1_record_work_never_stalls_the_event_loop(library: Library) -> None:
    slow = use_slow(library, 0.4)

    @c4a.effect
    async def act(n: int) -> int:
        return n

    async def main() -> tuple[Any, float]:
        with c4a.run("r"):
            return await longest_stall(asyncio.gather(*(act(n) for n in range(3))))

    result, stall = asyncio.run(main())
    assert result == [0, 1, 2]
    assert stall < 0.2
    assert all(name.startswith("c4a-record") for name in slow.threads)


def test_c_e1_callers_who_wait_do_not_keep_the_running_one_from_finishing(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    from c4a import invocation

    monkeypatch.setattr(invocation, "WAIT_SLICE_SECONDS", 30.0)

    @c4a.effect(wait=30.0)
    async def act(n: int) -> int:
        await asyncio.sleep(0.3)
        return n

    async def main() -> float:
        began = time.monotonic()
        with c4a.run("r"):
            await asyncio.gather(*(act(n % 30) for n in range(120)))
        return time.monotonic() - began

    assert asyncio.run(main()) < 15


def test_c_e2_a_call_cancelled_before_its_body_began_is_not_an_attempt(library: Library) -> None:
    slow = use_slow(library, 0.3, "claim")
    ran: list[int] = []

    @c4a.effect
    async def act() -> str:
        ran.append(1)
        return "done"

    async def main() -> str:
        with c4a.run("r"):
            task = asyncio.create_task(act())
            await asyncio.sleep(0.1)  # its claim is on its way
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            slow.seconds = 0.0
            await asyncio.sleep(0.4)
            assert ran == []
            return await act()

    assert asyncio.run(main()) == "done"
    assert ran == [1]


def test_c_e2_a_task_cancelled_before_it_ever_ran_leaves_no_trace(library: Library) -> None:
    @c4a.effect
    async def act() -> str:
        return "done"

    async def main() -> str:
        with c4a.run("r"):
            task = asyncio.create_task(act())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await act()

    assert asyncio.run(main()) == "done"
    assert library.only_effect().attempt == 1


def test_a_f6_a_timeout_leaves_the_action_in_doubt_and_it_does_not_run_again(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect
    async def act() -> None:
        ran.append(1)
        await asyncio.sleep(30)

    async def main() -> None:
        with c4a.run("r"):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(act(), 0.2)
            for _ in range(2):
                with pytest.raises(c4a.EffectInDoubt) as caught:
                    await act()
            assert caught.value.reason == "cancelled"

    asyncio.run(main())
    assert ran == [1]


def test_case_14_a_late_result_after_a_timeout_turns_the_doubt_into_done(library: Library) -> None:
    written: list[str] = []

    @c4a.effect(wait=0.1)
    async def act() -> str:
        # A body that finishes its work whatever its caller does, as one that hands it to a thread would.
        work = asyncio.create_task(asyncio.sleep(1.0))
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:  # noqa: PERF203
                continue
        written.append("w")
        return "late"

    async def main() -> Any:
        with c4a.run("r"):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(act(), 0.1)
            with pytest.raises(c4a.EffectInDoubt):
                await act()
            assert library.only_effect().state == "in_doubt"
            for _ in range(100):
                await asyncio.sleep(0.05)
                if library.only_effect().state == "done":
                    break
            return await act()

    assert asyncio.run(main()) == "late"
    assert written == ["w"]


def test_case_14_a_plain_tool_in_a_thread_finishes_after_its_caller_left(library: Library) -> None:
    written: list[str] = []

    @c4a.effect(wait=0.0)
    def act() -> str:
        time.sleep(0.6)
        written.append("w")
        return "late"

    async def main() -> Any:
        with c4a.run("r"):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(act), 0.1)
            with pytest.raises(c4a.EffectInDoubt):
                await asyncio.to_thread(act)
            await asyncio.sleep(0.9)
            return await asyncio.to_thread(act)

    assert asyncio.run(main()) == "late"
    assert written == ["w"]


def test_case_16_a_body_that_cleans_up_for_an_hour_does_not_hold_its_caller(library: Library) -> None:
    async def main() -> tuple[float, str | None, str]:
        @c4a.effect
        async def act() -> None:
            try:
                await asyncio.sleep(30)
            finally:
                await asyncio.sleep(3600)

        with c4a.run("r"):
            began = time.monotonic()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(act(), 0.05)
            took = time.monotonic() - began
            effect = library.only_effect()
            with pytest.raises(c4a.EffectInDoubt):
                await act()
        return took, effect.reason, effect.state

    took, reason, state = asyncio.run(main())
    assert took < 1.0  # the timeout, and half a second at most
    assert (state, reason) == ("in_doubt", "cancelled")


def test_a_caller_cancelled_twice_still_leaves_at_once(library: Library) -> None:
    use_slow(library, 1.0, "fail")

    @c4a.effect
    async def act() -> None:
        await asyncio.sleep(30)

    async def main() -> float:
        with c4a.run("r"):
            task = asyncio.create_task(act())
            await asyncio.sleep(0.3)
            began = time.monotonic()
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0.01)
            with pytest.raises(asyncio.CancelledError):
                await task
            return time.monotonic() - began

    assert asyncio.run(main()) < 0.6
    assert _eventually_in_doubt(library)


def test_a_loop_that_is_shut_down_settles_what_it_was_running(library: Library) -> None:
    @c4a.effect
    async def act() -> None:
        await asyncio.sleep(30)

    async def main() -> None:
        with c4a.run("r"):
            task = asyncio.ensure_future(act())
            await asyncio.sleep(0.3)
            assert not task.done()

    asyncio.run(main())  # cancels what is left
    assert _eventually_in_doubt(library)


def test_a_call_that_is_closed_while_it_asks_outside_gives_the_asking_back(library: Library) -> None:
    asking: list[int] = []

    async def look() -> Any:
        asking.append(1)
        if len(asking) == 1:
            await asyncio.sleep(60)
        return "found"

    @c4a.effect(reconcile=look, wait=0.0)
    async def act() -> str:
        raise TimeoutError

    def given_back() -> None:
        for _ in range(250):
            if library.only_effect().reason == "unknown":
                return
            time.sleep(0.02)

    async def main() -> Any:
        with c4a.run("r"):
            with pytest.raises(TimeoutError):
                await act()
            closed: Any = act()  # driven by hand, since a task would be cancelled instead
            while not asking:
                future = closed.send(None)
                future._asyncio_future_blocking = False
                await asyncio.wait({future}, timeout=0.2)
            closed.close()
            await asyncio.to_thread(given_back)
            return await act()

    assert asyncio.run(asyncio.wait_for(main(), 10)) == "found"


def test_an_async_body_that_raises_is_in_doubt_and_its_own_error_is_raised(library: Library) -> None:
    @c4a.effect(retry_on=ConnectionRefusedError)
    async def act(error: str) -> None:
        raise {"lost": TimeoutError, "refused": ConnectionRefusedError}[error](error)

    async def main() -> None:
        with c4a.run("r"):
            with pytest.raises(TimeoutError):
                await act("lost")
            with pytest.raises(c4a.EffectInDoubt, match="lost"):
                await act("lost")
            for _ in range(2):
                with pytest.raises(ConnectionRefusedError):
                    await act("refused")

    asyncio.run(main())


def test_an_async_body_sees_its_callers_context_and_the_outside_key(library: Library) -> None:
    import contextvars

    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")

    @c4a.effect
    async def act() -> list[str]:
        inner = await nested()
        return [user.get(), c4a.current_run(), c4a.idempotency_key(), inner]

    @c4a.effect
    async def nested() -> str:
        return c4a.idempotency_key()

    async def main() -> list[str]:
        user.set("ann")
        with c4a.run("r"):
            return await act()

    name, run, outer, inner = asyncio.run(main())
    assert (name, run) == ("ann", "r")
    assert outer != inner
    heads = {effect.tool.rpartition(".")[2]: effect for effect in library.effects()}
    assert heads["nested"].parent == heads["act"].key


def test_the_last_outcome_belongs_to_the_task_that_called(library: Library) -> None:
    @c4a.effect
    async def act(n: int) -> int:
        return n

    async def outcome(n: int) -> tuple[bool, bool]:
        await act(n)
        first = c4a.last_outcome()
        await act(n)
        again = c4a.last_outcome()
        assert first is not None
        assert again is not None
        assert first.key == again.key
        return first.replayed, again.replayed

    async def main() -> list[tuple[bool, bool]]:
        with c4a.run("r"):
            return await asyncio.gather(*(outcome(n) for n in range(5)))

    assert asyncio.run(main()) == [(False, True)] * 5


def test_an_async_result_that_cannot_be_kept_is_handed_over(library: Library) -> None:
    @c4a.effect
    async def act() -> Any:
        return threading.Lock()

    async def main() -> None:
        with c4a.run("r"):
            with pytest.raises(c4a.ResultNotRecordable) as first:
                await act()
            with pytest.raises(c4a.ResultNotRecordable):
                await act()
            assert first.value.result is not None

    asyncio.run(main())


def _eventually_in_doubt(library: Library) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if library.record.effects(run="r")[0].state == "in_doubt":
            return True
        time.sleep(0.05)
    return False
