"""Runs the steps of an action, in a thread or on an event loop, from one text.

What an action does is written once, as a generator that yields steps (`OnRecord`, `Waiting`, `Pause`, `Outside`) and
gets their answers. `drive` runs them where it stands; `drive_async` runs record work in a bounded thread pool, so that
no database call ever blocks the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from c4a.errors import C4AError

R = TypeVar("R")

RECORD_THREADS: Final = 8
WAITING_THREADS: Final = 16
CANCEL_SECONDS: Final = 0.2
"""How long a cancelled caller waits for its bookkeeping; twice this stays under half a second."""


@dataclass(frozen=True)
class OnRecord:
    """One call of the record. `withdraw` gets its answer if the caller was cancelled before it came."""

    operation: Callable[[], Any]
    withdraw: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Waiting:
    """Block in `Record.wait` at most `seconds`; callers in one process that wait for the same effect share one wait."""

    key: str
    seconds: float
    operation: Callable[[float], None]


@dataclass(frozen=True)
class Pause:
    """Do nothing for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Outside:
    """Ask the user's `reconcile=`, which may block or be a coroutine function."""

    function: Callable[[], Any]


Step = OnRecord | Waiting | Pause | Outside
Steps = Generator[Step, Any, R]


def drive(steps: Steps[R]) -> R:
    """Run every step in this thread and return what the generator returns."""
    try:
        step = next(steps)
        while True:
            try:
                answer = _run_here(step)
            except BaseException as error:  # noqa: BLE001, PERF203 - the generator decides; it raises again what it can't use
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        found: R = stop.value
        return found


def _run_here(step: Step) -> Any:
    if isinstance(step, OnRecord):
        return step.operation()
    if isinstance(step, Waiting):
        return step.operation(step.seconds)
    if isinstance(step, Pause):
        return time.sleep(step.seconds)
    return step.function()


async def drive_async(steps: Steps[R]) -> R:
    """Run every step off the event loop. Once cancelled, what the generator still asks for is done without being awaited for long."""
    cancelled = closing = False
    try:
        step = next(steps)
        while True:
            try:
                if closing:
                    answer = None
                    _run_unawaited(step)
                else:
                    answer = await (_run_detached(step) if cancelled else _run_off_loop(step))
            except BaseException as error:  # noqa: BLE001, PERF203 - as in `drive`
                closing = closing or isinstance(error, GeneratorExit)
                cancelled = cancelled or isinstance(error, asyncio.CancelledError)
                # Told GeneratorExit through `yield from` it could not ask for anything more; told that it is cancelled it leaves in order.
                step = steps.throw(asyncio.CancelledError() if isinstance(error, GeneratorExit) else error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        found: R = stop.value
        return found
    except asyncio.CancelledError:
        if closing:
            raise GeneratorExit from None
        raise


async def _run_off_loop(step: Step) -> Any:
    if isinstance(step, OnRecord):
        return await off_loop(step.operation, withdraw=step.withdraw)
    if isinstance(step, Waiting):
        return await _wait_shared(step)
    if isinstance(step, Pause):
        return await asyncio.sleep(step.seconds)
    return await _ask_outside(step.function)


async def _run_detached(step: Step) -> Any:
    if isinstance(step, OnRecord):
        return await settle_soon(submit(step.operation))
    return None


def _run_unawaited(step: Step) -> None:
    # A coroutine that is being closed may not await anything any more; the pool carries the work out all the same.
    if isinstance(step, OnRecord):
        submit(step.operation)


async def off_loop(operation: Callable[[], R], *, withdraw: Callable[[R], Any] | None = None) -> R:
    """Run one record call in the pool. If the caller is cancelled meanwhile, `withdraw` gets the answer when it comes."""
    future = submit(operation)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if withdraw is not None and not future.cancel():
            await settle_soon(_then(future, withdraw))
        raise
    except GeneratorExit:
        if withdraw is not None and not future.cancel():
            _then(future, withdraw)
        raise


def _then(future: Future[R], withdraw: Callable[[R], Any]) -> Future[Any]:
    """`withdraw(answer)` in the pool as soon as there is an answer."""
    chained: Future[Any] = Future()

    def follow(answered: Future[R]) -> None:
        try:
            if not answered.cancelled() and answered.exception() is None:
                withdraw(answered.result())
        except C4AError:
            pass  # it never held the claim, or the outbox has taken it over
        finally:
            if chained.set_running_or_notify_cancel():
                chained.set_result(None)

    future.add_done_callback(follow)
    return chained


async def settle_soon(future: Future[Any]) -> None:
    """Wait a little for bookkeeping that goes on regardless; never raises, returns within `CANCEL_SECONDS`."""
    try:
        await asyncio.wait({asyncio.wrap_future(future)}, timeout=CANCEL_SECONDS)
    except asyncio.CancelledError:
        pass  # cancelled again while leaving: the caller's own cancellation is raised anyway


async def settled(future: Future[R]) -> R:
    """The answer of bookkeeping that must be carried out, even if this task is cancelled meanwhile; its error is raised."""
    following = asyncio.ensure_future(asyncio.wrap_future(future))
    while not following.done():
        try:
            await asyncio.wait({following})
        except asyncio.CancelledError:  # noqa: PERF203
            continue  # whoever cancels has left already or leaves within CANCEL_SECONDS; this task only finishes its record
    return following.result()


async def _wait_shared(step: Waiting) -> None:
    future = _waits.get(step.key)
    if future is None or future.done():
        future = _waits[step.key] = _waiting_pool().submit(step.operation, step.seconds)
        future.add_done_callback(lambda ended: _forget_wait(step.key, ended))
    # One caller's cancellation must not end the wait of the others, hence `wait` and not `await`.
    waiter = asyncio.ensure_future(asyncio.wrap_future(_shielded(future)))
    try:
        await asyncio.wait({waiter}, timeout=step.seconds)
    finally:
        waiter.cancel()


def _shielded(future: Future[Any]) -> Future[Any]:
    """A future that follows another without being able to cancel it."""
    follower: Future[Any] = Future()

    def follow(_: Future[Any]) -> None:
        if follower.set_running_or_notify_cancel():
            follower.set_result(None)

    future.add_done_callback(follow)
    return follower


def _forget_wait(key: str, ended: Future[Any]) -> None:
    if _waits.get(key) is ended:
        _waits.pop(key, None)


async def _ask_outside(function: Callable[[], Any]) -> Any:
    """A coroutine function on this loop; a plain one in a thread of its own, since it may block for long."""
    context = contextvars.copy_context()
    answer = await asyncio.get_running_loop().run_in_executor(None, lambda: context.run(function))
    return await answer if inspect.isawaitable(answer) else answer


# -- pools: two, so that callers who wait can never keep a finished action from being written ---------------------------

_pools: dict[str, ThreadPoolExecutor] = {}
_waits: dict[str, Future[Any]] = {}


def submit(operation: Callable[[], R]) -> Future[R]:
    """Run a record call in the pool of at most `RECORD_THREADS` threads; it is carried out even if nobody waits for it."""
    pool = _pools.get("record")
    if pool is None:
        pool = _pools.setdefault("record", ThreadPoolExecutor(RECORD_THREADS, thread_name_prefix="c4a-record"))
    return pool.submit(operation)


def _waiting_pool() -> ThreadPoolExecutor:
    pool = _pools.get("waiting")
    if pool is None:
        pool = _pools.setdefault("waiting", ThreadPoolExecutor(WAITING_THREADS, thread_name_prefix="c4a-waiting"))
    return pool


def _after_fork_in_child() -> None:
    _pools.clear()  # the threads stayed in the parent
    _waits.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
