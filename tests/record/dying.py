"""A process that asks or answers and is killed on the way: `python -m tests.record.dying ADDRESS DEED NUMBER TEXT KILL_AT`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from tests.crash.moments import Moments
from tests.record import cast

DEEDS: Final[dict[str, Callable[[Any, int, str], object]]] = {
    "pause": lambda record, number, _: record.pause(cast.call(number, gated=True), actor=cast.AGENT),
    "approve": lambda record, _, text: record.decide(text, "approve", by=cast.PERSON),
    "deny": lambda record, _, text: record.decide(text, "deny", by=cast.PERSON, reason="no"),
    "cancel": lambda record, _, text: record.cancel(text, by=cast.AGENT),
    "withdraw": lambda record, _, text: record.withdraw(text, run="", by=cast.PERSON),
}


def main(address: str, deed: str, number: str, text: str, kill_at: str) -> None:
    """Do it, and die at moment `kill_at` of it if it has so many."""
    moments = Moments(int(kill_at))
    moments.install()
    record = cast.record_open(address)
    record.verify()  # a connection is open: what opening one costs is not part of the deed
    moments.counting = True
    DEEDS[deed](record, int(number), text)


if __name__ == "__main__":
    main(*sys.argv[1:])
