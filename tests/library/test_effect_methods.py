"""Methods: whose action is it? `self` is left out unless it says what tells it apart."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import c4a
from tests.library.conftest import Library


class Stateless:
    """Nothing tells two of them apart."""

    @c4a.effect
    def send(self, to: str) -> str:
        """Send."""
        return f"sent to {to}"


class Mailer:
    """Has an account, and no way to say which."""

    def __init__(self, account: str) -> None:
        self.account = account

    @c4a.effect
    def send(self, to: str) -> str:
        """Send."""
        return f"{self.account} to {to}"

    @c4a.effect(approval=True)
    def pay(self, amount: int) -> str:
        """Pay."""
        return f"{self.account} pays {amount}"


class Account:
    """Says which account it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __c4a_key__(self) -> str:
        return self.name

    @c4a.effect
    def send(self, to: str) -> str:
        """Send."""
        return f"{self.name} to {to}"

    @c4a.effect(approval=True)
    async def pay(self, amount: int) -> str:
        """Pay."""
        return f"{self.name} pays {amount}"


class Slotted:
    """State in slots."""

    __slots__ = ("__hidden",)

    def __init__(self) -> None:
        self.__hidden = 1

    @c4a.effect
    def send(self) -> None:
        """Send."""


class Child(Stateless):
    """Another receiver than the class its tool was written in."""


class Kinds:
    """Every order of decorators."""

    @staticmethod
    @c4a.effect
    def inner_static(x: int) -> int:
        """Static."""
        return x

    @c4a.effect
    @staticmethod
    def outer_static(self: int) -> int:  # noqa: PLW0211 - any name is the tool's
        """Static, with a parameter called self."""
        return self

    @classmethod
    @c4a.effect
    def inner_class(cls, x: int) -> str:
        """Class."""
        return f"{cls.__name__} {x}"

    @c4a.effect
    @classmethod
    def outer_class(klass, x: int) -> str:  # noqa: N804
        """Class, by another name."""
        return f"{klass.__name__} {x}"


class SubKinds(Kinds):
    """Another class than the one the tool was written in."""


def test_a_k1_an_instance_is_not_part_of_the_action(library: Library) -> None:
    with c4a.run("r"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Stateless().send("bob") == Stateless().send("bob") == "sent to bob"
    effect = library.only_effect()
    assert effect.arguments == '{"to":"bob"}'
    assert effect.tool.endswith("test_effect_methods.Stateless.send")


def test_c_c4_leaving_out_an_instance_with_state_warns_once(library: Library) -> None:
    tool: Any = Mailer.send
    tool.__c4a_tool__._warned = False
    with c4a.run("r"):
        with pytest.warns(UserWarning, match="__c4a_key__"):
            assert Mailer("a").send("bob") == "a to bob"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert Mailer("b").send("bob") == "a to bob"


def test_c_c4_two_instances_that_say_who_they_are_act_each_for_itself(library: Library) -> None:
    with c4a.run("r"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [Account(name).send("bob") for name in ("a", "b", "a")] == ["a to bob", "b to bob", "a to bob"]
    assert {effect.arguments for effect in library.effects()} == {'{"self":"a","to":"bob"}', '{"self":"b","to":"bob"}'}


def test_c_c4_an_instance_with_state_and_no_key_is_refused_under_approval(library: Library) -> None:
    mailer = Mailer("a")
    with c4a.run("r"):
        with pytest.raises(c4a.InvalidArguments, match="__c4a_key__"):
            mailer.pay(10)
        with pytest.raises(c4a.InvalidArguments, match="__c4a_key__"):
            c4a.approve(mailer.pay, amount=10)


def test_a_yes_for_a_method_is_for_that_instance(library: Library) -> None:
    import asyncio

    async def main() -> None:
        with c4a.run("r"):
            c4a.approve(Account("a").pay, amount=10)
            with pytest.raises(c4a.ApprovalRequired):
                await Account("b").pay(10)
            assert await Account("a").pay(10) == "a pays 10"
            c4a.approve(Account.pay, self="b", amount=10)
            assert await Account("b").pay(10) == "b pays 10"

    asyncio.run(main())


@pytest.mark.parametrize("make", [Slotted, Child])
def test_state_in_slots_or_in_a_subclass_counts(library: Library, make: Any) -> None:
    make.send.__c4a_tool__._warned = False
    args = () if make is Slotted else ("bob",)
    with c4a.run("r"), pytest.warns(UserWarning, match=make.__name__) as warned:
        make().send(*args)
    assert len(warned) == 1


@pytest.mark.parametrize("bad", [None, "", True, 1.5, []])
def test_an_instance_key_that_is_no_key_is_refused(library: Library, bad: Any) -> None:
    class Bad:
        __c4a_key__ = bad

        @c4a.effect
        def send(self) -> None:
            """Send."""

    with c4a.run("r"), pytest.raises(c4a.InvalidArguments, match="__c4a_key__"):
        Bad().send()


def test_static_and_class_methods_work_in_either_order(library: Library) -> None:
    with c4a.run("r"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Kinds.inner_static(1) == Kinds().inner_static(1) == 1
        assert Kinds.outer_static(2) == Kinds().outer_static(2) == 2
        assert Kinds.inner_class(3) == Kinds().inner_class(3) == "Kinds 3"
        assert Kinds.outer_class(4) == "Kinds 4"
        assert SubKinds.inner_class(3) == "SubKinds 3"
    shown = sorted(str(effect.arguments) for effect in library.effects())
    assert shown[-1] == '{"x":4}'
    assert '{"self":2}' in shown
    assert any("SubKinds" in text for text in shown)
    assert len(shown) == 5


def test_a_bound_method_can_be_decorated(library: Library) -> None:
    class Plain:
        def __init__(self, name: str) -> None:
            self.__c4a_key__ = name

        def send(self, to: str) -> str:
            return f"{self.__c4a_key__} to {to}"

    a, b = c4a.effect(Plain("a").send), c4a.effect(Plain("b").send)
    with c4a.run("r"):
        assert [a("bob"), b("bob"), a("bob")] == ["a to bob", "b to bob", "a to bob"]


def test_a_parameter_called_self_of_a_plain_function_is_a_parameter(library: Library) -> None:
    @c4a.effect
    def relate(self: str, other: str) -> str:
        return f"{self}-{other}"

    with c4a.run("r"):
        assert [relate("a", "x"), relate("b", "x")] == ["a-x", "b-x"]
