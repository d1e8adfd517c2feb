"""`python -m c4a.demo [--check] [--only NAME]`: kill an agent, start it again, count the mails."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from c4a.cli.output import columns
from c4a.demo.agent import RECIPIENTS
from c4a.demo.operator_session import OperatorSession
from c4a.demo.places import ROOT, Place, PlaceMissing, environment_without_settings, file_place, postgres_place, server_place
from c4a.demo.sink import Sink, sink_running

ALICE: Final = RECIPIENTS[0]
NOTE: Final = "the mail server's log shows it was accepted"
RESULT: Final = '"accepted"'
LOOK_SECONDS: Final = 1.0
NAMES: Final = ("file", "server", "postgresql")


@dataclass(frozen=True)
class Story:
    """What happened to the first mail through one record; the counts are the sink's."""

    record: str
    killed_after: str
    killed_inside: str
    settled_by: str
    afterwards: str
    expected: tuple[str, str, str]

    @property
    def is_as_promised(self) -> bool:
        """What C4A promises, or without it what goes wrong, is what was counted."""
        return (self.killed_after, self.killed_inside, self.afterwards) == self.expected


def main(arguments: list[str]) -> int:
    """Tell the story through each record; 1 if a count is not the promised one, 2 for wrong usage, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m c4a.demo", description="Kill an agent process, start it again, count the mails.")
    parser.add_argument("--check", action="store_true", help="settle the doubt in the admin over HTTP instead of waiting for a person")
    parser.add_argument("--only", choices=NAMES, action="append", help="only through this record")
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    by_hand = sys.stdin.isatty() and sys.stdout.isatty() and not options.check
    try:
        return _tell(options.only or NAMES, by_hand=by_hand)
    except KeyboardInterrupt:
        print("Stopped.")
        return 130


def _tell(names: tuple[str, ...], *, by_hand: bool) -> int:
    print("An agent process sends a mail to alice and a mail to bob over SMTP. It is killed with SIGKILL, then started again.\n")
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="c4a-demo-") as made, sink_running() as sink:
        folder = Path(made)
        stories = [_without(sink)]
        places: dict[str, Callable[[], AbstractContextManager[Place]]] = {
            "file": lambda: file_place(folder),
            "server": lambda: server_place(folder),
            "postgresql": postgres_place,
        }
        for name in names:
            if name == "server":
                print("Starting the server …", flush=True)
            try:
                with places[name]() as place:
                    stories.append(_with(place, sink, by_hand=by_hand))
            except PlaceMissing as none:
                missing.append(f"{name}: skipped, {none}")
    heading = ("mails to alice", "killed after the first", "killed inside the first", "settled by", "started once more")
    rows = [(one.record, one.killed_after, one.killed_inside, one.settled_by, one.afterwards) for one in stories]
    print("\n" + columns([heading, *rows]))
    for line in missing:
        print(f"\n{line}")
    print("\nIn doubt: the mail may or may not have left when the process died, so it is not sent again until somebody finds out.")
    return 0 if by_hand or all(story.is_as_promised for story in stories) else 1


def _without(sink: Sink) -> Story:
    after, _ = _killed_and_again(sink, None, "without-after", inside=False)
    inside, _ = _killed_and_again(sink, None, "without-inside", inside=True)
    return Story("without C4A", f"{after} sent", f"{inside} sent", "", "", ("2 sent", "2 sent", ""))


def _with(place: Place, sink: Sink, *, by_hand: bool) -> Story:
    after, _ = _killed_and_again(sink, place, "order-41", inside=False)
    inside, word = _killed_and_again(sink, place, "order-42", inside=True)
    settled_by = _settle(place, by_hand=by_hand)
    before = sink.counts[ALICE]
    last = _let_run(sink, place, "order-42")
    afterwards = f"{inside + sink.counts[ALICE] - before} sent, {last}"
    expected = ("1 sent", "1 sent, in doubt", "1 sent, recorded")
    return Story(place.name, f"{after} sent", f"{inside} sent, {word}", settled_by, afterwards, expected)


def _killed_and_again(sink: Sink, place: Place | None, run: str, *, inside: bool) -> tuple[int, str]:
    """How many mails alice got from an agent that was killed and one that was not, and what the second said about hers."""
    before = sink.counts[ALICE]
    with _agent(sink, place, run) as agent:
        if inside:
            # The sink has the mail and the agent has not heard so: the very middle of the action.
            sink.on_mail = lambda _: agent.kill()
            _let_go_on(agent)
            agent.wait()
            sink.on_mail = None
        else:
            next(_words(agent))
            agent.kill()
    word = _let_run(sink, place, run)
    return sink.counts[ALICE] - before, word


def _let_run(sink: Sink, place: Place | None, run: str) -> str:
    with _agent(sink, place, run) as agent:
        said = {who: word for word, who in _words(agent)}
    return said.get(ALICE, "nothing")


@contextmanager
def _agent(sink: Sink, place: Place | None, run: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "c4a.demo.agent", str(sink.port), run, *([place.address] if place else [])]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C is for the demo, which then ends the agent
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _words(agent: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
    """What the agent says, `word recipient` a line; asked for the next, it is let go on."""
    assert agent.stdout is not None
    _let_go_on(agent)
    for line in agent.stdout:
        word, _, who = line.strip().rpartition(" ")
        yield word, who
        _let_go_on(agent)
    if agent.wait() != 0:
        raise SystemExit(f"the agent process ended with code {agent.returncode}; its own message is above")


def _let_go_on(agent: subprocess.Popen[str]) -> None:
    assert agent.stdin is not None
    with suppress(BrokenPipeError):  # it ended by itself; its code says how
        agent.stdin.write("go on\n")
        agent.stdin.flush()


def _settle(place: Place, *, by_hand: bool) -> str:
    """An operator finds out what happened and says so: for a server in its admin, else on the command line."""
    key = _in_doubt(place)[0]["key"]
    if place.sign_in_link is None:
        _c4a(place, "resolve", place.address, key[:12], "done", NOTE, "--result", RESULT)
        return "c4a resolve: done"
    if by_hand:
        return _wait_for_person(place, key)
    OperatorSession(place.sign_in_link).resolve(key, verdict="done", result=RESULT, note=NOTE)
    return "an operator in the admin: done"


def _wait_for_person(place: Place, key: str) -> str:
    print(f"\nThe agent was killed inside the action, so it is in doubt at {place.address}. Sign in with this link, good once:\n")
    print(f"    {place.sign_in_link}\n")
    print(f"Then settle it: {place.address}/admin/ledger/effect/?q={key[:12]}, open the action, press Resolve.", flush=True)
    print("The demo goes on when you have; Ctrl-C ends it.", flush=True)
    while any(effect["key"] == key for effect in _in_doubt(place)):
        time.sleep(LOOK_SECONDS)
    return "you in the admin"


def _in_doubt(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_c4a(place, "doubt", place.address, "--json"))["in_doubt"]
    return found


def _c4a(place: Place, *arguments: str) -> str:
    """The command line, as an operator would use it."""
    command = [sys.executable, "-m", "c4a", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=_environment(place), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"c4a {' '.join(arguments)} ended with code {done.returncode}: {done.stderr}")
    return done.stdout


def _environment(place: Place | None) -> dict[str, str]:
    return {**environment_without_settings(), **(place.environment if place else {})}


def _stop(*_: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave the server running
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
