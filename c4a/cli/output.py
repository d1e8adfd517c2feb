"""What commands print: escaped texts, times, columns, JSON. An agent's texts must not be able to play with the terminal."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from typing import Any


def shown(text: str, limit: int | None = None) -> str:
    """The text on one line with everything invisible escaped, cut to `limit` characters with its length said."""
    safe = "".join(character if character.isprintable() else _escaped(character) for character in text)
    if limit is None or len(safe) <= limit:
        return safe
    return f"{safe[:limit]}… ({len(safe)} characters)"


def time_text(micros: int) -> str:
    """A record's time (µs since 1970) as `2026-01-31 12:00:00 UTC`."""
    return datetime.fromtimestamp(micros // 1_000_000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns; the first row is the heading."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def json_text(value: object) -> str:
    """JSON in ASCII; dataclasses become objects."""
    return json.dumps(value, default=_plain, indent=2)


def error_line(message: str) -> str:
    """One line, whatever the message holds."""
    return f"c4a: {shown(' '.join(message.split()))}"


def json_option() -> argparse.ArgumentParser:
    """The parent parser of every command."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--json", action="store_true", help="print one JSON document")
    return parent


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
