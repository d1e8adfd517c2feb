"""The crash matrix as tests: `make prove` runs all of it, `.ci/run` a sample that covers every first moment of the plain action."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from c4a.record.postgres import migrate
from tests.crash.agent import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
PARTS = {"file": ["--file"], "database": ["--database"]}


def matrix(kind: str, request: pytest.FixtureRequest, *arguments: str) -> list[dict[str, Any]]:
    """Run the matrix in a process that holds no connection and no thread; returns its cases."""
    where = PARTS[kind]
    if kind == "database":
        address = request.getfixturevalue("record_postgres_url")
        migrate(address)
        where = [*where, address]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.matrix", "--json", *where, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    cases: list[dict[str, Any]] = json.loads(done.stdout)
    assert [case for case in cases if case["wrong"]] == []
    return cases


def endings(cases: list[dict[str, Any]]) -> set[str]:
    """How cases ended."""
    return {case["ending"] for case in cases}


@pytest.mark.ci
@pytest.mark.parametrize("kind", list(PARTS))
def test_case_12_a_process_killed_at_any_statement_of_a_plain_action_leaves_it_done_not_started_or_in_doubt(
    kind: str, request: pytest.FixtureRequest
) -> None:
    cases = matrix(kind, request, "--scenario", "plain", "--single")

    assert endings(cases) == {"done", "in doubt"}
    moments = {case["killed_at"][0].split(": ")[1] for case in cases if case["killed_at"]}
    assert {"in the action, before the deed", "in the action, after the deed"} <= moments
    assert len([moment for moment in moments if "c4a_entry" in moment or "COMMIT" in moment]) >= 4


@pytest.mark.ci
@pytest.mark.parametrize("kind", list(PARTS))
def test_a_sample_of_every_scenario_with_its_recovery_killed_too(kind: str, request: pytest.FixtureRequest) -> None:
    cases = matrix(kind, request, "--sample", "3")

    assert {case["scenario"] for case in cases} >= set(SCENARIOS) - {"opening"}
    assert any(len(case["killed_at"]) == 2 for case in cases)


@pytest.mark.prove
@pytest.mark.parametrize("scenario", list(SCENARIOS))
@pytest.mark.parametrize("kind", list(PARTS))
def test_no_kill_of_a_process_and_of_its_recovery_does_anything_twice(kind: str, scenario: str, request: pytest.FixtureRequest) -> None:
    cases = matrix(kind, request, "--scenario", scenario)

    if scenario == "opening" and kind == "database":
        assert [case["scenario"] for case in cases] == ["verify"]  # a database's tables are made by nobody who opens it
    else:
        assert len(cases) > 20


def test_one_kill_inside_the_action_is_in_doubt_at_once_for_the_next_process(tmp_path: Path) -> None:
    """The one case of the matrix that `make test` runs."""
    code = (
        "import json, sys; from pathlib import Path; from tests.crash.matrix import Record, _run; "
        "record = Record('file', Path(sys.argv[1])); whole = _run(record, 'plain', []); "
        "at = whole.labels.index('in the action, after the deed'); print(json.dumps(vars(_run(record, 'plain', [at], whole.labels).ended)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

    case = json.loads(done.stdout)
    assert (case["ending"], case["wrong"]) == ("in doubt", [])
