"""Exit codes: documented, and kept for ever."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a command ends with."""

    OK = 0
    FAILED = 1
    """Refused or failed; one line on standard error says why."""
    USAGE = 2
    """The command line itself is wrong."""
    IN_DOUBT = 3
    """`doubt --fail-if-any`, and something is in doubt."""
    FOUND = 4
    """`verify` or `doctor` found a problem, or `quickstart` did not see what it promises."""
    INTERRUPTED = 130
    """Ctrl-C."""
    CLOSED = 141
    """The reader of the output went away, as with `| head`."""
