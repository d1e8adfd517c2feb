"""`c4a rotate` gives a record another secret; approvals and tickets signed with the former one stay readable, unless it is compromised."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from c4a import connect, secrets_beside
from c4a.cli.exits import Exit
from c4a.cli.output import json_option, json_text
from c4a.cli.records import Opened, is_file, opened
from c4a.errors import LedgerError, RequestRefused
from c4a.record.verbs import VerbRecord


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "rotate",
        parents=[json_option()],
        help="give a record another secret",
        description="Give a record another secret. A file's is made beside it, and the former one is kept there to read with. "
        "For a database put the new one into C4A_SECRET and the former one into C4A_OLD_SECRETS first.",
    )
    parser.add_argument("record", metavar="RECORD", help="a file or postgresql://…")
    parser.add_argument(
        "--compromised",
        action="store_true",
        help="others may know the former secret: take back every unspent yes and every open ticket",
    )
    parser.add_argument("--by", metavar="NAME", help="who rotates (default: the system user)")
    parser.set_defaults(command=rotate)


def rotate(options: argparse.Namespace) -> Exit:
    """Rotate, and say what is left to do."""
    beside = Path(options.record).parent if is_file(options.record) and not os.environ.get("C4A_SECRET") else None
    if beside is not None:
        with opened(options.record) as place:  # the present secret is the record's, and nothing else is wrong with it
            _verbs(place)
        secrets_beside.secret_replace(beside / connect.SIGNING_FILE, beside / connect.FORMER_FILE)
    with opened(options.record) as place:
        record = _verbs(place)
        if not record.adopt_secret() and not options.compromised:
            raise RequestRefused(
                "C4A_SECRET is this record's present secret: put a new one there, and the present one into C4A_OLD_SECRETS"
            )
        voided = (0, 0)
        if options.compromised:
            voided = record.void_all(by=options.by or place.actor, reason="the secret that signed it is compromised")
    if options.compromised and beside is not None:
        (beside / connect.FORMER_FILE).unlink(missing_ok=True)
    _say(options, voided, beside)
    return Exit.OK


def _say(options: argparse.Namespace, voided: tuple[int, int], beside: Path | None) -> None:
    if options.json:
        print(json_text({"compromised": options.compromised, "approvals_withdrawn": voided[0], "tickets_cancelled": voided[1]}))
        return
    print(f"{options.record} has another secret.")
    if options.compromised:
        print(f"Taken back: {voided[0]} unspent approvals, {voided[1]} open tickets. The former secret counts no more.")
    if beside is None and options.compromised:
        print("Take it out of C4A_OLD_SECRETS everywhere, and start every process again with the new one.")
    elif beside is None:
        print("Give every process both, and leave the former one in C4A_OLD_SECRETS while approvals or tickets made with it are waiting.")
    else:
        print("Start every process that uses this record again.")


def _verbs(place: Opened) -> VerbRecord:
    if not isinstance(place.record, VerbRecord):
        raise LedgerError("a server's secret is rotated where it runs: C4A_RECORD_SECRET and C4A_OLD_RECORD_SECRETS in its settings")
    return place.record
