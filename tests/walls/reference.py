"""Reference pages made from the code, so that they stay true: `python -m tests.walls.reference` writes docs/ERRORS.md."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final

from c4a import errors

ROOT: Final = Path(__file__).resolve().parent.parent.parent
ERRORS_PAGE: Final = ROOT / "docs" / "ERRORS.md"

READING: Final = ("c4a", "c4a_project", "accounts", "ledger", "gateway", "approvals", "tickets")
_READ: Final = re.compile(r"""(?:env_\w+|embedded_secret|environ\.get|getenv|environ|given_secret)[\[(](?:\w+,)?\s*"(C4A_\w+)\"""")

_HEAD: Final = """# Errors

Everything C4A raises is a `c4a.errors.C4AError`. Over REST the same error is a problem document (RFC 9457,
`application/problem+json`) with the stable `code`, the HTTP status and the typed fields; the client library raises the same
exception again. Codes never change their meaning. This page is made from `c4a/errors.py` by `python -m tests.walls.reference`.

"""


def errors_page() -> str:
    """The whole text of docs/ERRORS.md."""
    tree = (errors.__doc__ or "").split("\n\n")[1]
    sections = [_section(cls) for _, cls in sorted(errors.error_classes().items()) if cls.__module__ == errors.__name__]
    return _HEAD + f"```\n{tree}\n```\n\n" + "\n".join(sections)


def setting_names() -> set[str]:
    """Every environment variable that the library and the server read (`NAME_FILE` counts as `NAME`)."""
    texts = [path.read_text() for folder in READING for path in (ROOT / folder).rglob("*.py")]
    return {name for text in texts for name in _READ.findall(text)}


def _section(cls: type[errors.C4AError]) -> str:
    kinds = [base.__name__ for base in cls.__mro__[1:] if base is not Exception and base is not BaseException and base is not object]
    kind = f" A kind of {', '.join(f'`{name}`' for name in kinds)}." if kinds else ""
    return f"## `{cls.code}`\n\n`{cls.__name__}`, HTTP status {cls.status}.{kind}\n\n{inspect.getdoc(cls)}\n"


if __name__ == "__main__":
    ERRORS_PAGE.parent.mkdir(exist_ok=True)
    ERRORS_PAGE.write_text(errors_page())
