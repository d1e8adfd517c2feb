"""`@c4a.effect`: a tool whose every action runs once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, TypeVar, overload

from c4a import connect, keys, runs
from c4a.calls import Place, Tool, call_of
from c4a.errors import InvalidArguments, NoCurrentRun
from c4a.invocation import Invocation
from c4a.options import DEFAULT_WAIT_SECONDS, Approval, Options, check_reconcile_fits, checked_options
from c4a.record.types import DEFAULT_GRACE_SECONDS, DEFAULT_LEASE_SECONDS

P = ParamSpec("P")
R = TypeVar("R")

TOOL_ATTRIBUTE: Final = "__c4a_tool__"
OPTIONS_ATTRIBUTE: Final = "__c4a_options__"


@overload
def effect(fn: Callable[P, R]) -> Callable[P, R]: ...


@overload
def effect(
    fn: None = None,
    *,
    approval: Approval = False,
    name: str | None = None,
    reconcile: Callable[..., Any] | None = None,
    key: Callable[..., Any] | None = None,
    wait: float = DEFAULT_WAIT_SECONDS,
    idempotent_for: float | None = None,
    retry_on: tuple[type[BaseException], ...] | type[BaseException] = (),
    exclude: tuple[str, ...] = (),
    undo: Callable[..., Any] | None = None,
    reconcile_after: float = 0.0,
    lease: float = DEFAULT_LEASE_SECONDS,
    grace: float = DEFAULT_GRACE_SECONDS,
    form: str = "uuid",
    max: int | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def effect(
    fn: Callable[..., Any] | None = None,
    *,
    approval: Approval = False,
    name: str | None = None,
    reconcile: Callable[..., Any] | None = None,
    key: Callable[..., Any] | None = None,
    wait: float = DEFAULT_WAIT_SECONDS,
    idempotent_for: float | None = None,
    retry_on: tuple[type[BaseException], ...] | type[BaseException] = (),
    exclude: tuple[str, ...] = (),
    undo: Callable[..., Any] | None = None,
    reconcile_after: float = 0.0,
    lease: float = DEFAULT_LEASE_SECONDS,
    grace: float = DEFAULT_GRACE_SECONDS,
    form: str = "uuid",
    max: int | None = None,
) -> Any:
    """Mark a function that changes the outside world: in one run, one action (tool and arguments) happens once.

    A repeat returns the recorded result. An action that began and whose outcome nobody knows raises `EffectInDoubt`
    instead of running again. Plain functions, coroutine functions and methods; durations are in seconds.

    Args:
        fn: the tool, when used without options.
        approval: needs a yes for exactly the arguments passed; one yes covers one action. True: a call without one raises
            `ApprovalRequired`. "ticket": it opens a ticket first, which the error carries as `.ticket`. "wait": it opens a
            ticket, waits for the answer, however long people take, and then runs or raises what came of it.
        name: a fixed tool name; without it module + qualified name.
        reconcile: asks the outside whether an action in doubt happened, with the tool's typed arguments. It returns the
            result or `c4a.Happened(value)`; `None` or `c4a.NOT_DONE`, and the action runs once more; or `c4a.UNKNOWN`.
        key: from the arguments to the text or int that names the action (an order id). `c4a_key=` at the call wins.
        wait: how long a call waits for another caller's running action before it raises `EffectRunning`.
        idempotent_for: how long the outside remembers `c4a.idempotency_key()`; within it (less a margin) an action in
            doubt is sent again with the same key. With `reconcile=` too, `reconcile=` is used.
        retry_on: errors that prove nothing happened; the next call runs the action.
        exclude: parameters left out of what makes two calls the same action (a framework's context object).
        undo: how to reverse the action; registered with it.
        reconcile_after: the outside's read lag; it is asked no sooner after the attempt.
        lease: how long the claim is believed without a heartbeat.
        grace: how long after a lapsed lease a body that can't be seen is still given.
        form: format of the outside key, `uuid` or another that `c4a.keys.outside_key` offers.
        max: longest outside key, in characters.

    Raises:
        InvalidArguments: an option is wrong, or `fn` is something that can't be run once (a class, a generator function).
    """
    options = checked_options(
        approval=approval, name=name, reconcile=reconcile, key=key, wait=wait, idempotent_for=idempotent_for, retry_on=retry_on,
        exclude=exclude, undo=undo, reconcile_after=reconcile_after, lease=lease, grace=grace, form=form, max=max,
    )  # fmt: skip
    return functools.partial(_decorate, options) if fn is None else _decorate(options, fn)


def _decorate(options: Options, fn: Any) -> Any:
    if isinstance(fn, staticmethod):
        return staticmethod(_wrap(options, fn.__func__, is_static=True))
    if isinstance(fn, classmethod):
        return classmethod(_wrap(options, fn.__func__, takes_class=True))
    return _wrap(options, fn)


def _wrap(options: Options, fn: Any, *, takes_class: bool = False, is_static: bool = False) -> Callable[..., Any]:
    _refuse_what_cannot_run_once(fn)
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
    check_reconcile_fits(options.reconcile, is_async=is_async)
    tool = Tool(
        fn, name=options.name, gated=bool(options.approval), exclude=options.exclude, key=options.key, has_undo=options.undo is not None,
        takes_class=takes_class, is_static=is_static,
    )  # fmt: skip
    wrapper = _async_wrapper(tool, options) if is_async else _wrapper(tool, options)
    functools.update_wrapper(wrapper, fn)
    setattr(wrapper, TOOL_ATTRIBUTE, tool)
    setattr(wrapper, OPTIONS_ATTRIBUTE, options)
    return wrapper


def _wrapper(tool: Tool, options: Options) -> Callable[..., Any]:
    def run_once(*args: Any, **kwargs: Any) -> Any:
        return _begin(tool, options, args, kwargs).run()

    return run_once


def _async_wrapper(tool: Tool, options: Options) -> Callable[..., Awaitable[Any]]:
    async def run_once(*args: Any, **kwargs: Any) -> Any:
        return await _begin(tool, options, args, kwargs).run_async()

    return run_once


def _begin(tool: Tool, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Invocation:
    run = runs.current_run()
    connection = connect.connection()
    inside = runs.body.get()
    parent = inside.key if inside is not None and inside.run == run else None
    place = Place(connection.record.organization, run, connection.digest_key, parent)
    call, values = call_of(tool, place, args, kwargs)
    return Invocation.begin(connection, tool, options, call, values, args, kwargs)


def _refuse_what_cannot_run_once(fn: Any) -> None:
    if isinstance(fn, (type, property)) or not callable(fn):
        raise InvalidArguments(
            f"@c4a.effect expected a function or method, got {fn!r:.200}: decorate the function that acts", parameter="fn"
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidArguments(
            f"@c4a.effect expected a function that returns its result, got the generator function {getattr(fn, '__qualname__', fn)}: "
            "its body runs in pieces, so it can't be once-only; decorate the function it calls for each action",
            parameter="fn",
        )
    if hasattr(fn, TOOL_ATTRIBUTE):
        raise InvalidArguments(f"{getattr(fn, TOOL_ATTRIBUTE).name} is decorated with @c4a.effect already", parameter="fn")


def tool_of(fn: Any) -> tuple[Tool, Any]:
    """The `Tool` behind a decorated function or bound method, and the instance it is bound to (or None).

    Raises:
        InvalidArguments: it isn't decorated with `@c4a.effect`.
    """
    receiver = getattr(fn, "__self__", None) if inspect.ismethod(fn) else None
    tool = getattr(fn, TOOL_ATTRIBUTE, None)
    if not isinstance(tool, Tool):
        raise InvalidArguments(f"expected a tool decorated with @c4a.effect, got {fn!r:.200}", parameter="tool")
    return tool, receiver


def idempotency_key() -> str:
    """The outside key of the action whose body is running (or that `reconcile=` is asked about): the same on every attempt.

    A UUIDv8 text of 36 characters unless the tool sets `form=` or `max=`. Send it to the outside, which can then drop a duplicate.

    Raises:
        NoCurrentRun: called outside the body of an action.
    """
    body = runs.body.get()
    if body is None:
        raise NoCurrentRun(
            "expected to be inside the body of a @c4a.effect function, where there is an action to name; a new thread started in the "
            "body does not inherit it, so take the key in the body and pass it on"
        )
    return keys.outside_key(body.key, body.epoch, form=body.form, max=body.max)


def idempotency_headers(header: str = "Idempotency-Key") -> dict[str, str]:
    """`{header: idempotency_key()}`, for an HTTP request. Raises as `idempotency_key`."""
    return {header: idempotency_key()}
