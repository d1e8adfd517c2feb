"""Binding a call as Python does, and what of it goes into which digest."""

from __future__ import annotations

import inspect
from typing import Any, cast

import pytest

import c4a
from c4a.calls import Place, Tool, call_of
from tests.library.conftest import Library

PLACE = Place("org_x", "r")


def values_of(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Parameter name to value."""
    return Tool(function, name="t").bind(args, kwargs)


def key_of(tool: Tool, *args: Any, **kwargs: Any) -> str:
    """The effect key of a call."""
    return call_of(tool, PLACE, args, kwargs)[0].key


def f_plain(a: int, b: int = 2, *, c: int = 3) -> None: ...
def f_all(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> None: ...
def f_shadow(a: int, /, **more: int) -> None: ...
def f_none() -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (f_plain, (1,), {}),
        (f_plain, (1, 5), {"c": 9}),
        (f_plain, (), {"b": 1, "a": 2}),
        (f_all, (1, 2), {}),
        (f_all, (1, 2, 3, 4), {"c": 5, "d": 6}),
        (f_all, (1,), {"b": 2, "z": 3}),
        (f_shadow, (1,), {"a": 2}),
        (f_none, (), {}),
    ],
)
def test_it_binds_as_python_calls(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    expected = {name: list(value) if isinstance(value, tuple) else value for name, value in bound.arguments.items()}
    assert values_of(function, *args, **kwargs) == expected


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (f_plain, (), {}),
        (f_plain, (1, 2, 3), {}),
        (f_plain, (1,), {"a": 2}),
        (f_plain, (1,), {"d": 2}),
        (f_plain, (1,), {"c4a_kye": 2}),
        (f_all, (), {"a": 1, "b": 2}),
        (f_all, (1,), {}),
        (f_none, (1,), {}),
    ],
)
def test_what_python_would_refuse_is_refused(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        function(*args, **kwargs)
    with pytest.raises(c4a.InvalidArguments, match=r"^t: "):
        values_of(function, *args, **kwargs)


def test_however_it_is_passed_one_call_has_one_key() -> None:
    tool = Tool(f_plain, name="t")
    assert len({key_of(tool, 1), key_of(tool, 1, 2), key_of(tool, a=1, c=3), key_of(tool, 1.0, b=2)}) == 1
    assert key_of(tool, 1) != key_of(tool, 1, c=4)


def test_the_key_and_the_digest_differ_by_what_exclude_names() -> None:
    tool = Tool(f_plain, name="t", exclude=("c",))
    one, other = (call_of(tool, PLACE, (1,), {"c": c})[0] for c in (3, 4))
    assert one.key == other.key
    assert one.args_digest == other.args_digest
    assert one.call_digest != other.call_digest


def test_a_context_object_that_exclude_names_needs_no_stable_form(library: Library) -> None:
    ran: list[Any] = []

    @c4a.effect(exclude=("ctx",))
    def act(ctx: Any, n: int) -> int:
        ran.append(ctx)
        return n

    with c4a.run("r"):
        assert act(object(), 1) == act(object(), 1) == 1
        with pytest.raises(c4a.InvalidArguments, match=r"args\.n.*c4a_key="):
            act(1, object())  # type: ignore[arg-type]
    assert len(ran) == 1


def test_an_argument_without_a_stable_form_is_refused_before_anything_is_written_and_c4a_key_helps(library: Library) -> None:
    @c4a.effect
    def act(thing: Any, n: int) -> int:
        return n

    with c4a.run("r"):
        with pytest.raises(TypeError, match=r"args\.thing.*c4a_key="):
            act(object(), 1)
        assert library.effects() == []
        assert act(object(), 1, c4a_key="k") == 1  # type: ignore[call-arg]
        assert act(object(), 1, c4a_key="k") == 1  # type: ignore[call-arg]
        with pytest.raises(c4a.KeyConflict):
            act(object(), 2, c4a_key="k")  # type: ignore[call-arg]
    assert library.only_effect().arguments == '{"n":1,"thing":"<not recorded: builtins.object>"}'


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {"a": {1: object()}}, "\ud800", [{}] * 1 + [{"x": float("nan")}]])
def test_c_b6_a_value_that_cannot_be_text_is_refused_naming_the_argument(library: Library, bad: Any) -> None:
    @c4a.effect
    def act(thing: Any) -> None:
        raise AssertionError

    with c4a.run("r"), pytest.raises(c4a.InvalidArguments) as caught:
        act(bad)
    assert caught.value.parameter.startswith("args.thing")
    assert library.effects() == []


def test_c_b5_text_is_not_a_number_under_one_key(library: Library) -> None:
    @c4a.effect
    def act(value: Any) -> Any:
        return value

    with c4a.run("r"):
        for key, recorded, other in (("a", "0123", 123), ("b", "1e3", 1000), ("c", True, 1), ("d", None, "null")):
            act(recorded, c4a_key=key)  # type: ignore[call-arg]
            with pytest.raises(c4a.KeyConflict):
                act(other, c4a_key=key)  # type: ignore[call-arg]
        with pytest.raises(c4a.InvalidArguments):
            act(float("nan"))


def test_a_tool_with_its_own_c4a_key_parameter_keeps_it(library: Library) -> None:
    @c4a.effect
    def act(c4a_key: str) -> str:
        return c4a_key

    with c4a.run("r"):
        assert [act(c4a_key="a"), act("b"), act(c4a_key="a")] == ["a", "b", "a"]
    assert {effect.explicit_key for effect in library.effects()} == {None}


def test_a_tool_that_takes_any_keyword_still_leaves_c4a_key_to_c4a(library: Library) -> None:
    @c4a.effect
    def act(**more: Any) -> Any:
        return more

    with c4a.run("r"):
        assert act(a=1, c4a_key="k") == {"a": 1}
    assert library.only_effect().explicit_key == "k"


def test_the_tools_name_is_module_and_qualified_name_or_the_one_given() -> None:
    assert Tool(f_plain).name == f"{__name__}.f_plain"
    assert Tool(f_plain, name="charge").name == "charge"
    with pytest.raises(c4a.InvalidArguments, match="lambda"):
        Tool(lambda: None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"approval": "later"},
        {"approval": 1},
        {"name": ""},
        {"name": 7},
        {"wait": -1},
        {"wait": float("nan")},
        {"wait": True},
        {"idempotent_for": 0},
        {"idempotent_for": "1"},
        {"retry_on": (int,)},
        {"retry_on": "ValueError"},
        {"exclude": "ctx"},
        {"exclude": ("nope",)},
        {"reconcile": 1},
        {"key": "order-1"},
        {"undo": "x"},
        {"lease": 0},
        {"grace": -1},
        {"reconcile_after": -1},
        {"form": "roman"},
        {"form": "hex", "max": 3},
    ],
)
def test_a_wrong_option_is_refused_when_the_tool_is_decorated(wrong: dict[str, Any]) -> None:
    def act(n: int) -> None: ...

    with pytest.raises(c4a.InvalidArguments) as caught:
        cast(Any, c4a.effect)(**wrong)(act)
    assert next(reversed(wrong)) in str(caught.value) or caught.value.parameter in ("tool", "form", "max")


def _generate() -> Any:
    yield 1


async def _agenerate() -> Any:
    yield 1


@pytest.mark.parametrize("wrong", [_generate, _agenerate, int, property(lambda self: 1), 7, "x"])
def test_what_cannot_run_once_is_refused(wrong: Any) -> None:
    with pytest.raises(c4a.InvalidArguments, match="@c4a.effect expected"):
        c4a.effect(wrong)


def test_a_tool_is_not_decorated_twice() -> None:
    with pytest.raises(c4a.InvalidArguments, match="already"):
        c4a.effect(c4a.effect(f_plain))


def test_a_plain_tool_cannot_have_an_async_reconcile() -> None:
    async def look() -> None: ...

    with pytest.raises(c4a.InvalidArguments, match="reconcile"):
        c4a.effect(reconcile=look)(f_none)


def test_a_plain_function_that_returns_a_coroutine_is_in_doubt_and_told_how_to_mend_it(library: Library) -> None:
    async def work() -> None: ...

    @c4a.effect
    def act() -> Any:
        return work()

    with c4a.run("r"), pytest.raises(c4a.InvalidArguments, match="async def"):
        act()
    assert library.only_effect().state == "in_doubt"


def test_the_decorated_function_looks_like_the_function() -> None:
    decorated = c4a.effect(f_plain)
    assert inspect.signature(decorated) == inspect.signature(f_plain)
    assert decorated.__name__ == "f_plain"

    @c4a.effect
    async def act() -> None: ...

    assert inspect.iscoroutinefunction(act)


def test_an_outside_key_takes_the_form_the_tool_asks_for(library: Library) -> None:
    @c4a.effect(form="hex", max=20)
    def act() -> str:
        return c4a.idempotency_key()

    with c4a.run("r"):
        assert len(act()) == 20


def test_undo_is_accepted_and_recorded_as_registered(library: Library) -> None:
    @c4a.effect(undo=lambda n, result: None)
    def act(n: int) -> int:
        return n

    @c4a.effect
    def plain(n: int) -> int:
        return n

    with c4a.run("r"):
        act(1)
        plain(1)
    intents = {
        entry.payload["tool"].rpartition(".")[2]: entry.payload.get("undo")
        for entry in library.record.entries(run="r")
        if entry.kind == "effect.running" and entry.payload
    }
    assert intents == {"act": True, "plain": None}


def test_arguments_of_a_secret_are_masked_and_one_action(library: Library) -> None:
    if library.kind == "database":  # a file has its own beside it
        library.init(digest_key="d" * 32)

    @c4a.effect
    def log_in(password: c4a.Secret) -> str:
        return "in"

    with c4a.run("r"):
        assert log_in(c4a.Secret("hunter2")) == "in"
        log_in(c4a.Secret("hunter2"))
        log_in(c4a.Secret("hunter3"))
    assert len(library.effects()) == 2
    assert not any("hunter" in str(entry.payload) for entry in library.record.entries(run="r"))
