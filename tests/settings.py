"""The server's settings for tests: a data folder of the tests' own, no settings of the developer's shell, cheap passwords."""

import os
from pathlib import Path

# A token left in the shell, or the static files that `make run` collected, must not decide a test.
KEPT = ("C4A_TEST_", "C4A_DATABASE_URL", "C4A_REDIS_URL")
for name in [name for name in os.environ if name.startswith("C4A_") and not name.startswith(KEPT)]:
    del os.environ[name]
os.environ["C4A_VAR_DIR"] = str(Path(__file__).resolve().parent.parent / "var" / "test")
if "C4A_REDIS_URL" in os.environ:
    # A Redis database for each xdist worker: one worker's cleared cache must not be another's.
    server, _, first = os.environ["C4A_REDIS_URL"].rpartition("/")
    os.environ["C4A_REDIS_URL"] = f"{server}/{int(first or 0) + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0').removeprefix('gw'))}"
# On PostgreSQL the settings would take themselves for production, where no secret has a default.
os.environ["C4A_PRODUCTION"] = "false"

from c4a_project.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
