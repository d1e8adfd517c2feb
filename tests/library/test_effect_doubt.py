"""In doubt: an attempt began and nobody knows whether it happened. Reconcile, resend, resolve, liveness."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import c4a
from c4a.record.types import Claimant
from tests.library.conftest import Library

CRASH = """
    @c4a.effect(name="act", lease=float(sys.argv[1]), grace=float(sys.argv[1]))
    def act(n):
        say(c4a.idempotency_key())
        if "linger" in sys.argv:
            time.sleep(60)
        os.kill(os.getpid(), signal.SIGKILL)
    with c4a.run("r"):
        act(1)
"""


def crash(library: Library, lease: float = 15.0) -> str:
    """A process is killed inside the body of `act(1)`; returns the outside key it used."""
    process = library.start(CRASH, str(lease))
    told = process.communicate(timeout=30)[0]
    assert process.returncode == -signal.SIGKILL
    return told.strip()


def put_in_doubt(tool: Callable[..., Any], *args: Any) -> None:
    """Call a tool whose body raises."""
    with c4a.run("r"), pytest.raises(TimeoutError):
        tool(*args)


def in_threads(count: int, call: Callable[[], Any]) -> list[Any]:
    """What each of `count` threads got, started together; an error stands for itself."""
    gate = threading.Barrier(count)

    def one(_: int) -> Any:
        gate.wait(10)
        try:
            with c4a.run("r"):
                return call()
        except c4a.C4AError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_a_f2_case_12_a_killed_process_leaves_its_action_in_doubt_at_once_and_it_never_runs_again(library: Library) -> None:
    crash(library)
    ran: list[int] = []

    @c4a.effect(name="act", wait=5.0)
    def act(n: int) -> None:
        ran.append(n)

    began = time.monotonic()
    with c4a.run("r"):
        for _ in range(2):
            with pytest.raises(c4a.EffectInDoubt) as caught:
                act(1)
    assert not isinstance(caught.value, c4a.EffectRunning)
    assert caught.value.reason == "dead"
    assert time.monotonic() - began < 2.5  # the lease has 15 s to go: the process was proved gone
    assert ran == []


def test_a_lapsed_lease_puts_the_action_in_doubt_where_the_process_cannot_be_seen(library: Library) -> None:
    @c4a.effect(name="act", wait=3.0)
    def act() -> None:
        raise AssertionError("it must not run")

    call = _call_of(act)
    library.record.claim(call, Claimant("ab" * 16, "local:elsewhere", "another machine", lease_seconds=0.3))
    with c4a.run("r"), pytest.raises(c4a.EffectInDoubt) as caught:
        act()
    assert caught.value.reason == "lapsed"


def test_a_f4_a_body_longer_than_its_lease_is_kept_alive_by_heartbeats(library: Library) -> None:
    ran: list[int] = []
    done = threading.Event()

    @c4a.effect(lease=0.6, wait=0.0)
    def slow() -> str:
        ran.append(1)
        done.wait(10)
        return "late"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: _in_run(slow))
        time.sleep(1.6)  # nearly three leases
        with c4a.run("r"), pytest.raises(c4a.EffectRunning):
            slow()
        done.set()
        assert first.result(10) == "late"
    assert ran == [1]
    assert library.only_effect().state == "done"


def test_a_f5_a_late_failure_does_not_release_another_callers_claim(library: Library) -> None:
    ran: list[str] = []
    stuck = threading.Event()

    @c4a.effect(name="act", lease=0.3, retry_on=ConnectionRefusedError)
    def act() -> str:
        ran.append(threading.current_thread().name)
        if len(ran) == 1:
            stuck.wait(10)
            raise ConnectionRefusedError("late")
        return "second"

    with ThreadPoolExecutor(1, thread_name_prefix="first") as pool:
        first = pool.submit(lambda: _in_run(act))
        _until(lambda: bool(ran))
        effect = library.only_effect()
        library.record.declare_dead("r", effect.key, attempt=1, holder=effect.holder, actor="test")
        library.resolve(library.only_effect(), "not_done", confirm_lapsed=True)
        assert _in_run(act) == "second"
        stuck.set()
        with pytest.raises(ConnectionRefusedError):
            first.result(10)
        assert _in_run(act) == "second"
    assert len(ran) == 2
    assert library.only_effect().state == "done"


def test_a_late_result_after_a_newer_attempt_is_recorded_as_happened_twice_and_said_aloud(library: Library) -> None:
    ran: list[int] = []
    stuck = threading.Event()

    @c4a.effect(name="act")
    def act() -> str:
        ran.append(1)
        if len(ran) == 1:
            stuck.wait(10)
            return "first"
        return "second"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: _in_run(act))
        _until(lambda: bool(ran))
        effect = library.only_effect()
        library.record.declare_dead("r", effect.key, attempt=1, holder=effect.holder, actor="test")
        library.resolve(library.only_effect(), "not_done", confirm_lapsed=True)
        assert _in_run(act) == "second"

        def late() -> Any:
            stuck.set()
            return first.result(10)

        with pytest.warns(RuntimeWarning, match="happened twice"):
            found = late()
    assert found == "first"
    assert library.only_effect().happened_twice
    assert _in_run(act) == "second"


def test_case_54_a_start_up_does_not_adopt_a_live_call(library: Library) -> None:
    process = library.start(CRASH, "15", "linger")
    assert process.stdout is not None
    process.stdout.readline()

    @c4a.effect(name="act", wait=0.2, idempotent_for=3600, reconcile=None)
    def act(n: int) -> None:
        raise AssertionError("a live call was adopted")

    library.init()
    try:
        with c4a.run("r"), pytest.raises(c4a.EffectRunning) as caught:
            act(1)
    finally:
        process.kill()
        process.communicate()
    assert caught.value.reason is None


def test_case_54_of_two_recoverers_one_acts(library: Library) -> None:
    crash(library)
    ran: list[int] = []

    @c4a.effect(name="act", wait=20.0, reconcile=lambda n: None)
    def act(n: int) -> str:
        ran.append(n)
        time.sleep(0.1)
        return "recovered"

    assert in_threads(2, lambda: act(1)) == ["recovered", "recovered"]
    assert ran == [1]


# -- reconcile= ---------------------------------------------------------------------------------------------------------


def test_c_a1_of_four_callers_one_asks_outside_and_one_new_attempt_runs(library: Library) -> None:
    asked: list[int] = []
    ran: list[int] = []

    def look(n: int) -> Any:
        asked.append(n)
        time.sleep(0.2)
        return c4a.NOT_DONE

    @c4a.effect(reconcile=look, wait=20.0)
    def act(n: int) -> str:
        ran.append(n)
        if len(ran) == 1:
            raise TimeoutError
        return "done"

    put_in_doubt(act, 1)
    assert in_threads(4, lambda: act(1)) == ["done"] * 4
    assert asked == [1]
    assert ran == [1, 1]
    assert library.only_effect().attempt == 2


@pytest.mark.parametrize(
    ("answer", "result"),
    [("found", "found"), (c4a.Happened("found"), "found"), (c4a.Happened(None), None), (c4a.Happened(), None), (0, 0), ("", "")],
)
def test_what_reconcile_found_becomes_the_result(library: Library, answer: Any, result: Any) -> None:
    ran: list[int] = []

    @c4a.effect(reconcile=lambda n: answer)
    def act(n: int) -> Any:
        ran.append(n)
        raise TimeoutError

    put_in_doubt(act, 1)
    with c4a.run("r"):
        assert act(1) == result
        assert act(1) == result
    outcome = c4a.last_outcome()
    assert outcome is not None
    assert outcome.replayed
    assert ran == [1]


@pytest.mark.parametrize("answer", [None, c4a.NOT_DONE])
def test_when_reconcile_says_not_done_it_runs_once_more_under_the_same_outside_key(library: Library, answer: Any) -> None:
    seen: list[str] = []

    @c4a.effect(reconcile=lambda: answer)
    def act() -> str:
        seen.append(c4a.idempotency_key())
        if len(seen) == 1:
            raise TimeoutError
        return "done"

    put_in_doubt(act)
    with c4a.run("r"):
        assert act() == "done"
    assert len(seen) == 2
    assert len(set(seen)) == 1


def test_unknown_stays_in_doubt_and_is_asked_again_at_the_next_call(library: Library) -> None:
    asked: list[int] = []

    def look() -> Any:
        asked.append(1)
        return c4a.UNKNOWN if len(asked) == 1 else "found"

    @c4a.effect(reconcile=look)
    def act() -> str:
        raise TimeoutError

    put_in_doubt(act)
    with c4a.run("r"):
        with pytest.raises(c4a.EffectInDoubt, match="could not tell"):
            act()
        assert act() == "found"


def test_a_reconcile_that_raises_leaves_it_in_doubt_and_names_its_error(library: Library) -> None:
    def look() -> Any:
        raise ConnectionError("bank is down")

    @c4a.effect(reconcile=look)
    def act() -> str:
        raise TimeoutError

    put_in_doubt(act)
    with c4a.run("r"), pytest.raises(c4a.EffectInDoubt, match="bank is down") as caught:
        act()
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert library.only_effect().state == "in_doubt"


@pytest.mark.parametrize("answer", [c4a.UNKNOWN, c4a.NOT_DONE, "found", TimeoutError()])
def test_what_reconcile_says_after_a_person_settled_it_no_longer_counts(library: Library, answer: Any) -> None:
    def look() -> Any:
        library.resolve(library.only_effect(), "done", result='"judged"')
        if isinstance(answer, Exception):
            raise answer
        return answer

    @c4a.effect(reconcile=look)
    def act() -> str:
        raise TimeoutError

    put_in_doubt(act)
    with c4a.run("r"):
        assert act() == "judged"


def test_reconcile_gets_the_typed_arguments_of_any_signature_and_the_outside_key(library: Library) -> None:
    from datetime import date

    seen: list[Any] = []

    def by_name(**args: Any) -> str:
        seen.append(args)
        return "found"

    def by_position(day: date, /, *rest: Any, more: int = 0) -> str:
        seen.append((day, rest, more, c4a.idempotency_key()))
        return "found"

    @c4a.effect(reconcile=by_name)
    def plain(day: date, note: str = "n") -> str:
        raise TimeoutError

    keys: list[str] = []

    @c4a.effect(reconcile=by_position)
    def strange(day: date, /, *rest: int, more: int = 0) -> str:
        keys.append(c4a.idempotency_key())
        raise TimeoutError

    def positional(d: date, n: str) -> str:
        seen.append((d, n))
        return "found"

    @c4a.effect(reconcile=positional)
    def other_names(day: date, note: str) -> str:
        raise TimeoutError

    put_in_doubt(plain, date(2025, 1, 1))
    put_in_doubt(strange, date(2025, 1, 2), 3, 4)
    put_in_doubt(other_names, date(2025, 1, 3), "x")
    with c4a.run("r"):
        plain(date(2025, 1, 1))
        strange(date(2025, 1, 2), 3, 4)
        other_names(date(2025, 1, 3), "x")
    assert seen == [
        {"day": date(2025, 1, 1), "note": "n"},
        (date(2025, 1, 2), (3, 4), 0, keys[0]),
        (date(2025, 1, 3), "x"),
    ]


def test_reconcile_sees_the_outside_key_that_was_sent_last(library: Library) -> None:
    sent: list[str] = []

    @c4a.effect
    def act() -> str:
        sent.append(c4a.idempotency_key())
        raise TimeoutError

    @c4a.effect(name=act.__c4a_tool__.name, reconcile=c4a.idempotency_key)  # type: ignore[attr-defined]
    def checked() -> str:
        raise AssertionError

    put_in_doubt(act)
    library.resolve(library.only_effect(), "not_done", new_outside_key=True)
    put_in_doubt(act)
    with c4a.run("r"):
        assert checked() == sent[1] != sent[0]


def test_reconcile_after_leaves_the_outside_its_read_lag(library: Library) -> None:
    asked: list[float] = []

    def look() -> str:
        asked.append(time.monotonic())
        return "found"

    @c4a.effect(reconcile=look, reconcile_after=0.5, wait=5.0)
    def act() -> str:
        raise TimeoutError

    put_in_doubt(act)
    began = time.monotonic()
    with c4a.run("r"):
        assert act() == "found"
    assert asked[0] - began > 0.3


def test_a_reconciled_result_that_cannot_be_kept_is_handed_over(library: Library) -> None:
    found = object()

    @c4a.effect(reconcile=lambda: found)
    def act() -> Any:
        raise TimeoutError

    put_in_doubt(act)
    with c4a.run("r"), pytest.raises(c4a.ResultNotRecordable) as caught:
        act()
    assert caught.value.result is found
    assert library.only_effect().state == "done"


def test_a_coroutine_function_reconciles_an_async_tool(library: Library) -> None:
    keys: list[str] = []

    async def look(n: int) -> Any:
        await asyncio.sleep(0)
        keys.append(c4a.idempotency_key())
        return f"found {n}"

    @c4a.effect(reconcile=look)
    async def act(n: int) -> str:
        keys.append(c4a.idempotency_key())
        raise TimeoutError

    async def main() -> str:
        with c4a.run("r"):
            with pytest.raises(TimeoutError):
                await act(1)
            return await act(1)

    assert asyncio.run(main()) == "found 1"
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_an_async_caller_cancelled_while_it_asks_outside_lets_the_next_one_ask(library: Library) -> None:
    asked: list[int] = []

    async def look() -> Any:
        asked.append(1)
        if len(asked) == 1:
            await asyncio.sleep(30)
        return "found"

    @c4a.effect(reconcile=look, lease=60.0)
    async def act() -> str:
        raise TimeoutError

    async def main() -> str:
        with c4a.run("r"):
            with pytest.raises(TimeoutError):
                await act()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(act(), 0.5)
            return await act()

    assert asyncio.run(main()) == "found"


def test_a_plain_reconcile_of_an_async_tool_does_not_stall_the_loop(library: Library) -> None:
    threads: list[str] = []

    def look() -> Any:
        threads.append(threading.current_thread().name)
        time.sleep(0.1)
        return c4a.idempotency_key()

    @c4a.effect(reconcile=look)
    async def act() -> str:
        raise TimeoutError

    async def main() -> str:
        with c4a.run("r"):
            with pytest.raises(TimeoutError):
                await act()
            return await act()

    assert len(asyncio.run(main())) == 36
    assert threads[0] != threading.main_thread().name


# -- idempotent_for= ----------------------------------------------------------------------------------------------------


def test_an_action_in_doubt_is_sent_again_with_the_same_outside_key_within_the_window(library: Library) -> None:
    key = crash(library)
    seen: list[str] = []

    @c4a.effect(name="act", idempotent_for=3600)
    def act(n: int) -> str:
        seen.append(c4a.idempotency_key())
        return "charged"

    with c4a.run("r"):
        assert act(1) == "charged"
    assert seen == [key]


def test_outside_the_window_it_stays_in_doubt(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect(idempotent_for=1.0)
    def act() -> str:
        ran.append(1)
        raise TimeoutError

    put_in_doubt(act)
    put_in_doubt(act)  # within the window: sent again
    time.sleep(1.0)
    with c4a.run("r"), pytest.raises(c4a.EffectInDoubt):
        act()
    assert ran == [1, 1]


def test_c_a2_concurrent_resends_leave_nothing_behind_that_runs_outside_the_window(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect(idempotent_for=2.0, wait=5.0)
    def act() -> str:
        ran.append(1)
        raise TimeoutError

    put_in_doubt(act)
    for _ in range(3):
        with ThreadPoolExecutor(6) as pool:
            for future in [pool.submit(lambda: _in_run(act)) for _ in range(6)]:
                assert isinstance(future.exception(10), TimeoutError | c4a.EffectInDoubt)
    time.sleep(2.0)
    count = len(ran)
    for _ in range(3):
        with c4a.run("r"), pytest.raises(c4a.EffectInDoubt):
            act()
    assert len(ran) == count


def test_c_a3_a_live_claim_is_never_sent_again(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect(idempotent_for=3600, wait=0.3)
    def act() -> str:
        ran.append(1)
        time.sleep(1.2)
        return "done"

    results = in_threads(5, act)
    assert results.count("done") == 1
    assert sum(isinstance(result, c4a.EffectRunning) for result in results) == 4
    assert ran == [1]


def test_with_both_options_reconcile_is_used(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect(idempotent_for=3600, reconcile=lambda: "found")
    def act() -> str:
        ran.append(1)
        raise TimeoutError

    put_in_doubt(act)
    with c4a.run("r"):
        assert act() == "found"
    assert ran == [1]


def test_an_error_of_a_resend_does_not_prove_that_the_first_attempt_failed(library: Library) -> None:
    errors: list[Exception] = [TimeoutError(), ConnectionRefusedError()]

    @c4a.effect(name="act", idempotent_for=1.0, retry_on=ConnectionRefusedError)
    def act() -> str:
        raise errors.pop(0)

    put_in_doubt(act)
    with c4a.run("r"), pytest.raises(ConnectionRefusedError):
        act()
    assert library.only_effect().state == "in_doubt"


# -- a person's verdict -------------------------------------------------------------------------------------------------


def test_c_h2_resolved_done_can_carry_the_result(library: Library) -> None:
    @c4a.effect
    def act(n: int) -> Any:
        raise TimeoutError

    put_in_doubt(act, 1)
    put_in_doubt(act, 2)
    by_argument = {effect.arguments: effect for effect in library.effects()}
    library.resolve(by_argument['{"n":1}'], "done", result='"charge-7"')
    library.resolve(by_argument['{"n":2}'], "done")
    with c4a.run("r"):
        assert act(1) == "charge-7"
        assert act(2) is None


def test_resolved_not_done_runs_once_more(library: Library) -> None:
    ran: list[str] = []

    @c4a.effect
    def act() -> str:
        ran.append(c4a.idempotency_key())
        if len(ran) == 1:
            raise TimeoutError
        return "done"

    put_in_doubt(act)
    library.resolve(library.only_effect(), "not_done", new_outside_key=True)
    with c4a.run("r"):
        assert act() == "done"
    assert ran[0] != ran[1]


def test_c_a4_a_running_action_cannot_be_resolved_and_its_own_result_counts(library: Library) -> None:
    begun, go = threading.Event(), threading.Event()

    @c4a.effect
    def act() -> str:
        begun.set()
        go.wait(10)
        return "real id"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: _in_run(act))
        begun.wait(10)
        with pytest.raises(c4a.EffectRunning):
            library.resolve(library.only_effect(), "done")
        go.set()
        assert first.result(10) == "real id"
    with c4a.run("r"):
        assert act() == "real id"


def test_c_a9_a_second_verdict_while_the_retry_runs_is_refused(library: Library) -> None:
    begun, go = threading.Event(), threading.Event()
    ran: list[int] = []

    @c4a.effect(wait=0.0)
    def act() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise TimeoutError
        begun.set()
        go.wait(10)
        return "done"

    put_in_doubt(act)
    judged = library.only_effect()
    library.resolve(judged, "not_done")
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(lambda: _in_run(act))
        begun.wait(10)
        with pytest.raises((c4a.StaleVerdict, c4a.EffectRunning)):
            library.resolve(judged, "not_done")
        with c4a.run("r"), pytest.raises(c4a.EffectRunning):
            act()
        go.set()
        assert second.result(10) == "done"
    assert len(ran) == 2


def test_c_e4_a_waiting_caller_is_woken_promptly_and_a_long_action_is_called_running(library: Library) -> None:
    begun = threading.Event()

    @c4a.effect(wait=10.0)
    def act() -> str:
        begun.set()
        time.sleep(0.5)
        return str(time.monotonic())

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: _in_run(act))
        begun.wait(10)
        with c4a.run("r"):
            waited = act()
        late = time.monotonic() - float(waited)
        assert first.result(10) == waited
    assert late < 0.5

    @c4a.effect(wait=0.1)
    def long() -> None:
        time.sleep(1.0)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: _in_run(long))
        time.sleep(0.3)
        with c4a.run("r"), pytest.raises(c4a.EffectRunning, match="is being run") as caught:
            long()
        first.result(10)
    assert caught.value.holder
    assert caught.value.since > 0


@pytest.mark.parametrize("library", ["database"], indirect=True)
def test_case_82_the_waiting_and_windows_go_by_the_records_clock_not_the_agents(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    real, real_ns = time.time, time.time_ns

    @c4a.effect(idempotent_for=3600)
    def act() -> str:
        raise TimeoutError

    monkeypatch.setattr(time, "time", lambda: real() + 120)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 120_000_000_000)
    put_in_doubt(act)
    effect = library.only_effect()
    assert abs(effect.first_at / 1_000_000 - real()) < 60


def _call_of(tool: Any) -> Any:
    from c4a.calls import Place, call_of

    return call_of(tool.__c4a_tool__, Place(c4a.current_record().organization, "r"), (), {})[0]


def _in_run(call: Callable[[], Any]) -> Any:
    with c4a.run("r"):
        return call()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
