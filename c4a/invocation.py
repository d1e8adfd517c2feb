"""One call of a decorated tool, from the claim to its settled outcome (protocol section 3)."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import inspect
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import urandom
from typing import TYPE_CHECKING, Any, Final

from c4a import codec, driving, runs
from c4a.calls import Tool, call_alike
from c4a.driving import OnRecord, Outside, Pause, Steps, Waiting
from c4a.errors import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalRequired,
    ApprovalSuperseded,
    C4AError,
    ClaimLost,
    EffectInDoubt,
    EffectRunning,
    InvalidArguments,
    RecordUnreachable,
    ResultNotRecordable,
    StaleVerdict,
)
from c4a.liveness import DEAD, holder_text, judge
from c4a.outbox import Outcome
from c4a.record.types import MAX_RESULT_BYTES, Call, Claimant, Grant, Recorded, Ticket
from c4a.verdicts import NOT_DONE, UNKNOWN, Happened, note_outcome

if TYPE_CHECKING:
    from c4a.connect import Connection
    from c4a.options import Options

WAIT_SLICE_SECONDS: Final = 2.0
"""How often a waiting caller looks whether the holder's process is still there; the record itself wakes it at once."""
TICKET_SLICE_SECONDS: Final = 5.0
"""How often a caller that waits for people claims anew: a yes may come by another way than its ticket."""
UNREACHABLE_PAUSES: Final = (0.05, 0.25)
"""A claim that got no answer is repeated with the same token after these pauses, then given up."""
RESEND_MARGIN: Final = 0.1
RESEND_MARGIN_SECONDS: Final = 300.0
"""A resend must reach the provider before it forgets the key: a tenth of the window is kept back, at most five minutes."""
FIRST_LOOK_SECONDS: Final = 0.02
LONGEST_LOOK_SECONDS: Final = 0.25
ERROR_CHARACTERS: Final = 2000
HEAD_CHARACTERS: Final = 1000


