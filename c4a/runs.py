"""The run an action belongs to, and the action whose body is being executed: two context variables.

Threads start with neither (a new thread has an empty context); tasks and `asyncio.to_thread` inherit both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from c4a.errors import NoCurrentRun
from c4a.keys import identifier

_run: ContextVar[str | None] = ContextVar("c4a_run", default=None)


@dataclass(frozen=True)
class Body:
    """The attempt whose body is executing: what `idempotency_key()` and effects inside it need to know."""

    run: str
    key: str
    tool: str
    attempt: int
    epoch: int
    form: str
    max: int | None


body: ContextVar[Body | None] = ContextVar("c4a_body", default=None)


@contextmanager
def _entered(run_id: str) -> Iterator[str]:
    before = _run.get()
    token = _run.set(run_id)
    try:
        yield run_id
    finally:
        try:
            _run.reset(token)
        except ValueError:  # left in another context than it was entered in, as async generators do
            _run.set(before)


def run(run_id: str) -> AbstractContextManager[str]:
    """Enter one agent conversation, thread or job: `with c4a.run("thread-42"):`. Use the id your framework resumes with.

    Runs nest, the innermost counts. New threads don't inherit the run; tasks do.

    Raises:
        InvalidArguments: `run_id` is not a text of 1 to 256 bytes without NUL.
    """
    return _entered(identifier(run_id, "run"))


def current_run() -> str:
    """The id of the run entered last.

    Raises:
        NoCurrentRun: outside `with c4a.run(...)`.
    """
    run_id = _run.get()
    if run_id is None:
        raise NoCurrentRun(
            "expected to be inside `with c4a.run(<id>):`, but there is no current run here. Enter it around the agent's work; "
            "a new thread does not inherit it, so enter it in the thread too (or start the thread with contextvars.copy_context().run)."
        )
    return run_id
