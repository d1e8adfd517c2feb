"""The agent of the demo, a process of its own: `python -m c4a.demo.agent SMTP-PORT RUN [RECORD]`, without C4A if no record is named.

It sends one mail to each of two people with `smtplib` and says on standard output what came of it. Before it begins and after every
word it waits for a line on standard input; whoever started it may kill it there. A server's key comes in C4A_KEY, a database's
secret in C4A_SECRET.
"""

from __future__ import annotations

import os
import smtplib
import sys
from collections.abc import Callable
from email.message import EmailMessage

import c4a

RECIPIENTS = ("alice@example.com", "bob@example.com")


def main(port: int, run: str, record: str | None) -> None:
    """Send both mails."""
    if record is None:
        for to in RECIPIENTS:
            mail_send(port, to)
            tell("sent", to)
        return
    c4a.init(record, key=os.environ.get("C4A_KEY"))
    send_email = c4a.effect(name="send_email")(tool_for(port))
    with c4a.run(run):
        for to in RECIPIENTS:
            tell(send_once(send_email, to), to)


def send_once(send_email: Callable[[str], str], to: str) -> str:
    """What came of the action, in one or two words."""
    try:
        send_email(to)
    except c4a.EffectInDoubt:
        return "in doubt"
    last = c4a.last_outcome()
    return "recorded" if last is not None and last.replayed else "sent"


def tool_for(port: int) -> Callable[[str], str]:
    """The tool: the recipient is its only argument, the port is a matter of this machine."""

    def send_email(to: str) -> str:
        mail_send(port, to)
        return "accepted"

    return send_email


def mail_send(port: int, to: str) -> None:
    """Over SMTP, as any program would."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.com", to, "Your order is on its way"
    message.set_content("It left our house this morning.")
    with smtplib.SMTP("127.0.0.1", port, timeout=30) as smtp:
        smtp.send_message(message)


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
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
