"""`c4a status`: what a record is and what in it is open."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c4a.cli.exits import Exit
from c4a.cli.output import json_option, json_text, shown
from c4a.cli.records import LIST_LIMIT, Opened, add_record, is_file, note_the_gone, opened
from c4a.record import reads
from c4a.record.verbs import VerbRecord

if TYPE_CHECKING:
    from c4a.record.types import State


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("status", parents=[json_option()], help="what the record is, and what is running and in doubt")
    add_record(parser)
    parser.set_defaults(command=status)


def status(options: argparse.Namespace) -> Exit:
    """Print place, organization and open actions."""
    with opened(options.record) as place:
        note_the_gone(place)
        facts = _facts(options.record, place)
    if options.json:
        print(json_text(facts))
        return Exit.OK
    print(f"record        {shown(str(facts['place']))}")
    print(f"organization  {facts['organization']}")
    print(f"running       {facts['running']}")
    print(f"in doubt      {facts['in_doubt']}" + (" (see `c4a doubt`)" if facts["in_doubt"] else ""))
    if facts.get("outbox"):
        print(f"outbox        {facts['outbox']} outcomes wait to be written")
    return Exit.OK


def _facts(address: str, place: Opened) -> dict[str, Any]:
    record = place.record
    facts: dict[str, Any] = {"place": record.place, "organization": record.organization}
    if isinstance(record, VerbRecord):
        with record.executor() as executor:
            facts |= reads.counts(executor, record.organization)
    else:
        facts |= {"running": _counted(place, "running"), "in_doubt": _counted(place, "in_doubt")}
    if is_file(address):
        facts["outbox"] = sum(1 for _ in (Path(address).parent / "outbox").glob("*.json"))
    return facts


def _counted(place: Opened, state: State) -> int:
    """At most `LIST_LIMIT`: a server lists, it does not count."""
    return len(place.record.effects(state=state, limit=LIST_LIMIT))
