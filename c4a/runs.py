"""The run an action belongs to, and the action whose body is being executed: two context variables.

Threads start with neither (a new thread has an empty context); tasks and `asyncio.to_thread` inherit both.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
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


class Inside:
    """Inside the body of an effect, for the length of a `with`."""

    __slots__ = ("_body", "_token")

    def __init__(self, entered: Body) -> None:
        self._body = entered

    def __enter__(self) -> None:
        self._token = body.set(self._body)

    def __exit__(self, *error: object) -> None:
        body.reset(self._token)


class _Entered(AbstractContextManager[str]):
    """Inside a run. A class and not a generator: this stands on the path of every action."""

    __slots__ = ("_before", "_run_id", "_token")

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def __enter__(self) -> str:
        self._before = _run.get()
        self._token = _run.set(self._run_id)
        return self._run_id

    def __exit__(self, *error: object) -> None:
        try:
            _run.reset(self._token)
        except ValueError:  # left in another context than it was entered in, as async generators do
            _run.set(self._before)


def run(run_id: str) -> AbstractContextManager[str]:
    """Enter one agent conversation, thread or job: `with c4a.run("thread-42"):`. Use the id your framework resumes with.

    Runs nest, the innermost counts. New threads don't inherit the run; tasks do.

    Raises:
        InvalidArguments: `run_id` is not a text of 1 to 256 bytes without NUL.
    """
    return _Entered(identifier(run_id, "run"))


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
