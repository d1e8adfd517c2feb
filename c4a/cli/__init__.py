"""The command line `c4a`: look at a record, settle doubts, check it. One file per command or small group of commands.

Exit codes (`c4a.cli.exits.Exit`): 0 all is well; 1 refused or failed, one line on standard error says why; 2 wrong usage;
3 `doubt --fail-if-any` and something is in doubt; 4 `verify` or `doctor` found a problem; 130 Ctrl-C; 141 the reader of
the output went away. With `--json` the answer is one JSON document on standard output and an error one on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import c4a
from c4a.cli import checks, doctor, doubts, migrate, quickstart, rotate, status
from c4a.cli.exits import Exit
from c4a.cli.output import error_line, json_text
from c4a.errors import C4AError

_GROUPS: Final = (quickstart, status, doubts, checks, rotate, doctor, migrate)
_EPILOG: Final = """\
RECORD is a file (without one: .c4a/ledger.sqlite), a postgresql:// address (needs C4A_SECRET) or the https:// address of
a server (needs its key in C4A_KEY).

exit codes: 0 all is well, 1 refused or failed, 2 wrong usage, 3 something is in doubt (doubt --fail-if-any),
4 verify or doctor found a problem, 130 Ctrl-C, 141 the reader of the output went away
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Prints no traceback, whatever the user or the record does."""
    _tolerate_any_encoding()
    try:
        options = _parser().parse_args(argv)
    except SystemExit as left:  # argparse said what is wrong, or printed the help
        return left.code if isinstance(left.code, int) else Exit.USAGE
    try:
        code = int(options.command(options))
        sys.stdout.flush()
    except C4AError as error:
        code = _failed(options.json, error.code, error.message, error.fields)
    except KeyboardInterrupt:
        print("c4a: interrupted", file=sys.stderr)
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        code = Exit.CLOSED
    except OSError as error:
        code = _failed(options.json, "os-error", str(error), {})
    _let_go_of_output(code)
    return int(code)


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole name only, so that a new option never changes what an old command line means."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="c4a",
        description="An AI agent's action runs once, with a human yes bound to exactly the action shown.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"c4a {c4a.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for group in _GROUPS:
        group.add_to(commands)
    return parser


def _failed(as_json: bool, code: str, message: str, fields: dict[str, object]) -> int:
    if as_json:
        print(json_text({"code": code, "detail": message, "fields": fields}), file=sys.stderr)
    else:
        print(error_line(message), file=sys.stderr)
    return Exit.FAILED


def _tolerate_any_encoding() -> None:
    """An action may hold characters that this terminal cannot show: escaped is better than not at all."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _let_go_of_output(code: int) -> None:
    """What could not be written will not be written at exit either; there Python would print a complaint of its own."""
    if code not in (Exit.CLOSED, Exit.FAILED):
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
