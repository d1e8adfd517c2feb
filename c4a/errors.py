"""Everything C4A raises, as one tree.

C4AError
├── InvalidArguments            (TypeError)    a value has no stable text; nothing was written
├── NoCurrentRun                (RuntimeError) an action outside `with c4a.run(...)`
├── KeyConflict                 (ValueError)   an explicit key already names another action
├── EffectInDoubt               may or may not have happened
│   └── EffectRunning           another caller is running it now
├── EffectUndone                it was done and then reversed
├── ApprovalRequired            no unspent yes for exactly these arguments
│   ├── ApprovalDenied          a person said no; not executed
│   ├── ApprovalExpired         nobody answered in time, or the yes ran out
│   └── ApprovalSuperseded      an edit took the place of this action
├── AgentFrozen                 the run or the agent was stopped by a person
├── ResultNotRecordable         done, but the result has no stable form (carries `.result`)
├── StaleVerdict                a judgement names an attempt that is no longer the last
├── ClaimLost                   the token does not hold the claim (fenced off)
├── EffectUnknown               no such action in this organization
├── TicketRefused               a ticket that was changed, or that is closed
│   └── TicketUnknown           a ticket this record did not issue
├── UndoFailed                  a reversal raised
├── ReplayMismatch, ReplayMissing
├── RequestRefused              the request itself is wrong (shape, size, media type)
│   ├── BodyTooLarge
│   └── IdempotencyConflict
├── NotAuthenticated            no key, or one that is unknown, revoked or expired
├── ScopeRefused                the key is valid but may not do this
│   └── DecideNotAllowed        an agent key can never decide
└── LedgerError                 the record cannot be used safely
    ├── RecordUnreachable       the database or server did not answer
    └── RecordDamaged           entries and heads disagree, or the file is not a record

Each class has a stable `code` (kept for ever, used by REST and the command line), an HTTP `status`, and
typed `fields` that travel in a problem document (RFC 9457) and come back as the same exception.
"""

from __future__ import annotations

from typing import Any, ClassVar


class C4AError(Exception):
    """Base of everything C4A raises; `fields` are JSON-ready and survive a trip over REST."""

    code: ClassVar[str] = "c4a-error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields: dict[str, Any] = fields

    def __getattr__(self, name: str) -> Any:
        """Read a typed field as an attribute: `doubt.attempt` is `doubt.fields["attempt"]`."""
        if name.startswith("_") or name == "fields":
            raise AttributeError(name)
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}; it has {sorted(self.fields)}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.fields))


def _rebuild(cls: type[C4AError], message: str, fields: dict[str, Any]) -> C4AError:
    return cls(message, **fields)


class InvalidArguments(C4AError, TypeError):
    """A value has no stable text form. Field: `parameter` (a path such as `args.items[3]`)."""

    code = "invalid-arguments"
    status = 422


class NoCurrentRun(C4AError, RuntimeError):
    """An action or an answer outside `with c4a.run(...)`."""

    code = "no-current-run"
    status = 422


class KeyConflict(C4AError, ValueError):
    """An explicit key already names a call that means something else; nothing ran.

    Fields: `key`, `tool`, `explicit_key`, `recorded_arguments`, `given_arguments` (canonical texts).
    """

    code = "key-conflict"
    status = 409


class EffectInDoubt(C4AError):
    """The action began and nobody knows whether it happened; it will not be repeated blindly.

    Fields: `key`, `run`, `tool`, `attempt`, `reason` (one of `c4a.record.types.DOUBT_REASONS`), `error` (text),
    `since` (µs since 1970, database time), `body_ended` (true if the attempt cannot still be running).
    """

    code = "effect-in-doubt"
    status = 409


class EffectRunning(EffectInDoubt):
    """Another caller is running it now. Fields as `EffectInDoubt`, and `holder` (text), `lease_until` (µs), `actor`."""

    code = "effect-running"


class EffectUndone(C4AError):
    """It was done and then reversed; a repeat neither runs nor returns the reversed result."""

    code = "effect-undone"
    status = 409


class ApprovalRequired(C4AError):
    """No unspent yes for exactly this call. Fields: `run`, `tool`, `arguments`, `call_digest`, `key`, and `ticket` if people are asked."""

    code = "approval-required"
    status = 403


