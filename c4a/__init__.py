"""C4A: an AI agent's action runs once, with a human yes bound to exactly the action shown.

    import c4a

    c4a.init()

    @c4a.effect(approval=True)
    def pay(amount: int, to: str) -> str: ...

    with c4a.run("order-42"):
        c4a.approve(pay, amount=10, to="alice")
        pay(10, "alice")    # runs
        pay(10, "alice")    # a repeat: the recorded result

Names are loaded when they are used, so that `import c4a` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers read it as true; importing `typing` for it would be most of what `import c4a` costs
if TYPE_CHECKING:
    from typing import Any

    from c4a.approvals import approve as approve
    from c4a.approvals import deny as deny
    from c4a.connect import current_record as current_record
    from c4a.connect import init as init
    from c4a.effects import effect as effect
    from c4a.effects import idempotency_headers as idempotency_headers
    from c4a.effects import idempotency_key as idempotency_key
    from c4a.errors import AgentFrozen as AgentFrozen
    from c4a.errors import ApprovalDenied as ApprovalDenied
    from c4a.errors import ApprovalExpired as ApprovalExpired
    from c4a.errors import ApprovalRequired as ApprovalRequired
    from c4a.errors import ApprovalSuperseded as ApprovalSuperseded
    from c4a.errors import C4AError as C4AError
    from c4a.errors import ClaimLost as ClaimLost
    from c4a.errors import DecideNotAllowed as DecideNotAllowed
    from c4a.errors import EffectInDoubt as EffectInDoubt
    from c4a.errors import EffectRunning as EffectRunning
    from c4a.errors import EffectUndone as EffectUndone
    from c4a.errors import EffectUnknown as EffectUnknown
    from c4a.errors import InvalidArguments as InvalidArguments
    from c4a.errors import KeyConflict as KeyConflict
    from c4a.errors import LedgerError as LedgerError
    from c4a.errors import NoCurrentRun as NoCurrentRun
    from c4a.errors import RecordDamaged as RecordDamaged
    from c4a.errors import RecordUnreachable as RecordUnreachable
    from c4a.errors import ReplayMismatch as ReplayMismatch
    from c4a.errors import ReplayMissing as ReplayMissing
    from c4a.errors import ResultNotRecordable as ResultNotRecordable
    from c4a.errors import StaleVerdict as StaleVerdict
    from c4a.errors import TicketRefused as TicketRefused
    from c4a.errors import TicketUnknown as TicketUnknown
    from c4a.errors import UndoFailed as UndoFailed
    from c4a.pauses import cancel as cancel
    from c4a.pauses import decide as decide
    from c4a.pauses import pause as pause
    from c4a.pauses import tickets as tickets
    from c4a.pauses import wait as wait
    from c4a.pauses import withdraw as withdraw
    from c4a.runs import current_run as current_run
    from c4a.runs import run as run
    from c4a.secret import Secret as Secret
    from c4a.verdicts import NOT_DONE as NOT_DONE
    from c4a.verdicts import UNKNOWN as UNKNOWN
    from c4a.verdicts import Happened as Happened
    from c4a.verdicts import LastOutcome as LastOutcome
    from c4a.verdicts import last_outcome as last_outcome

__version__ = "0.1.0"

_HOMES = {
    "c4a.approvals": ("approve", "deny"),
    "c4a.connect": ("current_record", "init"),
    "c4a.effects": ("effect", "idempotency_headers", "idempotency_key"),
    "c4a.errors": (
        "AgentFrozen",
        "ApprovalDenied",
        "ApprovalExpired",
        "ApprovalRequired",
        "ApprovalSuperseded",
        "C4AError",
        "ClaimLost",
        "DecideNotAllowed",
        "EffectInDoubt",
        "EffectRunning",
        "EffectUndone",
        "EffectUnknown",
        "InvalidArguments",
        "KeyConflict",
        "LedgerError",
        "NoCurrentRun",
        "RecordDamaged",
        "RecordUnreachable",
        "ReplayMismatch",
        "ReplayMissing",
        "ResultNotRecordable",
        "StaleVerdict",
        "TicketRefused",
        "TicketUnknown",
        "UndoFailed",
    ),
    "c4a.pauses": ("cancel", "decide", "pause", "tickets", "wait", "withdraw"),
    "c4a.runs": ("current_run", "run"),
    "c4a.secret": ("Secret",),
    "c4a.verdicts": ("NOT_DONE", "UNKNOWN", "Happened", "LastOutcome", "last_outcome"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - the same names as above, kept in one place


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'c4a' has no attribute {name!r}")
    found = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
