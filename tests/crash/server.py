"""The server that is killed: serves as `c4a_project.serve` does, and kills itself at the n-th moment of what it writes to the record.

python -m tests.crash.server DESCRIPTOR KILL_AT        (KILL_AT of -1: never)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.crash.moments import Moments
from tests.server.live import LiveServer


@dataclass
class KillableServer(LiveServer):
    """One process on the port of its first start, on SQLite or, with `database_url`, on PostgreSQL."""

    def start_until(self, kill_at: int | None) -> None:
        """Start; the process ends at moment `kill_at` of its writes (None: never)."""
        at = -1 if kill_at is None else kill_at
        self.serve([sys.executable, "-m", "tests.crash.server"], str(at))

    def has_ended(self, seconds: float) -> bool:
        """True if the process ended by itself within `seconds`."""
        import subprocess

        try:
            self.processes[-1].wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def main(descriptor: int, kill_at: int) -> None:
    """Wrap the drivers, then serve until the moment comes."""
    moments = Moments(None if kill_at < 0 else kill_at)
    moments.install()
    from c4a_project import serve

    moments.counting = True  # Django's own statements go through cursors: only the record's are counted
    serve.main(descriptor)


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main(int(sys.argv[1]), int(sys.argv[2]))
