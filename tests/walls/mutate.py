"""Take every guard out once and see a test fail: `python -m tests.walls.mutate [--sample N] [--seed N] [--only WORD]`.

A guard whose tests still pass without it is a promise without a wall. Rows live in `tests/walls/mutations.py`. The tree is
copied; in the copy the named tests pass first (the control: the same run with nothing taken out), then each guard is taken
out alone, its tests must fail, and it is put back.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import services
from tests.walls.mutations import MUTATIONS, Mutation

ROOT: Final = Path(__file__).resolve().parent.parent.parent
LEFT_OUT: Final = (".git", ".venv*", "var", "build", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis", "*.egg-info")
SECONDS: Final = 180.0
PASSED, FAILED = 0, 1  # pytest's exit codes; any other means that the tests did not run


@dataclass(frozen=True)
class Outcome:
    """What became of one mutation; `problem` is None if its tests failed as they must."""

    mutation: Mutation
    problem: str | None
    seconds: float


def main(arguments: Sequence[str] = ()) -> int:
    """Run the mutations and print one line each; 1 if the absence of a guard went unnoticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.walls.mutate")
    parser.add_argument("--sample", type=int, help="only so many, drawn by --seed")
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86400, help="(default: the day, so that every guard has its turn)")
    parser.add_argument("--only", default="", help="only rows whose guard contains this word")
    options = parser.parse_args(arguments)
    chosen = [row for row in MUTATIONS if options.only in row.guard]
    if options.sample is not None and options.sample < len(chosen):
        chosen = random.Random(options.seed).sample(chosen, options.sample)
        print(f"{len(chosen)} of {len(MUTATIONS)} guards, seed {options.seed}")
    outcomes = mutations_run(chosen)
    for outcome in outcomes:
        print(f"{'noticed' if outcome.problem is None else 'NOT NOTICED'}  {outcome.mutation.guard} ({outcome.seconds:.0f} s)")
        if outcome.problem is not None:
            print(f"    {outcome.mutation.file}: {outcome.problem}")
    bad = sum(outcome.problem is not None for outcome in outcomes)
    print(f"{len(outcomes)} guards taken out, {len(outcomes) - bad} noticed by a test.")
    return 1 if bad else 0


def mutations_run(rows: Sequence[Mutation]) -> list[Outcome]:
    """Copy the tree, run the control, then each mutation.

    Raises:
        SystemExit: the named tests fail with nothing taken out, so their failing would prove nothing.
    """
    folder = services.run_folder_make()
    environment = {
        **os.environ,
        services.DATABASE_VARIABLE: services.postgres_server_url(folder),
        services.REDIS_VARIABLE: services.redis_server_url(folder),
        "PYTHONDONTWRITEBYTECODE": "1",  # else a file mutated twice within a second could be read from the older bytecode
    }
    environment.pop(services.FOLDER_VARIABLE, None)
    with tempfile.TemporaryDirectory(prefix="c4a-mutate-") as place:
        copy = Path(place) / "tree"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        environment["PYTHONPATH"] = str(copy)
        named = sorted({test for row in rows for test in row.tests})
        code, text = _tests_run(copy, named, environment)
        if code != PASSED:
            raise SystemExit(f"The named tests fail with nothing taken out (pytest ended with {code}):\n{text}")
        return [_mutation_run(copy, row, environment) for row in rows]


def _mutation_run(copy: Path, row: Mutation, environment: dict[str, str]) -> Outcome:
    began = time.monotonic()
    path = copy / row.file
    whole = path.read_text()
    try:
        path.write_text(row.applied_to(whole))
        code, text = _tests_run(copy, row.tests, environment)
    finally:
        path.write_text(whole)
    problem = None if code == FAILED else f"pytest ended with {code}, expected {FAILED}:\n{text[-1500:]}"
    return Outcome(row, problem, time.monotonic() - began)


def _tests_run(copy: Path, tests: Sequence[str], environment: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "--quiet", "--exitfirst", "--no-header", "-m", "", *tests]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return -1, f"no end within {SECONDS:.0f} s"
    return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
