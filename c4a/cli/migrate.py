"""`c4a migrate`: make or upgrade the record in a shared PostgreSQL database, once, by whoever owns its tables."""

from __future__ import annotations

import argparse

from c4a.cli.exits import Exit
from c4a.cli.output import json_option, json_text
from c4a.errors import RequestRefused


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("migrate", parents=[json_option()], help="make or upgrade the record in a PostgreSQL database")
    parser.add_argument("address", metavar="ADDRESS", help="postgresql://user@host/database, as a role that may create tables")
    parser.set_defaults(command=migrate)


def migrate(options: argparse.Namespace) -> Exit:
    """Apply the schema steps that are missing; again, it changes nothing."""
    if not options.address.startswith(("postgresql://", "postgres://")):
        raise RequestRefused(
            f"expected a postgresql:// address, got {options.address!r}: files are upgraded by c4a.init(), servers by manage.py migrate"
        )
    from c4a.record import postgres

    steps = postgres.migrate(options.address)
    place = postgres.without_password(options.address)
    if options.json:
        print(json_text({"place": place, "steps": steps}))
    else:
        print(f"{place} is ready." if steps else f"{place} was up to date.")
    return Exit.OK
