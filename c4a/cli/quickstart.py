"""`c4a quickstart`: see once-only with your own eyes, offline, in seconds: a real process, really killed, and a file that counts."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import c4a
from c4a.cli.exits import Exit
from c4a.cli.output import columns, json_option, json_text
from c4a.errors import LedgerError

AGENT: Final = "c4a.cli.quickstart_agent"
FIRST, SECOND = "alice@example.com", "bob@example.com"


@dataclass(frozen=True)
class Seen:
    """What the folder of sent mails held at the end, and what the agent said about the first of them."""

    case: str
    sent_first: int
    sent_second: int
    said: str
    expected: tuple[int, int, str]

    @property
    def is_as_promised(self) -> bool:
        """Counts and words are what C4A promises."""
        return (self.sent_first, self.sent_second, self.said) == self.expected


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "quickstart", parents=[json_option()], help="a real agent process, killed and started again: sent once, not twice (offline)"
    )
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="a new folder for the records, to look at afterwards")
    parser.set_defaults(command=quickstart)


def quickstart(options: argparse.Namespace) -> Exit:
    """Kill and start agents, then print what was sent. Code 4 if that is not what C4A promises."""
    with _folder(options.keep) as folder:
        seen = [
            _killed(folder, "without C4A, killed after the first", "without", kill_at="sent", expected=(2, 1, "sent")),
            _killed(folder, "with C4A, killed after the first", "with", kill_at="done", expected=(1, 1, "recorded")),
            _killed(folder, "with C4A, killed inside the first", "with", kill_at="sent", expected=(1, 1, "in doubt")),
        ]
        changed = _changed_action(folder)
    kept = _all_good(seen) and changed == {"changed": "refused", "approved": "ran", "repeat": "recorded"}
    if options.json:
        print(json_text({"killed": seen, "approval": changed, "as_promised": kept}))
    else:
        _print(seen, changed, options.keep)
    return Exit.OK if kept else Exit.FOUND


def _killed(folder: Path, case: str, mode: str, *, kill_at: str, expected: tuple[int, int, str]) -> Seen:
    """Start an agent that sends two mails, kill it at that word, start it again, let it end, and count."""
    place = folder / case.replace(" ", "-").replace(",", "").lower()
    place.mkdir()
    with _agent(place, mode) as first:
        for word in _words(first):
            if word == (kill_at, FIRST):
                first.kill()  # SIGKILL: no handler, no `finally`, no flush
                break
    with _agent(place, mode) as again:
        said = {who: word for word, who in _words(again)}
    sent = (place / "sent").read_text(encoding="utf-8").splitlines()
    return Seen(case, sent.count(FIRST), sent.count(SECOND), said.get(FIRST, "nothing"), expected)


@contextmanager
def _agent(place: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    """A running agent process whose input we hold: it waits for a line after every word, so that a kill meets it there."""
    package = str(Path(c4a.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", AGENT, mode, str(place), FIRST, SECOND]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("C4A_")}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**environment, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for this process, which then ends the agent
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _words(agent: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
    """What the agent says, `word recipient` a line; asked for the next, it is let go on."""
    assert agent.stdout is not None  # noqa: S101 - a pipe
    _let_go_on(agent)
    for line in agent.stdout:
        word, _, who = line.strip().rpartition(" ")
        yield word, who
        _let_go_on(agent)
    if agent.wait() != 0:
        raise LedgerError(f"the quickstart's agent process ended with code {agent.returncode}; its own message is above")


def _let_go_on(agent: subprocess.Popen[str]) -> None:
    assert agent.stdin is not None  # noqa: S101 - a pipe
    try:
        agent.stdin.write("go on\n")
        agent.stdin.flush()
    except BrokenPipeError:
        pass  # it ended by itself; its code says how


def _changed_action(folder: Path) -> dict[str, str]:
    """A yes to pay(10, alice); then the agent tries pay(9999, mallory), pay(10, alice), and pay(10, alice) again."""
    paid: list[str] = []

    @c4a.effect(approval=True, name="pay")
    def pay(amount: int, to: str) -> str:
        paid.append(to)
        return f"{amount} paid to {to}"

    (folder / "approval").mkdir()
    c4a.init(folder / "approval" / "ledger.sqlite")
    with c4a.run("order-42"):
        c4a.approve(pay, amount=10, to="alice", c4a_by="a person")
        seen = {"changed": _tried(lambda: pay(9999, "mallory")), "approved": _tried(lambda: pay(10, "alice"))}
        pay(10, "alice")
    last = c4a.last_outcome()
    c4a.current_record().close()
    seen["repeat"] = "recorded" if last is not None and last.replayed and paid == ["alice"] else "ran"
    return seen


def _tried(act: Any) -> str:
    try:
        act()
    except c4a.ApprovalRequired:
        return "refused"
    return "ran"


def _all_good(seen: list[Seen]) -> bool:
    return all(one.is_as_promised for one in seen)


def _print(seen: list[Seen], changed: dict[str, str], kept: Path | None) -> None:
    print(f"An agent process sends one e-mail to {FIRST} and one to {SECOND}. It is killed with SIGKILL, then started again.\n")
    rows = [(one.case, str(one.sent_first), str(one.sent_second), one.said) for one in seen]
    print(columns([("", "to alice", "to bob", "the second process on the first e-mail"), *rows]))
    print("\nIn doubt: the mail may or may not have left when the process died, so it is not sent again; `c4a resolve` settles it.")
    print("\nA person said yes to pay(10, alice). Then the agent called:\n")
    told = ("pay(9999, mallory)", changed["changed"]), ("pay(10, alice)", changed["approved"]), ("pay(10, alice) again", changed["repeat"])
    print(columns([("action", "what came of it"), *told]))
    if kept is not None:
        print(f"\nThe records are in {kept}; look at one with: c4a doubt {kept}/with-c4a-killed-inside-the-first/ledger.sqlite")


@contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="c4a-quickstart-") as made:
            yield Path(made)
        return
    try:
        wanted.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise LedgerError(f"--keep: {wanted} is there already; name a folder that is not") from None
    yield wanted
