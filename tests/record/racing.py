"""Real processes that do the same thing at the same moment, and what each was told. `python -m tests.record.racing` is one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from c4a.errors import C4AError
from c4a.record.types import Grant, Recorded
from tests.record import cast

ROOT: Final = Path(__file__).resolve().parents[2]


class Racers:
    """Processes kept for a whole test session, since starting one costs more than a race; made when first needed."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[str]] = []

    def race(self, address: str, deed: str, *, processes: int, threads: int = 1, rounds: int = 1, **options: Any) -> list[list[str]]:
        """Run `deed` in `processes` × `threads` callers at once, `rounds` times; returns what each round's callers were told."""
        while len(self._children) < processes:
            self._children.append(_start())
        children = self._children[:processes]
        for place, child in enumerate(children):
            _say(child, {"address": address, "deed": deed, "threads": threads, "options": {**options, "place": place}})
        for child in children:
            assert _hear(child) == "ready"
        told: list[list[str]] = []
        for number in range(rounds):
            at = time.time() + 0.02  # all start by the clock, so that writing to 8 pipes gives nobody a lead
            for child in children:
                _say(child, {"round": number, "at": at})
            told.append([said for child in children for said in _hear(child)])
        for child in children:
            _say(child, {"end": True})
            assert _hear(child) == "closed"
        return told

    def close(self) -> None:
        """End them all."""
        for child in self._children:
            child.communicate(timeout=30)


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.record.racing"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _say(child: subprocess.Popen[str], what: dict[str, Any]) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(what) + "\n")
    child.stdin.flush()


def _hear(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    return json.loads(child.stdout.readline())


def claim(record: Any, number: int, *, gated: bool = False, keyed: bool = False, settle: bool = False, **_: Any) -> object:
    """Claim the round's one action; `keyed` under a key of each caller's own."""
    one = cast.call(number, gated=gated, key=f"order-{number}-{os.getpid()}-{threading.get_ident()}" if keyed else None)
    who = cast.claimant()
    answer = record.claim(one, who)
    if settle and isinstance(answer, Grant):
        time.sleep(0.01)
        record.complete(one.run, one.key, who.token, result="1")
    return answer


def yes_or_no(record: Any, number: int, **_: Any) -> object:
    """Each caller says both, in an order of its own."""
    one = cast.call(number)
    for said in (cast.approve, cast.deny) if (os.getpid() + number) % 2 else (cast.deny, cast.approve):
        said(record, one)
    return "both"


def ask(record: Any, number: int, **_: Any) -> object:
    """Take the right to ask outside, and say that it did not happen."""
    one, token = cast.call(number), cast.claimant().token
    record.ask(one.run, one.key, attempt=1, token=token, actor=cast.AGENT, after_seconds=0, lease_seconds=15)
    record.answer(one.run, one.key, token, verdict="not_done", actor=cast.AGENT)
    return "asked"


def reclaim(record: Any, number: int, *, attempt: int = 1, **_: Any) -> object:
    """Send the same outside key again."""
    return record.reclaim(cast.call(number), cast.claimant(), attempt=attempt, window_seconds=3600)


def resolve(record: Any, number: int, **_: Any) -> object:
    """Judge attempt 1 as not done."""
    record.resolve(cast.call(number).key, "not_done", attempt=1, note="looked", actor=cast.PERSON)
    return "resolved"


def sweep(record: Any, number: int, **_: Any) -> object:
    """Put what lapsed in doubt."""
    return f"swept {record.sweep()}"


def pause(record: Any, number: int, **_: Any) -> object:
    """Ask about the round's one action."""
    return record.pause(cast.call(number, gated=True), actor=cast.AGENT).id


def decide(record: Any, number: int, *, place: int, tickets: list[str], **_: Any) -> object:
    """Every other process says yes to the round's ticket, the rest say no."""
    answer = "approve" if (place + number) % 2 else "deny"
    return record.decide(tickets[number], answer, by=f"person:{place}").answer


def click(record: Any, number: int, *, tickets: list[str], **_: Any) -> object:
    """The same person says yes to the round's ticket."""
    return f"{record.decide(tickets[number], 'approve', by=cast.PERSON)}"


def spend_or_withdraw(record: Any, number: int, *, place: int, tickets: list[str], **_: Any) -> object:
    """One process claims under the round's yes, another takes it back."""
    if place:
        record.withdraw(tickets[number], run="", by=cast.PERSON)
        return "withdrawn"
    return record.claim(cast.call(number, gated=True), cast.claimant())


def mixed(record: Any, number: int, **_: Any) -> object:
    """Claim and settle 20 actions that everybody wants (public case 52)."""
    for each in range(20):
        one, who = cast.call(number * 100 + each), cast.claimant()
        answer = None
        try:
            answer = record.claim(one, who)
        except C4AError as error:
            if error.code != "effect-running":
                raise
        if isinstance(answer, Grant):
            record.complete(one.run, one.key, who.token, result="1")
    return "worked"


DEEDS: Final[dict[str, Callable[..., object]]] = {
    name.__name__: name for name in (claim, yes_or_no, ask, reclaim, resolve, sweep, pause, decide, click, spend_or_withdraw, mixed)
}


def told(deed: Callable[..., object], record: Any, number: int, options: dict[str, Any]) -> str:
    """What a caller was told, in a word."""
    try:
        answer = deed(record, number, **options)
    except C4AError as error:
        return error.code
    except Exception as error:  # noqa: BLE001 - whatever it is, the test must see it
        return f"{type(error).__name__}: {error}"
    if isinstance(answer, Grant):
        return "granted"
    if isinstance(answer, Recorded):
        return "recorded"
    return str(answer)


def main() -> None:
    """One racing process: it is told a race, then its rounds, on its standard input."""
    for line in sys.stdin:
        told_race = json.loads(line)
        record = cast.record_open(told_race["address"])
        record.verify()  # a connection is open before the race
        with ThreadPoolExecutor(told_race["threads"]) as pool:
            _rounds(pool, DEEDS[told_race["deed"]], record, told_race["threads"], told_race["options"])
        record.close()
        print(json.dumps("closed"), flush=True)


def _rounds(pool: ThreadPoolExecutor, deed: Callable[..., object], record: Any, threads: int, options: dict[str, Any]) -> None:
    list(pool.map(lambda _: time.sleep(0.001), range(threads)))  # the threads exist before the race
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        one = json.loads(line)
        if one.get("end"):
            return

        def run(_: int, number: int = one["round"], at: float = one["at"]) -> str:
            time.sleep(max(0.0, at - time.time()))
            return told(deed, record, number, options)

        print(json.dumps(list(pool.map(run, range(threads)))), flush=True)


if __name__ == "__main__":
    main()
