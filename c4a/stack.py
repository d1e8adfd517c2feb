"""Running deep recursion whatever the depth of the caller's own stack."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_deep(work: Callable[[], T]) -> T:
    """`work()`, and again on a fresh thread's empty stack if this thread's is used up.

    Frameworks call tools from stacks hundreds of frames deep: without this, whether a value 200 levels deep is accepted
    would depend on who calls, and a value once recorded could not be read back.

    Raises:
        RecursionError: too deep for an empty stack as well.
    """
    try:
        return work()
    except RecursionError:
        pass
    results: list[T] = []
    errors: list[BaseException] = []

    def again() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread below
            errors.append(error)

    thread = threading.Thread(target=again, name="c4a-deep-value", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
