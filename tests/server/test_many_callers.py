"""Many callers over REST, and a server that is killed: no action runs twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from c4a.errors import EffectRunning, RecordUnreachable
from c4a.record.http import ServerRecord
from c4a.record.types import Grant
from tests.server.callers import call, claimant, new_token
from tests.server.live import ROOT, LiveServer

CALLERS = """
import json, sys, threading, time
from c4a.errors import EffectRunning
from c4a.record.http import ServerRecord
from c4a.record.types import Grant
from tests.server.callers import call, claimant, new_token
url, key, run, threads, effects = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
record = ServerRecord(url, key)
one = call(record, run=run, amount=1)
start, told = threading.Barrier(threads), []
def work():
    token = new_token()
    start.wait()
    try:
        outcome = record.claim(one, claimant(token))
    except EffectRunning:
        told.append("running")
        return
    if isinstance(outcome, Grant):
        with open(effects, "a") as file:
            file.write("ran\\n")
        time.sleep(0.05)
        record.complete(run, one.key, token, result='"paid"')
        told.append("ran")
    else:
        told.append(outcome.result)
all_threads = [threading.Thread(target=work) for _ in range(threads)]
[thread.start() for thread in all_threads]
[thread.join() for thread in all_threads]
print(json.dumps(told))
"""


def test_of_100_callers_from_8_processes_one_runs(server: LiveServer, tmp_path: Path) -> None:
    run, effects = uuid.uuid4().hex, tmp_path / "effects"
    threads = [13, 13, 13, 13, 12, 12, 12, 12]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CALLERS, server.url, server.keys["acme"]["key"], run, str(count), str(effects)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for count in threads
    ]
    told = [word for process in processes for word in json.loads(process.communicate(timeout=120)[0])]
    assert Counter(told)["ran"] == 1
    assert set(told) <= {"ran", "running", '"paid"'}
    assert len(told) == 100
    assert effects.read_text() == "ran\n"


@pytest.fixture(params=["embedded", pytest.param("production", marks=pytest.mark.ci)])
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveServer]:
    """A server that a test may kill."""
    made = LiveServer(tmp_path)
    if request.param == "production":
        made.database_url, made.redis_url = (request.getfixturevalue(name) for name in ("postgres_url", "redis_url"))
    made.prepare()
    made.start()
    yield made
    made.kill()


def test_a_server_killed_again_and_again_loses_and_repeats_nothing(own_server: LiveServer) -> None:
    record = ServerRecord(own_server.url, own_server.keys["acme"]["key"])
    run, ran = uuid.uuid4().hex, Counter[str]()
    stop = threading.Event()

    def act(worker: int) -> None:
        for number in range(200):
            if stop.is_set():
                return
            one, token = call(record, run=run, worker=worker, number=number), new_token()
            if not isinstance(patiently(lambda one=one, token=token: record.claim(one, claimant(token))), Grant):
                continue
            ran[one.key] += 1
            patiently(lambda one=one, token=token: record.complete(one.run, one.key, token, result="1"))

    def patiently(ask: object) -> object:
        while True:
            try:
                return ask()  # type: ignore[operator]
            except RecordUnreachable:
                time.sleep(0.05)

    workers = [threading.Thread(target=act, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(3):
            time.sleep(random.uniform(0.2, 0.8))
            own_server.kill()
            own_server.start()
        time.sleep(0.5)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    effects = record.effects(run=run, limit=10_000)
    assert set(ran.values()) == {1}
    assert {effect.key for effect in effects} == set(ran)
    assert {effect.state for effect in effects} == {"done"}
    entries = record.entries(run=run, limit=100_000)
    assert Counter((entry.key, entry.kind) for entry in entries).most_common(1)[0][1] == 1
    record.close()


def test_a_claim_whose_agent_is_gone_is_in_doubt_within_ten_seconds_of_its_lapse(own_server: LiveServer) -> None:
    beat = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "c4a_project", "worker", "--beat", "--pool", "solo", "--loglevel", "warning"],
        cwd=ROOT,
        env=own_server.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        key = own_server.keys["acme"]["key"]
        body = {"run": "r", "tool": "pay", "token": new_token(), "arguments": {}, "lease_seconds": 1}
        with httpx.Client(base_url=f"{own_server.url}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
            effect = client.post("/effects/claim", json=body).json()["key"]
            # The wait looks and never judges: what ends it is the sweep.
            deadline = time.monotonic() + 40
            state = "running"
            while state == "running" and time.monotonic() < deadline:
                state = client.get(f"/wait/effects/{effect}", params={"seconds": 20}).json()["state"]
            found = client.get(f"/effects/{effect}").json()
        assert (found["state"], found["reason"]) == ("in_doubt", "lapsed")
        assert found["last_at"] - found["lease_until"] < 10_000_000 + START_GRACE_MICROS
    finally:
        beat.terminate()
        beat.wait()


START_GRACE_MICROS = 15_000_000
"""The worker starts beside the claim here; on a busy machine that takes its time."""


def test_idle_waiters_hold_no_database_connection(production_server: LiveServer) -> None:
    import psycopg

    record = ServerRecord(production_server.url, production_server.keys["acme"]["key"])
    one, token = call(record, amount=1), new_token()
    record.claim(one, claimant(token))
    states: list[str] = []
    headers = {"Authorization": f"Bearer {production_server.keys['acme']['key']}"}

    def wait() -> None:
        url = f"{production_server.events_url}/api/v1/wait/effects/{one.key}?seconds=30"
        states.append(httpx.get(url, headers=headers, timeout=60).json()["state"])

    with psycopg.connect(production_server.database_url, autocommit=True) as admin:

        def connections() -> int:
            row = admin.execute(
                "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
            ).fetchone()
            return int(row[0]) if row else 0

        before = connections()
        waiters = [threading.Thread(target=wait) for _ in range(40)]
        for waiter in waiters:
            waiter.start()
        time.sleep(3)
        # One that listens, and what the pool keeps; never one a waiter.
        assert connections() - before <= 10
        settled = time.monotonic()
        record.complete(one.run, one.key, token, result="1")
        for waiter in waiters:
            waiter.join()
        assert time.monotonic() - settled < 10
    assert states == ["done"] * 40
    record.close()


def test_a_stranger_cannot_wait_for_it(server: LiveServer) -> None:
    record = ServerRecord(server.url, server.keys["acme"]["key"])
    one = call(record, amount=1)
    record.claim(one, claimant())
    address = f"{server.events_url}/api/v1/wait/effects/{one.key}"
    for key, status, code in ((server.keys["other"]["key"], 404, "effect-unknown"), ("nonsense", 401, "not-authenticated")):
        reply = httpx.get(address, headers={"Authorization": f"Bearer {key}"}, timeout=10)
        assert (reply.status_code, reply.json()["code"]) == (status, code)
    reply = httpx.get(address, params={"seconds": 61}, headers={"Authorization": f"Bearer {server.keys['acme']['key']}"}, timeout=10)
    assert (reply.status_code, reply.json()["code"]) == (400, "request-refused")
    with pytest.raises(EffectRunning):
        record.claim(one, claimant())
    record.close()


@pytest.mark.parametrize("announced", [True, False])
def test_a_huge_body_is_refused_on_the_wire(server: LiveServer, announced: bool) -> None:
    headers = {"Authorization": f"Bearer {server.keys['acme']['key']}", "Content-Type": "application/json"}
    piece = b" " * 65536

    def pieces() -> object:
        for _ in range(320):
            yield piece

    content = piece * 320 if announced else pieces()
    try:
        reply = httpx.post(f"{server.events_url}/api/v1/effects/claim", content=content, headers=headers, timeout=60)  # type: ignore[arg-type]
    except httpx.WriteError:
        return  # refused before it was all sent
    assert (reply.status_code, reply.json()["code"]) == (413, "body-too-large")
