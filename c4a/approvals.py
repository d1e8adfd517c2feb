"""The answers a library user gives: `c4a.approve` and `c4a.deny`, for exactly the call that was shown.

C4A's own options are `c4a_by`, `c4a_key`, `c4a_expires_in` and `c4a_reason`; the short `by`, `key`, `expires_in` and
`reason` work too, unless the tool has a parameter of that name.
"""

from __future__ import annotations

import math
from typing import Any, Final

from c4a import coercion, connect, keys, runs
from c4a.calls import Place, Tool, call_from_values
from c4a.effects import tool_of
from c4a.errors import InvalidArguments
from c4a.record.types import Call

_APPROVE_OPTIONS: Final = ("by", "key", "expires_in")
_DENY_OPTIONS: Final = ("by", "reason")


def approve(tool: Any, /, **shown: Any) -> str:
    """Record a yes for one action in the current run: this tool with exactly the arguments that were shown.

    Every argument the call will have must be given (defaults apply); shown JSON is brought to the tool's types first, so
    `"2025-01-01"` shown and `date(2025, 1, 1)` passed are one call. Returns the approval's id.

    Options among the keywords: `c4a_by` (who said yes; the local user without it), `c4a_key` (only the action with this
    explicit key), `c4a_expires_in` (seconds until an unspent yes runs out).

    Raises:
        InvalidArguments: an argument is missing, unknown or unfit, or `tool` isn't decorated with `@c4a.effect`.
        NoCurrentRun: outside `with c4a.run(...)`.
    """
    call, options = shown_call(tool, shown, _APPROVE_OPTIONS)
    connection = connect.connection()
    return connection.record.approve(
        run=call.run,
        tool=call.tool,
        arguments=call.arguments,
        call_digest=call.call_digest,
        explicit_key=call.explicit_key,
        by=_by(options, connection.actor),
        expires_in=expires_in_seconds(options.get("expires_in")),
    )


def deny(tool: Any, /, **shown: Any) -> None:
    """Record a no for one action in the current run: every yes to it that isn't spent yet no longer counts.

    Arguments as for `approve`. Options: `c4a_by`, `c4a_reason` (told to the agent). A no covers the call under
    any key, so it takes no `c4a_key`.

    Raises:
        InvalidArguments, NoCurrentRun: as `approve`.
    """
    call, options = shown_call(tool, shown, _DENY_OPTIONS)
    connection = connect.connection()
    connection.record.deny(
        run=call.run,
        tool=call.tool,
        arguments=call.arguments,
        call_digest=call.call_digest,
        by=_by(options, connection.actor),
        reason=reason_text(options.get("reason", "")),
    )


def shown_call(decorated: Any, shown: dict[str, Any], names: tuple[str, ...]) -> tuple[Call, dict[str, Any]]:
    """The call that was shown, in the current run, and C4A's own options (`names`) taken out of the keywords.

    Raises:
        InvalidArguments, NoCurrentRun: as `approve`.
    """
    tool, receiver = tool_of(decorated)
    options = _take_options(tool, shown, names)
    connection = connect.connection()
    place = Place(connection.record.organization, runs.current_run(), connection.digest_key)
    explicit = keys.explicit_key_text(options["key"]) if "key" in options else None
    return call_from_values(tool, place, shown_values(tool, receiver, shown), explicit), options


def _take_options(tool: Tool, shown: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Take C4A's own options out of the keywords: `c4a_by` unless the tool has that very parameter, `by` unless it may be the tool's."""
    options: dict[str, Any] = {}
    for name in names:
        if f"c4a_{name}" in shown and f"c4a_{name}" not in tool.parameters:
            options[name] = shown.pop(f"c4a_{name}")
            if name in shown and not tool.has(name):
                raise InvalidArguments(f"{tool.name}: {name} and c4a_{name} are the same option: give one of them", parameter=name)
        elif name in shown and not tool.has(name):
            options[name] = shown.pop(name)
    return options


def shown_values(tool: Tool, receiver: Any, shown: dict[str, Any]) -> dict[str, Any]:
    """Parameter name to value of the call that was shown, with defaults, of the types the tool will be called with.

    Raises:
        InvalidArguments: an argument is missing or unknown, or can't be brought to its annotation.
    """
    instance = tool.instance_parameter
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in shown.items():
        if name in tool.parameters and name != tool.var_keyword and name != instance:
            values[name] = _coerced(tool, name, value)
        elif tool.var_keyword is not None and name != instance:
            extra[name] = coercion.coerce(value, tool.hints.get(tool.var_keyword, Any), f"args.{name}")
        elif name == instance and receiver is None:
            values["self"] = keys.explicit_key_text(value)
        else:
            raise InvalidArguments(f"{tool.name} has no parameter {name!r}; it has {list(tool.parameters)}", parameter=f"args.{name}")
    if tool.var_keyword is not None:
        values[tool.var_keyword] = extra
    if tool.var_positional is not None:
        values.setdefault(tool.var_positional, [])
    _fill_defaults(tool, values)
    if receiver is not None:
        tool.name_receiver(values, receiver)
    return values


def _coerced(tool: Tool, name: str, value: Any) -> Any:
    hint = tool.hints.get(name, Any)
    if name != tool.var_positional:
        return coercion.coerce(value, hint, f"args.{name}")
    if not isinstance(value, (list, tuple)):
        raise InvalidArguments(f"{tool.name}: expected a list for *{name}, got {type(value).__qualname__}", parameter=f"args.{name}")
    return [coercion.coerce(item, hint, f"args.{name}[{index}]") for index, item in enumerate(value)]


def _fill_defaults(tool: Tool, values: dict[str, Any]) -> None:
    missing = []
    for name in tool.parameters:
        if name in values or name == tool.instance_parameter:
            continue
        if name in tool.defaults:
            values[name] = tool.defaults[name]
        else:
            missing.append(name)
    if missing:
        raise InvalidArguments(
            f"{tool.name}: a yes or no must name every argument the call will have, missing: {', '.join(missing)}",
            parameter=f"args.{missing[0]}",
        )


def _by(options: dict[str, Any], default: str) -> str:
    return keys.identifier(options["by"], "by") if "by" in options else default


def reason_text(given: Any) -> str:
    """The reason of an answer. Raises `InvalidArguments` if it isn't text."""
    if not isinstance(given, str):
        raise InvalidArguments(f"reason: expected text, got {type(given).__qualname__}", parameter="reason")
    return given


def expires_in_seconds(given: Any) -> float | None:
    """Seconds until a yes runs out. Raises `InvalidArguments` if it isn't a number above 0."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given) or given <= 0:
        raise InvalidArguments(f"expires_in: expected a number of seconds above 0, got {given!r:.200}", parameter="expires_in")
    return float(given)