class ApprovalDenied(ApprovalRequired):
    """A person said no; not executed. Fields as `ApprovalRequired`, and `reason`, `by`, `at` (µs)."""

    code = "approval-denied"


class ApprovalExpired(ApprovalRequired):
    """The yes ran out before it was used, or nobody answered in time."""

    code = "approval-expired"


class ApprovalSuperseded(ApprovalRequired):
    """An edited action took the place of this one."""

    code = "approval-superseded"


class AgentFrozen(C4AError):
    """A person stopped this run or agent. Fields: `subject`, `by`, `at` (µs), `note`."""

    code = "agent-frozen"
    status = 423


class ResultNotRecordable(C4AError):
    """The action is done, but its result cannot be kept. `result` is the live value; a repeat is told the same."""

    code = "result-not-recordable"
    status = 409


class StaleVerdict(C4AError):
    """A judgement names an attempt or a state that is no longer current. Fields: `key`, `attempt`, `state`."""

    code = "stale-verdict"
    status = 409


class ClaimLost(C4AError):
    """The token does not hold the claim: another attempt began or the state moved on. Fields: `key`, `state`."""

    code = "claim-lost"
    status = 409


class EffectUnknown(C4AError):
    """No such action in this organization."""

    code = "effect-unknown"
    status = 404


class TicketRefused(C4AError):
    """A ticket that can't be answered so. Fields: `why` and, once it is closed, `state`, `by`, `at` (µs), `reason`.

    `why` is one of `malformed`, `unknown` (this record did not issue it), `changed` (its text or its row), `decided`, `expired`,
    `cancelled`, `superseded`; of a yes to withdraw also `spent` and `void`.
    """

    code = "ticket-refused"
    status = 409


class TicketUnknown(TicketRefused):
    """No such ticket in this record, or not in this organization: it is forged, or another's."""

    code = "ticket-unknown"
    status = 404


class UndoFailed(C4AError):
    """A reversal raised; nothing older was touched."""

    code = "undo-failed"
    status = 409


class ReplayMismatch(C4AError):
    """A replayed call differs from the recorded one."""

    code = "replay-mismatch"
    status = 409


class ReplayMissing(C4AError):
    """A replayed call is not in the recording."""

    code = "replay-missing"
    status = 404


class RequestRefused(C4AError):
    """The request has a wrong shape. Fields: `errors` (a list of {"field", "problem"})."""

    code = "request-refused"
    status = 400


class BodyTooLarge(RequestRefused):
    """The body is over the limit. Field: `limit_bytes`."""

    code = "body-too-large"
    status = 413


class IdempotencyConflict(RequestRefused):
    """An `Idempotency-Key` is in use (409 while running) or came with another body (422)."""

    code = "idempotency-conflict"
    status = 409


class NotAuthenticated(C4AError):
    """No key, or one that is unknown, revoked or expired."""

    code = "not-authenticated"
    status = 401


class ScopeRefused(C4AError):
    """The key is valid but may not do this. Fields: `needs`, `has`."""

    code = "scope-refused"
    status = 403


class DecideNotAllowed(ScopeRefused):
    """An agent key can never decide."""

    code = "decide-not-allowed"


class LedgerError(C4AError):
    """The record cannot be used safely; the message says what to do."""

    code = "ledger-error"
    status = 500


class RecordUnreachable(LedgerError):
    """The database or server did not answer; whether the last write arrived is settled by repeating it."""

    code = "record-unreachable"
    status = 503


class RecordDamaged(LedgerError):
    """Not a record, or entries and heads disagree. `c4a verify` says where, `c4a rebuild` folds heads anew."""

    code = "record-damaged"


def error_classes() -> dict[str, type[C4AError]]:
    """Every error by its stable code."""
    found: dict[str, type[C4AError]] = {}
    pending: list[type[C4AError]] = [C4AError]
    while pending:
        cls = pending.pop()
        found[cls.code] = cls
        pending.extend(cls.__subclasses__())
    return found


def error_from_problem(problem: dict[str, Any]) -> C4AError:
    """Turn a problem document (RFC 9457) back into the exception it was made from."""
    cls = error_classes().get(str(problem.get("code", "")), C4AError)
    fields = problem.get("fields")
    return cls(str(problem.get("detail") or problem.get("title") or cls.code), **(fields if isinstance(fields, dict) else {}))