@dataclass
class Invocation:
    """Everything one call needs; made per call and used once."""

    connection: Connection
    tool: Tool
    options: Options
    call: Call
    values: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    claimant: Claimant
    deadline: float
    resent: bool = False
    """True once an action in doubt was re-claimed: whatever happens now, an earlier attempt may have happened."""
    asked: Ticket | None = None
    """The ticket this caller opened or found, as it last saw it."""
    declared_attempt: int = 0
    """The attempt this caller has declared dead: once is enough, whatever the record made of it."""

    @classmethod
    def begin(
        cls,
        connection: Connection,
        tool: Tool,
        options: Options,
        call: Call,
        values: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Invocation:
        """With a new token, and the waiting time running from now."""
        claimant = Claimant(urandom(16).hex(), connection.actor, holder_text(), options.lease)
        return cls(connection, tool, options, call, values, args, kwargs, claimant, time.monotonic() + options.wait)

    # -- the two ways to run it ---------------------------------------------------------------------------------------

    def run(self) -> Any:
        """Claim, then run the body in this thread, or return the recorded result."""
        try:
            answer = self._claim_once()  # nearly every call ends here; the rest begin again, with the same token
        except (EffectInDoubt, RecordUnreachable):
            answer = driving.drive(self._decide())
        except ApprovalRequired:
            if not self._asks:
                raise
            answer = driving.drive(self._decide())
        return self._repeat(answer) if isinstance(answer, Recorded) else self._perform(answer)

    async def run_async(self) -> Any:
        """As `run`, with the record off the event loop and the body in a task of its own."""
        answer = await driving.drive_async(self._decide())
        if isinstance(answer, Recorded):
            return self._repeat(answer)
        return await self._perform_async(answer)

    # -- who may run it: claim, wait, reconcile, re-claim -------------------------------------------------------------

    def _decide(self) -> Steps[Grant | Recorded]:
        refused_attempt = 0
        looking = FIRST_LOOK_SECONDS
        while True:
            try:
                return (yield from self._claim())
            except EffectRunning as running:
                if not (yield from self._declared_dead(running)):
                    yield from self._wait_for_outcome(running)
                continue
            except EffectInDoubt as error:
                doubt = error
            except ApprovalRequired as refusal:
                yield from self._ask_people(refusal)
                continue
            if not doubt.fields.get("body_ended") and (yield from self._declared_dead(doubt)):
                continue
            if self.options.reconcile is not None:
                answer = yield from self._reconcile(self.options.reconcile, doubt)
                if answer is None and time.monotonic() >= self.deadline:
                    raise doubt
                if answer is None:
                    yield Pause(looking)
                    looking = min(looking * 2, LONGEST_LOOK_SECONDS)
            elif self.options.idempotent_for is not None and refused_attempt != doubt.attempt:
                refused_attempt = doubt.attempt
                try:
                    return (yield from self._reclaim(doubt.attempt))
                except EffectInDoubt:
                    self.resent = False
                    continue  # outside the window, or another caller was first: the next claim tells which
            else:
                raise doubt

    def _claim(self) -> Steps[Grant | Recorded]:
        pauses = iter(UNREACHABLE_PAUSES)
        while True:
            try:
                found: Grant | Recorded = yield OnRecord(self._claim_once, withdraw=self._withdraw)
                return found
            except RecordUnreachable:
                # Whether the intent arrived is unknown. The same token gets the same grant, so asking again is harmless;
                # giving up leaves a release behind, since the body will not run.
                pause = next(pauses, None)
                if pause is None:
                    yield OnRecord(self._leave_release)
                    raise
            yield Pause(pause)

    @property
    def _asks(self) -> bool:
        """True if a call without a yes asks people for one."""
        return self.options.approval in ("ticket", "wait")

    def _ask_people(self, refusal: ApprovalRequired) -> Steps[None]:
        """Open a ticket and wait a while for its answer; the next claim tells what it was.

        Raises:
            ApprovalRequired: the refusal itself, now with the ticket unless this call waits, or how the ticket ended without a yes.
        """
        if not self._asks or isinstance(refusal, ApprovalDenied):
            raise refusal
        if self.asked is not None and self.asked.state == "open":
            yield from self._look_at_ticket(refusal, self.asked.text)
        else:
            # The claim was refused although the ticket is answered: its yes is gone, so people are asked anew.
            record, call, again = self.connection.record, self.call, self.asked is not None
            self.asked = yield OnRecord(lambda: record.pause(call, actor=self.connection.actor, again=again))
        asked = self.asked
        if asked is None or asked.state != "open":
            return
        if self.options.approval == "ticket":
            raise type(refusal)(f"{refusal.message}; asked by ticket {asked.text}", **{**refusal.fields, "ticket": asked.text})
        yield Waiting(asked.text, TICKET_SLICE_SECONDS, lambda seconds: self.connection.record.wait_ticket(asked.text, seconds))
        self.deadline = time.monotonic() + self.options.wait  # people's time is not the caller's

    def _look_at_ticket(self, refusal: ApprovalRequired, text: str) -> Steps[None]:
        record = self.connection.record
        now: Ticket = yield OnRecord(lambda: record.ticket(text))
        if now.state in _UNANSWERED:
            kind, told = _UNANSWERED[now.state]
            ended = {**refusal.fields, "ticket": text, "reason": now.reason or ""}
            raise kind(f"{self.tool.name} was not executed: {told.format(by=now.decided_by)}", **ended)
        self.asked = now

    def _leave_release(self) -> None:
        self.connection.outbox.put(Outcome("release", self.call.run, self.call.key, self.claimant.token))

    def _claim_once(self) -> Grant | Recorded:
        try:
            return self.connection.record.claim(self.call, self.claimant)
        except (KeyboardInterrupt, SystemExit):
            self._release()
            raise

    def _withdraw(self, answer: Grant | Recorded) -> None:
        """The caller was cancelled while it asked: give back what came after all."""
        if isinstance(answer, Grant):
            self._release()

    def _reclaim(self, attempt: int) -> Steps[Grant]:
        window = self.options.idempotent_for or 0.0
        margin = min(window * RESEND_MARGIN, RESEND_MARGIN_SECONDS)

        def once() -> Grant:
            return self.connection.record.reclaim(
                self.call, self.claimant, attempt=attempt, window_seconds=window - margin, grace_seconds=self.options.grace
            )

        self.resent = True
        grant: Grant = yield OnRecord(once, withdraw=lambda _: self._release())
        return grant

    def _declared_dead(self, found: EffectInDoubt) -> Steps[bool]:
        holder = found.fields.get("holder") or ""
        if self.declared_attempt == found.attempt or judge(holder) is not DEAD:
            return False
        self.declared_attempt = found.attempt
        record, call = self.connection.record, self.call
        yield OnRecord(lambda: record.declare_dead(call.run, call.key, attempt=found.attempt, holder=holder, actor=self.connection.actor))
        return True

    def _wait_for_outcome(self, running: EffectRunning) -> Steps[None]:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise running
        record, call = self.connection.record, self.call
        yield Waiting(call.key, min(left, WAIT_SLICE_SECONDS), lambda seconds: record.wait(call.run, call.key, seconds))

    def _reconcile(self, reconcile: Callable[..., Any], doubt: EffectInDoubt) -> Steps[bool | None]:
        """True if the doubt was settled, by whomever (claim again), None if it isn't this caller's turn to ask."""
        record, call, token = self.connection.record, self.call, urandom(16).hex()

        def ask() -> int:
            record.ask(
                call.run, call.key, attempt=doubt.attempt, token=token, actor=self.connection.actor,
                after_seconds=self.options.reconcile_after, lease_seconds=self.options.lease, grace_seconds=self.options.grace,
            )  # fmt: skip
            head = record.effect(call.key, call.run)  # for the epoch, so that the outside key is the one that was sent
            return 0 if head is None else head.epoch

        try:
            epoch = yield OnRecord(
                ask, withdraw=lambda _: record.answer(call.run, call.key, token, verdict="unknown", actor=self.connection.actor)
            )
        except StaleVerdict:
            return True
        except EffectInDoubt:
            return None
        try:
            found = yield Outside(lambda: self._look_up(reconcile, Grant(call.run, call.key, doubt.attempt, epoch)))
        except BaseException as error:
            counted = yield from self._tell(token, "unknown")
            if not isinstance(error, Exception):
                raise
            if not counted:
                return True
            raise self._still_in_doubt(doubt, f"reconcile= raised {_error_text(error)}") from error
        return (yield from self._judge(doubt, token, found))

    def _judge(self, doubt: EffectInDoubt, token: str, found: Any) -> Steps[bool]:
        """Record what `reconcile=` found; True: the doubt is settled, by whomever."""
        if found is UNKNOWN:
            if not (yield from self._tell(token, "unknown")):
                return True
            raise self._still_in_doubt(doubt, "reconcile= could not tell")
        if found is None or found is NOT_DONE:
            yield from self._tell(token, "not_done")
            return True
        value = found.value if isinstance(found, Happened) else found
        text, _, problem = self._result_text(value)
        counted = yield from self._tell(token, "done", None if problem else text)
        if counted and problem:
            raise self._not_recordable(value, problem)
        return True

    def _tell(self, token: str, verdict: Any, result: str | None = None) -> Steps[bool]:
        """False if the action was settled meanwhile, or somebody else asks now: what was found no longer counts."""
        record, call, actor = self.connection.record, self.call, self.connection.actor
        try:
            yield OnRecord(lambda: record.answer(call.run, call.key, token, verdict=verdict, result=result, actor=actor))
        except StaleVerdict:
            return False
        return True

    def _look_up(self, reconcile: Callable[..., Any], asked: Grant) -> Any:
        if inspect.iscoroutinefunction(reconcile):
            return self._look_up_async(reconcile, asked)
        with self._body(asked):
            return call_alike(reconcile, self.tool, self.args, self.kwargs, self.values)

    async def _look_up_async(self, reconcile: Callable[..., Any], asked: Grant) -> Any:
        with self._body(asked):
            return await call_alike(reconcile, self.tool, self.args, self.kwargs, self.values)

    def _still_in_doubt(self, doubt: EffectInDoubt, why: str) -> EffectInDoubt:
        return EffectInDoubt(f"{doubt.message} ({why})", **doubt.fields)

    # -- a repeat -----------------------------------------------------------------------------------------------------

    def _repeat(self, recorded: Recorded) -> Any:
        note_outcome(recorded.key, recorded.attempt, replayed=True, first_done_at=recorded.done_at)
        kept = None if recorded.result is None else codec.decode(recorded.result, annotation=self.tool.hints.get("return"))
        if recorded.note in (None, "resolved"):
            return kept
        told = kept if isinstance(kept, dict) else {}
        raise ResultNotRecordable(
            f"{self.tool.name} is done (not run again), but its result was not kept ({recorded.note}); ask the outside system for it",
            **{"result": None, "key": recorded.key, "note": recorded.note, **told},
        )

    # -- an attempt, in this thread -----------------------------------------------------------------------------------

    def _perform(self, grant: Grant) -> Any:
        began = False
        try:
            self._hold()
            with self._body(grant):
                began = True
                value = self.tool.function(*self.args, **self.kwargs)
                _refuse_unfinished(self.tool, value)
        except BaseException as error:
            self._drop()
            if began:
                self._fail_with(error)
            else:
                self._release()
            raise
        self._drop()
        self._note_done(grant)
        return self._complete(value)

    # -- an attempt, on an event loop ---------------------------------------------------------------------------------

    async def _perform_async(self, grant: Grant) -> Any:
        # The body is a task of its own, so that a caller who is cancelled can leave while the body still cleans up.
        context = contextvars.copy_context()
        began: list[bool] = []
        attempt = context.run(asyncio.ensure_future, self._attempt(grant, began))
        try:
            value = await asyncio.shield(attempt)
        except ResultNotRecordable:
            self._note_done(grant)
            raise
        except asyncio.CancelledError:
            if not attempt.done():
                await self._leave(attempt, began)
            _retrieve(attempt)
            raise
        except GeneratorExit:
            attempt.cancel()
            driving.submit(lambda: self._fail("the caller was closed while the body ran", reason="cancelled") if began else self._release())
            raise
        self._note_done(grant)
        return value

    async def _attempt(self, grant: Grant, began: list[bool]) -> Any:
        """The body and the settling of its outcome: goes on even if the caller has left, and then settles late."""
        try:
            self._hold()
            with self._body(grant):
                began.append(True)
                value = await self.tool.function(*self.args, **self.kwargs)
        except BaseException as error:  # noqa: BLE001 - raised again below
            self._drop()
            failed = error
        else:
            self._drop()
            return await driving.settled(driving.submit(lambda: self._complete(value)))
        if isinstance(failed, GeneratorExit):
            driving.submit(lambda: self._fail_with(failed))
        else:
            await driving.settled(driving.submit(lambda: self._fail_with(failed)))
        raise failed

    async def _leave(self, attempt: asyncio.Future[Any], began: list[bool]) -> None:
        """Cancel the body, give it a moment, and put the action in doubt if it is still busy; at most 2 × `CANCEL_SECONDS`."""
        attempt.cancel()
        if not began:
            await driving.settle_soon(driving.submit(self._release))
            return
        try:
            await asyncio.wait({attempt}, timeout=driving.CANCEL_SECONDS)
        except asyncio.CancelledError:
            pass
        if not attempt.done():
            _left.add(attempt)
            attempt.add_done_callback(_left.discard)
            attempt.add_done_callback(_retrieve)
            await driving.settle_soon(driving.submit(lambda: self._fail("the caller gave up while the body ran", reason="cancelled")))

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _note_done(self, grant: Grant) -> None:
        note_outcome(grant.key, grant.attempt, replayed=False, first_done_at=None)

    def _complete(self, value: Any) -> Any:
        """Settle as done and return the value, or say that it can't be recorded."""
        text, note, problem = self._result_text(value)
        self._settle(Outcome("complete", self.call.run, self.call.key, self.claimant.token, result=text, note=note))
        if problem:
            raise self._not_recordable(value, problem)
        return value

    def _result_text(self, value: Any) -> tuple[str | None, str | None, str | None]:
        """Codec text, the note that says why it isn't the result itself, and the problem if there is no repeat of it."""
        try:
            text = codec.encode(value, digest_key=self.connection.digest_key, path="result", annotation=self.tool.hints.get("return"))
        except (C4AError, RecursionError) as error:
            kept = {"text": _safe_text(value), "type": f"{type(value).__module__}.{type(value).__qualname__}"}
            return codec.encode(kept), "unrecordable", _error_text(error)
        if len(text) * 4 > MAX_RESULT_BYTES and len(data := text.encode()) > MAX_RESULT_BYTES:
            kept = {"sha256": hashlib.sha256(data).hexdigest(), "head": text[:HEAD_CHARACTERS], "size_bytes": str(len(data))}
            return codec.encode(kept), "oversize", None
        return text, None, None

    def _not_recordable(self, value: Any, problem: str) -> ResultNotRecordable:
        return ResultNotRecordable(
            f"{self.tool.name} is done and will not run again, but its result can't be kept ({problem}); it is in `.result` of this error. "
            "Return plain data, dataclasses or models",
            result=value,
            key=self.call.key,
            note="unrecordable",
        )

    def _fail_with(self, error: BaseException) -> None:
        cancelled = isinstance(error, asyncio.CancelledError)
        nothing_happened = isinstance(error, self.options.retry_on) if self.options.retry_on else False
        self._fail(_error_text(error), reason="cancelled" if cancelled else "raised", nothing_happened=nothing_happened)

    def _fail(self, error: str, *, reason: str, nothing_happened: bool = False) -> None:
        # Of an action that was in doubt before this attempt, no error of this attempt proves that nothing happened.
        proved = nothing_happened and not self.resent
        self._settle_lost(
            Outcome("fail", self.call.run, self.call.key, self.claimant.token, error=error, reason=reason, nothing_happened=proved)
        )

    def _release(self) -> None:
        if self.resent:
            self._fail("the caller gave up before it was sent again", reason="raised")
        else:
            self._settle_lost(Outcome("release", self.call.run, self.call.key, self.claimant.token))

    def _settle_lost(self, outcome: Outcome) -> None:
        try:
            self._settle(outcome)
        except ClaimLost:
            pass  # fenced off: it never arrived, or a newer attempt counts; the body's own error says more to the caller

    def _settle(self, outcome: Outcome) -> None:
        """Write the outcome; if the record can't take it now, the outbox keeps it and tries again."""
        try:
            went = outcome.write(self.connection.record)
        except ClaimLost:
            raise
        except Exception as error:  # noqa: BLE001 - whatever went wrong while writing, what happened outside must not be forgotten
            where = "a file of the outbox" if self.connection.outbox.put(outcome) else "this process's memory only"
            warnings.warn(
                f"{self.tool.name}: its outcome could not be recorded now ({error}); it is kept in {where} and will be tried again",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        if went == "happened_twice":
            warnings.warn(
                f"{self.tool.name} happened twice: this late result came after a newer attempt had begun. See action {outcome.key}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _hold(self) -> None:
        self.connection.heartbeat.hold(self.claimant.token, self.call.run, self.call.key, self.claimant.lease_seconds)

    def _drop(self) -> None:
        self.connection.heartbeat.drop(self.claimant.token)

    def _body(self, grant: Grant) -> runs.Inside:
        return runs.Inside(runs.Body(grant.run, grant.key, self.tool.name, grant.attempt, grant.epoch, self.options.form, self.options.max))


_UNANSWERED: Final[dict[str, tuple[type[ApprovalRequired], str]]] = {
    "expired": (ApprovalExpired, "nobody answered in time. Call again to ask again"),
    "cancelled": (ApprovalRequired, "{by} took the question back. Call again to ask again"),
    "superseded": (ApprovalSuperseded, "another question took the place of its own"),
}
"""How a ticket ends without an answer, and what its caller is told."""

_left: set[asyncio.Future[Any]] = set()
"""Bodies whose caller has left: held here, since an event loop keeps only weak references to its tasks."""


def _retrieve(attempt: asyncio.Future[Any]) -> None:
    """Look at the outcome nobody awaits any more, so that asyncio does not report it as lost: the record has it."""
    if attempt.done() and not attempt.cancelled():
        attempt.exception()


_FINISHED: Final = frozenset({type(None), bool, int, float, str, bytes, list, tuple, dict})


def _refuse_unfinished(tool: Tool, value: Any) -> None:
    """A coroutine or generator is not a result: the work in it has not been done."""
    if value.__class__ in _FINISHED:
        return
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        if inspect.iscoroutine(value):
            value.close()
        raise InvalidArguments(
            f"{tool.name} returned a {type(value).__name__}, which has not run yet: decorate the `async def` function itself",
            parameter="return",
        )


def _error_text(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text raises still has a name
        said = "(its text can't be read)"
    return f"{type(error).__name__}: {said}"[:ERROR_CHARACTERS].encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _safe_text(value: object) -> str:
    try:
        said = repr(value)
    except Exception:  # noqa: BLE001 - as above
        said = f"<{type(value).__qualname__}>"
    return said[:HEAD_CHARACTERS].encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
