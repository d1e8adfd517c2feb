"""A yes covers exactly one action that was shown; a no holds."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

import c4a
from tests.library.conftest import Library


@c4a.effect(approval=True)
def pay(amount: Any, to: str, memo: str = "") -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


def test_an_action_without_a_yes_does_not_run_and_says_what_it_needs(library: Library) -> None:
    with c4a.run("r"), pytest.raises(c4a.ApprovalRequired) as caught:
        pay(10, "alice")
    assert caught.value.arguments == '{"amount":10,"memo":"","to":"alice"}'
    assert caught.value.tool.endswith(".pay")
    assert library.effects() == []


def test_case_23_the_arguments_checked_are_those_really_passed(library: Library) -> None:
    with c4a.run("r"):
        c4a.approve(pay, amount=100, to="alice")
        with pytest.raises(c4a.ApprovalRequired):
            pay(50, "alice")
        with pytest.raises(c4a.ApprovalRequired):
            pay(100, "alice", memo="x")
        assert pay(100, "alice") == "paid 100 to alice"


@pytest.mark.parametrize("passed", [10, 10.0, Decimal("10.00")])
def test_numbers_are_compared_by_value(library: Library, passed: Any) -> None:
    with c4a.run("r"):
        c4a.approve(pay, amount=Decimal(10), to="alice")
        assert pay(passed, to="alice").startswith("paid 10")


def test_one_yes_is_one_action_and_a_repeat_needs_none(library: Library) -> None:
    with c4a.run("r"):
        c4a.approve(pay, amount=10, to="alice")
        assert pay(10, "alice") == pay(10, "alice")
        with pytest.raises(c4a.ApprovalRequired):
            pay(10, "alice", c4a_key="second")  # type: ignore[call-arg]
        c4a.approve(pay, amount=10, to="alice")
        pay(10, "alice", c4a_key="second")  # type: ignore[call-arg]
    assert len(library.effects()) == 2


def test_c_b1_a_yes_in_one_run_is_none_in_another(library: Library) -> None:
    with c4a.run("a"):
        c4a.approve(pay, amount=10, to="alice")
    with c4a.run("b"), pytest.raises(c4a.ApprovalRequired):
        pay(10, "alice")


def test_c_b9_of_8_callers_with_4_yeses_one_runs_and_spends_one(library: Library) -> None:
    ran: list[int] = []

    @c4a.effect(approval=True, wait=20.0)
    def act() -> int:
        ran.append(1)
        time.sleep(0.1)
        return len(ran)

    with c4a.run("r"):
        for _ in range(4):
            c4a.approve(act)
    gate = threading.Barrier(8)

    def call(_: int) -> int:
        gate.wait(10)
        with c4a.run("r"):
            return act()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(8))) == [1] * 8
    assert ran == [1]
    with c4a.run("r"):
        for number in (2, 3, 4):
            assert act(c4a_key=str(number)) == number  # type: ignore[call-arg]
        with pytest.raises(c4a.ApprovalRequired):
            act(c4a_key="5")  # type: ignore[call-arg]


def test_a_no_beats_an_unspent_yes_and_tells_its_reason(library: Library) -> None:
    with c4a.run("r"):
        c4a.approve(pay, amount=10, to="alice")
        c4a.deny(pay, amount=10, to="alice", c4a_by="sam", c4a_reason="wrong IBAN é😀")
        with pytest.raises(c4a.ApprovalDenied, match="wrong IBAN é😀") as caught:
            pay(10, "alice")
        assert (caught.value.reason, caught.value.by) == ("wrong IBAN é😀", "sam")
        c4a.approve(pay, amount=10, to="alice")
        assert pay(10, "alice").startswith("paid")


def test_c_f1_incomplete_arguments_are_refused(library: Library) -> None:
    with c4a.run("r"):
        for answer in (c4a.approve, c4a.deny):
            with pytest.raises(c4a.InvalidArguments, match="missing: to"):
                answer(pay, amount=10)
            with pytest.raises(c4a.InvalidArguments, match="no parameter 'amonut'"):
                answer(pay, amount=10, to="alice", amonut=1)


def test_c_f1_a_yes_can_run_out(library: Library) -> None:
    with c4a.run("r"):
        c4a.approve(pay, amount=10, to="alice", c4a_expires_in=0.05)
        time.sleep(0.15)
        with pytest.raises(c4a.ApprovalExpired):
            pay(10, "alice")
        for wrong in (0, -1, True, "1", float("nan")):
            with pytest.raises(c4a.InvalidArguments, match="expires_in"):
                c4a.approve(pay, amount=10, to="alice", c4a_expires_in=wrong)


def test_a_yes_that_names_a_key_covers_only_that_key(library: Library) -> None:
    with c4a.run("r"):
        c4a.approve(pay, amount=10, to="alice", c4a_key="order-1")
        with pytest.raises(c4a.ApprovalRequired):
            pay(10, "alice")
        with pytest.raises(c4a.ApprovalRequired):
            pay(10, "alice", c4a_key="order-2")  # type: ignore[call-arg]
        pay(10, "alice", c4a_key="order-1")  # type: ignore[call-arg]


def test_c_b7_a_tool_may_have_parameters_of_any_name(library: Library) -> None:
    @c4a.effect(approval=True)
    def odd(
        tool: str, ttl: int, by: str, key: str, reason: str, expires_in: int, c4a_by: str, c4a_key: str, self: str = "s", fn: int = 0
    ) -> Any:
        return [tool, ttl, by, key, reason, expires_in, c4a_by, c4a_key, self, fn]

    shown: dict[str, Any] = {
        "tool": "t", "ttl": 60, "by": "b", "key": "k", "reason": "why", "expires_in": 5, "c4a_by": "cb", "c4a_key": "ck",
    }  # fmt: skip
    with c4a.run("r"):
        c4a.approve(odd, **shown)
        with pytest.raises(c4a.ApprovalRequired):
            odd(**{**shown, "ttl": 3600})
        assert odd(**shown) == ["t", 60, "b", "k", "why", 5, "cb", "ck", "s", 0]
        for name in ("by", "key", "reason", "expires_in", "c4a_by", "c4a_key", "tool"):
            with pytest.raises(c4a.ApprovalRequired):
                odd(**{**shown, name: 3600})
    effect = library.only_effect()
    assert effect.explicit_key is None
    assert effect.arguments is not None
    assert '"ttl":60' in effect.arguments


def test_short_options_work_unless_the_tool_has_a_parameter_of_that_name(library: Library) -> None:
    @c4a.effect(approval=True)
    def plain(x: int) -> int:
        return x

    @c4a.effect(approval=True)
    def open_ended(x: int, **more: Any) -> Any:
        return more

    with c4a.run("r"):
        c4a.deny(plain, x=1, by="sam", reason="no")
        with pytest.raises(c4a.ApprovalDenied) as caught:
            plain(1)
        c4a.approve(open_ended, x=1, by="data", c4a_by="sam")
        with pytest.raises(c4a.InvalidArguments, match="same option"):
            c4a.approve(plain, x=1, by="sam", c4a_by="ann")
        assert open_ended(1, by="data") == {"by": "data"}
    assert (caught.value.by, caught.value.reason) == ("sam", "no")


@dataclass
class Money:
    """An amount."""

    value: Decimal
    currency: str = "EUR"


def test_shown_json_and_the_typed_call_are_one_action(library: Library) -> None:
    @c4a.effect(approval=True)
    def book(day: date, price: Money, tags: set[str], codes: tuple[int, ...], by_room: dict[int, date]) -> str:
        return f"booked {day:%d.%m.%Y}"

    with c4a.run("r"):
        c4a.approve(
            book,
            day="2025-01-01",
            price={"value": "10.50"},
            tags=["b", "a"],
            codes=[1, 2],
            by_room={"1": "2025-01-02"},
        )
        assert book(date(2025, 1, 1), Money(Decimal("10.5")), {"a", "b"}, (1, 2), {1: date(2025, 1, 2)}) == "booked 01.01.2025"
        with pytest.raises(c4a.InvalidArguments, match=r"args.day: expected a date"):
            c4a.approve(book, day="tomorrow", price={"value": "1"}, tags=[], codes=[], by_room={})


def test_variable_arguments_are_shown_by_name(library: Library) -> None:
    @c4a.effect(approval=True)
    def tag(first: int, /, *rest: date, **more: date) -> int:
        return len(rest) + len(more)

    with c4a.run("r"):
        c4a.approve(tag, first=1, rest=["2025-01-01"], due="2025-01-02")
        assert tag(1, date(2025, 1, 1), due=date(2025, 1, 2)) == 2
        with pytest.raises(c4a.InvalidArguments, match=r"expected a list for \*rest"):
            c4a.approve(tag, first=1, rest="2025-01-01")


def test_a_retry_of_the_action_reuses_its_yes(library: Library) -> None:
    tries: list[int] = []

    @c4a.effect(approval=True, retry_on=ConnectionRefusedError)
    def act() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionRefusedError
        return "done"

    with c4a.run("r"):
        c4a.approve(act)
        with pytest.raises(ConnectionRefusedError):
            act()
        assert act() == "done"


def test_an_unshowable_argument_is_refused_whatever_the_key(library: Library) -> None:
    @c4a.effect(approval=True)
    def act(thing: Any) -> None:
        raise AssertionError

    with c4a.run("r"), pytest.raises(c4a.InvalidArguments, match=r"thing.*must show every argument"):
        act(object(), c4a_key="k")  # type: ignore[call-arg]


def test_only_decorated_tools_can_be_answered(library: Library) -> None:
    with c4a.run("r"):
        for wrong in (print, "pay", None, lambda: None):
            with pytest.raises(c4a.InvalidArguments, match="decorated with @c4a.effect"):
                c4a.approve(wrong, amount=1)


def test_an_async_tool_is_gated_too(library: Library) -> None:
    import asyncio

    @c4a.effect(approval=True)
    async def act(n: int) -> int:
        return n

    async def main() -> int:
        with c4a.run("r"):
            with pytest.raises(c4a.ApprovalRequired):
                await act(1)
            c4a.approve(act, n=1)
            return await act(1)

    assert asyncio.run(main()) == 1
