"""Killed at any statement of a question or an answer: it stands whole or not at all, and doing it again ends the same."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys

import pytest

from c4a.errors import ApprovalDenied, ApprovalRequired
from c4a.record.types import Grant
from tests.record.cast import PERSON, Kept, call, claimant
from tests.record.dying import DEEDS
from tests.record.racing import ROOT
from tests.record.test_tickets import ask, kinds

ENDS = {
    "pause": (["ticket.opened"], []),
    "approve": (["ticket.opened", "ticket.approved"], ["gate.approved"]),
    "deny": (["ticket.opened", "ticket.denied"], ["gate.denied"]),
    "cancel": (["ticket.opened", "ticket.cancelled"], []),
    "withdraw": (["ticket.opened", "ticket.approved"], ["gate.approved", "gate.withdrawn"]),
}


def killed(kept: Kept, deed: str, number: int, text: str, kill_at: int) -> bool:
    """True if the process died at that moment, False if its deed has fewer moments."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.record.dying", kept.address, deed, str(number), text, str(kill_at)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def kill(kept: Kept, deed: str, *, step: int) -> int:
    """Kill the deed at every `step`-th of its moments, each on an action of its own; how often it was killed."""
    for number in itertools.count():
        one = call(number, gated=True)
        text = "" if deed == "pause" else ask(kept, one).text
        if deed == "withdraw":
            kept.record.decide(text, "approve", by=PERSON)
        if not killed(kept, deed, number, text, number * step):
            return number
        assert kept.record.verify() == []

        DEEDS[deed](kept.record, number, text)

        of_ticket, of_gate = ENDS[deed]
        assert kinds(kept, ask(kept, one).id if deed == "pause" else text.split(".")[1]) == of_ticket
        assert kinds(kept, one.call_digest) == of_gate
        _claim(kept, deed, number)
        assert kept.record.verify() == []
    return 0


def _claim(kept: Kept, deed: str, number: int) -> None:
    """No yes lost, none doubled, none surviving a no."""
    one, other = call(number, gated=True), call(number, gated=True, key="another")
    if deed == "approve":
        assert isinstance(kept.record.claim(one, claimant()), Grant)
        one = other
    with pytest.raises(ApprovalDenied if deed == "deny" else ApprovalRequired):
        kept.record.claim(one, claimant())


@pytest.mark.parametrize("deed", ENDS)
def test_killed_at_some_statements_it_stands_whole_or_not_at_all(kept: Kept, deed: str) -> None:
    assert kill(kept, deed, step=5) > 0


@pytest.mark.prove
@pytest.mark.parametrize("deed", ENDS)
def test_killed_at_every_statement_it_stands_whole_or_not_at_all(kept: Kept, deed: str) -> None:
    assert kill(kept, deed, step=1) > 4
