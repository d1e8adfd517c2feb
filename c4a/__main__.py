"""`python -m c4a`: the command line, where the script `c4a` is not on the path."""

from __future__ import annotations

import sys

from c4a.cli import main

if __name__ == "__main__":
    sys.exit(main())
