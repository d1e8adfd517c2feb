"""The agent of `c4a quickstart`, a process of its own: `python -m c4a.cli.quickstart_agent with|without FOLDER RECIPIENT…`.

It sends one e-mail to each recipient (a line in the file `sent`), says on standard output what it did. Before it
begins and after every word it waits for a line on standard input; whoever started it may kill it there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import c4a


def main(mode: str, folder: Path, recipients: list[str]) -> None:
    """Send, with or without C4A."""
    if mode == "without":
        for to in recipients:
            mail_send(folder / "sent", to)
        return
    c4a.init(folder / "ledger.sqlite")
    send = c4a.effect(name="send_email")(mail_send_once(folder / "sent"))
    with c4a.run("newsletter-7"):
        for to in recipients:
            try:
                send(to)
            except c4a.EffectInDoubt:
                tell("in doubt", to)
                continue
            last = c4a.last_outcome()
            tell("recorded" if last is not None and last.replayed else "done", to)


def mail_send_once(sent: Path) -> Callable[[str], str]:
    """The tool: its only argument is the recipient."""

    def send_email(to: str) -> str:
        mail_send(sent, to)
        return "accepted"

    return send_email


def mail_send(sent: Path, to: str) -> None:
    """The outside world: once the line is on the disk, the mail is out."""
    with sent.open("a", encoding="utf-8") as file:
        file.write(to + "\n")
        file.flush()
        os.fsync(file.fileno())
    tell("sent", to)


def tell(word: str, to: str) -> None:
    """Say it and wait."""
    print(word, to, flush=True)
    wait_for_leave()


def wait_for_leave() -> None:
    """Go on when told to; end without a word if whoever started us is gone."""
    if not sys.stdin.readline():
        sys.exit(0)


if __name__ == "__main__":
    wait_for_leave()
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
