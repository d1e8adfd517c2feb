#!/usr/bin/env python
"""Run a management command of the C4A server."""

import os
import sys


def main() -> None:
    """Hand the command line to Django."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "c4a_project.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as missing:
        raise SystemExit(f"Django is not installed in this Python ({sys.executable}): run `make run`, which makes .venv.") from missing
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
