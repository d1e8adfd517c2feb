"""How events are written: one line each, secrets masked whoever logs them."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime

# API keys, Authorization headers, sign-in links, passwords in addresses, and name=value pairs that name a secret.
SECRETS = re.compile(
    r"(?P<key>c4a_[A-Za-z0-9]{4,16}_)[A-Za-z0-9_-]{8,}"
    r"|(?P<bearer>(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|(?P<link>/sign-in/link/)[A-Za-z0-9_-]{8,}"
    r"|(?P<address>[a-z+]+://[^\s:/@]*:)[^\s/@]+(?=@)"
    r"|(?P<named>(?i:password|secret|token|authorization|api[_-]?key)[\"']?\s*[=:]\s*[\"']?(?:(?i:bearer|basic)\s+)?)[^\s\"',;}]{4,}"
)
STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "request", "server_time"}


def masked(text: str) -> str:
    """`text` with every secret in it replaced by `***`, what names the secret kept."""
    return SECRETS.sub(lambda found: f"{next(group for group in found.groups() if group is not None)}***", text)


class MaskSecrets(logging.Filter):
    """Mask the message after its arguments were put in, and every extra field that is text."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true: the record goes on, without its secrets."""
        record.msg, record.args = masked(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = masked(logging.Formatter().formatException(record.exc_info))
        for name, value in record.__dict__.items():
            if name not in STANDARD_FIELDS and isinstance(value, str):
                record.__dict__[name] = masked(value)
        return True


class JsonLine(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, event, and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a line end."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in STANDARD_FIELDS}
        if record.exc_text or record.exc_info:
            line["error"] = record.exc_text or self.formatException(record.exc_info) if record.exc_info else record.exc_text
        return json.dumps(line, ensure_ascii=False, default=str)
