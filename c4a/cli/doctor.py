"""`c4a doctor`: what on this machine, and about a record, would keep C4A from holding its promises."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sqlite3
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from c4a import connect
from c4a.cli.exits import Exit
from c4a.cli.output import columns, json_option, json_text, shown
from c4a.cli.records import Opened, is_file, opened
from c4a.errors import C4AError
from c4a.liveness import ALIVE, holder_text, judge
from c4a.record.sqlite import NETWORK_FILESYSTEMS, filesystem_of
from c4a.record.verbs import VerbRecord

SKEW_SECONDS: Final = 2.0
"""A clock that differs more from the database's is worth a word; promises don't rest on it."""
OLDEST_SQLITE: Final = (3, 24, 0)
"""The first with ON CONFLICT DO NOTHING."""


@dataclass(frozen=True)
class Finding:
    """One check: `fail` makes the command end with code 4, `warn` does not."""

    check: str
    state: Literal["ok", "warn", "fail"]
    text: str


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "doctor", parents=[json_option()], help="check this machine and, if there is one, the record; code 4 on a failure"
    )
    parser.add_argument(
        "record", nargs="?", metavar="RECORD", help=f"a file, postgresql://… or https://… ({connect.DEFAULT_PATH}, if it is there)"
    )
    parser.set_defaults(command=doctor)


def doctor(options: argparse.Namespace) -> Exit:
    """Print every check; nothing is made or changed."""
    findings = [*_machine(), *_record(options.record)]
    if options.json:
        print(json_text({"findings": findings}))
    else:
        print(columns([("check", "", "what was found"), *[(one.check, one.state, shown(one.text)) for one in findings]]))
    return Exit.FOUND if any(one.state == "fail" for one in findings) else Exit.OK


def _machine() -> Iterator[Finding]:
    yield Finding("Python", "ok" if sys.version_info >= (3, 10) else "fail", f"{platform.python_version()}, expected 3.10 or newer")
    yield Finding(
        "SQLite", "ok" if sqlite3.sqlite_version_info >= OLDEST_SQLITE else "fail", f"{sqlite3.sqlite_version}, expected 3.24 or newer"
    )
    for module, extra, purpose in (
        ("httpx", "http", "a server"),
        ("psycopg", "postgres", "a shared database"),
        ("cryptography", "sign", "signatures"),
    ):
        there = importlib.util.find_spec(module) is not None
        yield Finding(
            module, "ok", f"installed, for {purpose}" if there else f"not installed; only for {purpose}: pip install 'c4a[{extra}]'"
        )
    yield _processes()


def _processes() -> Finding:
    told = json.loads(holder_text())
    missing = [name for name in ("boot", "start", "pidns") if name not in told]
    if missing or judge(holder_text()) is not ALIVE:
        return Finding(
            "processes",
            "warn",
            "this system does not tell whether a process is gone: a killed action is in doubt only when its lease lapses",
        )
    return Finding("processes", "ok", "a killed action is in doubt at once on this machine, elsewhere when its lease lapses")


def _record(address: str | None) -> Iterator[Finding]:
    if address is None:
        if not Path(connect.DEFAULT_PATH).exists():
            yield Finding("record", "ok", f"none at {connect.DEFAULT_PATH}; c4a.init() makes one there")
            return
        address = connect.DEFAULT_PATH
    if is_file(address) and Path(address).exists():
        yield from _file(Path(address))
    try:
        with opened(address) as place:
            yield Finding("record", "ok", f"{place.record.place} opens, organization {place.record.organization}")
            yield from _clock(place)
    except C4AError as error:
        yield Finding("record", "fail", error.message)


def _file(path: Path) -> Iterator[Finding]:
    kind = filesystem_of(path)
    is_network = kind in NETWORK_FILESYSTEMS
    yield Finding(
        "disk",
        "fail" if is_network else "ok",
        f"{kind or 'unknown'} file system" + (", whose locks can't be trusted" if is_network else ""),
    )
    for one in (path, path.parent / "secret", path.parent / "digest-key"):
        if not one.exists():
            yield Finding("files", "warn", f"{one} is missing: restore it, or name it in the environment (docs/SETTINGS.md)")
        elif stat.S_IMODE(one.stat().st_mode) & 0o077:
            yield Finding("files", "fail", f"{one} can be read by others: chmod 600 {one}")
        else:
            yield Finding("files", "ok", f"{one} is its owner's alone")
    waiting = sum(1 for _ in (path.parent / "outbox").glob("*.json"))
    if waiting:
        yield Finding("outbox", "warn", f"{waiting} outcomes wait to be written; the agent's next c4a.init() tries again")


def _clock(place: Opened) -> Iterator[Finding]:
    import time

    if not isinstance(place.record, VerbRecord) or is_file(place.record.place):
        return
    with place.record.executor() as executor:
        skew = executor.clock() / 1_000_000 - time.time()
    is_off = abs(skew) > SKEW_SECONDS
    yield Finding(
        "clock", "warn" if is_off else "ok", f"differs from the database's by {skew:+.1f} s; leases and expiry go by the database's"
    )
