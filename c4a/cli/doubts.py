"""`c4a doubt` lists the actions in doubt, `c4a resolve` settles one."""

from __future__ import annotations

import argparse
from typing import Final

from c4a import canonical, keys
from c4a.cli.exits import Exit
from c4a.cli.output import json_option, json_text, shown, time_text
from c4a.cli.records import LIST_LIMIT, add_record, effect_named, note_the_gone, opened
from c4a.record.types import DOUBT_REASONS, MAX_RESULT_BYTES, Effect

ARGUMENTS_SHOWN: Final = 400
KEY_SHOWN: Final = 12


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both commands to the parser."""
    doubt_parser = commands.add_parser("doubt", parents=[json_option()], help="the actions that may or may not have happened")
    add_record(doubt_parser)
    doubt_parser.add_argument("--fail-if-any", action="store_true", help="end with code 3 if something is in doubt")
    doubt_parser.set_defaults(command=doubt)

    parser = commands.add_parser(
        "resolve",
        parents=[json_option()],
        help="settle an action in doubt as done or not done",
        description="Settle an action in doubt. `done`: it happened and never runs again. `not-done`: it did not, and may be tried again.",
    )
    parser.add_argument("record", metavar="RECORD", help="a file, postgresql://… or https://…")
    parser.add_argument("key", metavar="KEY", help="the action's key, or its first characters")
    parser.add_argument("verdict", choices=("done", "not-done"), help="what you found out")
    parser.add_argument("note", metavar="NOTE", help="how you know; kept in the record")
    parser.add_argument(
        "--attempt", type=int, metavar="N", help="the attempt you judge, as `c4a doubt` showed it; refused if another began since"
    )
    parser.add_argument("--result", metavar="JSON", help="for done: what the agent gets as the action's result")
    parser.add_argument(
        "--confirm-lapsed", action="store_true", help="for not-done of a claim that merely lapsed: you made sure it is not running"
    )
    parser.add_argument("--new-outside-key", action="store_true", help="for not-done: the next attempt sends a new idempotency key")
    parser.add_argument("--by", metavar="NAME", help="who judges (default: the system user)")
    parser.set_defaults(command=resolve)


def doubt(options: argparse.Namespace) -> Exit:
    """Print every action in doubt with what is known about it."""
    with opened(options.record) as place:
        note_the_gone(place)
        found = place.record.effects(state="in_doubt", limit=LIST_LIMIT)
    if options.json:
        print(json_text({"in_doubt": found, "complete": len(found) < LIST_LIMIT}))
    elif not found:
        print("Nothing is in doubt.")
    else:
        print("\n\n".join(_evidence(effect) for effect in found))
        if len(found) == LIST_LIMIT:
            print(f"\nThese are the first {LIST_LIMIT}; there may be more.")
        example = f"c4a resolve {shown(place.record.place)} {found[0].key[:KEY_SHOWN]} done 'how you know'"
        print(f"\nFind out what happened, then settle it as done or not-done, for instance:\n    {example}")
    return Exit.IN_DOUBT if found and options.fail_if_any else Exit.OK


def resolve(options: argparse.Namespace) -> Exit:
    """Settle one action, if it is still at the attempt that was judged."""
    result = None if options.result is None else _result_codec(options.result)
    with opened(options.record) as place:
        note_the_gone(place)
        effect = effect_named(place.record, options.key)
        settled = place.record.resolve(
            effect.key,
            "done" if options.verdict == "done" else "not_done",
            attempt=effect.attempt if options.attempt is None else options.attempt,
            note=options.note,
            actor=place.actor if options.by is None else keys.identifier(options.by, "--by"),
            run=effect.run,
            result=result,
            confirm_lapsed=options.confirm_lapsed,
            new_outside_key=options.new_outside_key,
        )
    if options.json:
        print(json_text(settled))
    else:
        print(f"{shown(settled.tool)} ({settled.key[:KEY_SHOWN]}) is settled: {settled.state.replace('_', ' ')}.")
    return Exit.OK


def _evidence(effect: Effect) -> str:
    reason = DOUBT_REASONS.get(effect.reason or "", "nobody knows whether it happened")
    lines = [
        f"{effect.key[:KEY_SHOWN]}  {shown(effect.tool)} in run {shown(effect.run)}, attempt {effect.attempt}, by {shown(effect.actor)}",
        f"    arguments  {shown(effect.arguments, ARGUMENTS_SHOWN) if effect.arguments is not None else 'erased'}",
        f"    in doubt   since {time_text(effect.last_at)}: {reason}",
    ]
    if effect.error:
        lines.append(f"    error      {shown(effect.error, ARGUMENTS_SHOWN)}")
    return "\n".join(lines)


def _result_codec(text: str) -> str:
    """Codec text of a result typed as plain JSON.

    Raises:
        InvalidArguments: it isn't JSON.
    """
    parsed = canonical.parse_json(text, limit_bytes=MAX_RESULT_BYTES, root="--result")
    # The only writer of plain JSON takes an object: what stands between its braces and name is the value's own text.
    return canonical.plain_arguments_codec({"result": parsed})[len('{"result":') : -1]
