"""`c4a verify` compares the record with itself, `c4a rebuild` folds its heads anew."""

from __future__ import annotations

import argparse

from c4a.cli.exits import Exit
from c4a.cli.output import json_option, json_text, shown
from c4a.cli.records import add_record, opened


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both commands to the parser."""
    parser = commands.add_parser(
        "verify", parents=[json_option()], help="check every chain of entries and every head; code 4 if something is wrong"
    )
    add_record(parser)
    parser.set_defaults(command=verify)
    parser = commands.add_parser("rebuild", parents=[json_option()], help="fold all heads anew from the entries")
    add_record(parser)
    parser.set_defaults(command=rebuild)


def verify(options: argparse.Namespace) -> Exit:
    """Print every finding: where, and what is wrong there."""
    with opened(options.record) as place:
        findings = place.record.verify()
    if options.json:
        print(json_text({"findings": findings}))
    elif findings:
        for finding in findings:
            print(f"{shown(finding.key)[:64]} in run {shown(finding.run) or '(none)'}, entry {finding.seq}: {shown(finding.problem)}")
        print(f"{len(findings)} findings. Wrong heads are put right by `c4a rebuild`; entries that were changed are not, restore a backup.")
    else:
        print("The record is as it was written.")
    return Exit.FOUND if findings else Exit.OK


def rebuild(options: argparse.Namespace) -> Exit:
    """Fold the heads anew and say how many there are."""
    with opened(options.record) as place:
        heads = place.record.rebuild()
    print(json_text({"heads": heads}) if options.json else f"{heads} heads were folded anew from the entries.")
    return Exit.OK
