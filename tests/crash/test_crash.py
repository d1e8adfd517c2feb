"""The crash matrix as tests: `make prove` runs all of it, `.ci/run` a sample that covers every first moment of the plain action."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from c4a.record.postgres import migrate
from c4a.record.sqlite import SqliteExecutor, prepare_connection
from c4a.record.verify import verify
from tests.crash.agent import SCENARIOS, Place, World, live
from tests.crash.matrix import STATES, TOLD, _forked, _inspected
from tests.crash.server import KillableServer

ROOT = Path(__file__).resolve().parents[2]
PARTS = {"file": ["--file"], "database": ["--database"]}
OVER_REST = sorted(set(SCENARIOS) - {"opening", "approved"})
"""An agent behind a server makes no record and gives no yes."""


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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KillableServer]:
    """A server on SQLite."""
    made = KillableServer(tmp_path)
    made.prepare()
    yield made
    made.kill()


def over_rest(server: KillableServer, *arguments: str) -> list[dict[str, Any]]:
    """Run the matrix with agents of a server that lives; returns its cases."""
    server.start_until(None)
    where = ["--server", server.url, "--key", server.keys["acme"]["key"]]
    scenarios = [word for scenario in OVER_REST for word in ("--scenario", scenario)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.matrix", "--json", *where, *scenarios, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    cases: list[dict[str, Any]] = json.loads(done.stdout)
    assert [case for case in cases if case["wrong"]] == []
    assert findings(server) == []
    return cases


def findings(server: KillableServer) -> list[str]:
    """What `verify` finds in the record of a server on SQLite."""
    connection = sqlite3.connect(server.folder / "c4a.sqlite", isolation_level=None)
    try:
        prepare_connection(connection)
        return [str(one) for one in verify(SqliteExecutor(connection), server.keys["acme"]["organization"])]
    finally:
        connection.close()


@pytest.mark.ci
def test_a_sample_of_agents_killed_over_rest(server: KillableServer) -> None:
    assert len(over_rest(server, "--sample", "1")) >= len(OVER_REST)


@pytest.mark.prove
def test_no_kill_of_an_agent_over_rest_and_of_its_recovery_does_anything_twice(server: KillableServer) -> None:
    assert len(over_rest(server)) > 100


def killed_server_case(server: KillableServer, kill_at: int, folder: Path) -> bool:
    """Let the server die at one moment of one action, start another, let the agent come again; True if it was killed."""
    world = World(folder / f"world-{kill_at}")
    place = Place("server", server.url, server.keys["acme"]["key"])
    run = f"run-{kill_at}"
    server.start_until(kill_at)
    first = _forked(lambda: live("plain", place, run, world, None))
    was_killed = server.has_ended(1.0)
    server.kill()
    server.start_until(None)

    last = _forked(lambda: live("plain", place, run, world, None))
    seen = _forked(lambda: _inspected(place, run))
    server.kill()

    assert last.report.get("told") in TOLD, (kill_at, first.report, last.report, seen.report)
    ending = TOLD[last.report["told"]]
    lines = world.lines()
    told = (kill_at, first.report.get("told"), ending, lines, seen.report)
    assert seen.report["states"] == STATES[ending], told
    assert len(lines) <= 1, told
    assert ending != "done" or lines, told
    assert first.report.get("told") != "done" or ending == "done", told
    assert findings(server) == [], told
    return was_killed


@pytest.mark.ci
@pytest.mark.parametrize("kill_at", [3, 9, 14])
def test_a_server_killed_at_some_statements_of_an_action_loses_and_repeats_nothing(
    server: KillableServer, kill_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the agent's outbox
    server.start_until(None)
    server.kill()

    assert killed_server_case(server, kill_at, tmp_path)


@pytest.mark.prove
def test_a_server_killed_at_any_statement_of_an_action_loses_and_repeats_nothing(
    server: KillableServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server.start_until(None)
    server.kill()

    for kill_at in range(200):
        if not killed_server_case(server, kill_at, tmp_path):
            break

    assert 12 < kill_at < 199
