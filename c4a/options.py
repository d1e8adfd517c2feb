"""The options of `@c4a.effect`, checked once when a tool is decorated."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from c4a import keys
from c4a.errors import InvalidArguments
from c4a.record.types import DEFAULT_GRACE_SECONDS, DEFAULT_LEASE_SECONDS

DEFAULT_WAIT_SECONDS = 2.0

Approval = bool | Literal["ticket", "wait"]
"""Whether an action needs a yes, and what a call without one does: refuse, refuse and open a ticket, or wait for the answer."""


@dataclass(frozen=True)
class Options:
    """What a tool's author declared; see `c4a.effect` for the meaning of each. Durations are in seconds."""

    approval: Approval = False
    name: str | None = None
    reconcile: Callable[..., Any] | None = None
    key: Callable[..., Any] | None = None
    wait: float = DEFAULT_WAIT_SECONDS
    idempotent_for: float | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    exclude: tuple[str, ...] = ()
    undo: Callable[..., Any] | None = None
    reconcile_after: float = 0.0
    lease: float = DEFAULT_LEASE_SECONDS
    grace: float = DEFAULT_GRACE_SECONDS
    form: str = "uuid"
    max: int | None = None


def checked_options(**given: Any) -> Options:
    """`Options` of what was given to the decorator.

    Raises:
        InvalidArguments: an option has a wrong type or value; the message names it.
    """
    given["retry_on"] = _exception_classes(given["retry_on"])
    given["exclude"] = _names(given["exclude"])
    if type(given["approval"]) is not bool and given["approval"] not in ("ticket", "wait"):
        _refuse("approval", "True, False, 'ticket' or 'wait'", given["approval"])
    for name in ("reconcile", "key", "undo"):
        if given[name] is not None and not callable(given[name]):
            _refuse(name, "a function", given[name])
    for name in ("wait", "reconcile_after", "grace"):
        _check_seconds(name, given[name], zero=True)
    _check_seconds("lease", given["lease"], zero=False)
    if given["idempotent_for"] is not None:
        _check_seconds("idempotent_for", given["idempotent_for"], zero=False)
    # Asked here, with any key, so that an unknown form is refused when the module loads and not inside an action.
    keys.outside_key("0" * 64, 0, form=given["form"], max=given["max"])
    return Options(**given)


def check_reconcile_fits(reconcile: Callable[..., Any] | None, *, is_async: bool) -> None:
    """An async look-up needs an event loop, which a plain function has not.

    Raises:
        InvalidArguments: `reconcile` is a coroutine function and the tool is not.
    """
    if reconcile is not None and not is_async and inspect.iscoroutinefunction(reconcile):
        _refuse("reconcile", "a plain function, since the tool is one", reconcile)


def _exception_classes(given: Any) -> tuple[type[BaseException], ...]:
    classes = (given,) if isinstance(given, type) else given
    if not isinstance(classes, (tuple, list, set, frozenset)) or not all(
        isinstance(c, type) and issubclass(c, BaseException) for c in classes
    ):
        _refuse("retry_on", "exception classes, such as (ConnectionRefusedError,)", given)
    return tuple(classes)


def _names(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, (tuple, list, set, frozenset)) or not all(isinstance(name, str) for name in given):
        _refuse("exclude", 'parameter names, such as ("ctx",)', given)
    return tuple(given)


def _check_seconds(name: str, given: Any, *, zero: bool) -> None:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given) or given < 0 or (given == 0 and not zero):
        _refuse(name, "a number of seconds" + ("" if zero else " above 0"), given)


def _refuse(name: str, expected: str, given: object) -> None:
    raise InvalidArguments(f"effect({name}=): expected {expected}, got {given!r:.200}", parameter=name)
