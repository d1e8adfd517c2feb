"""The library's record behind a server: the same verbs, the same errors, and lost answers."""

from __future__ import annotations

import datetime
import os
import threading
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import c4a
from c4a import connect, errors
from c4a.record.http import ServerRecord
from c4a.record.types import Claimant, Grant, Recorded
from tests.server.callers import call, claimant, new_token
from tests.server.live import LiveServer, free_port
from tests.server.lossy import LossyProxy, lossy


@pytest.fixture
def record(server: LiveServer) -> Iterator[ServerRecord]:
    """Acme's agent's record."""
    made = ServerRecord(server.url, server.keys["acme"]["key"])
    yield made
    made.close()


@pytest.fixture
def admin(server: LiveServer) -> Iterator[ServerRecord]:
    """Acme's operator's record."""
    made = ServerRecord(server.url, server.keys["acme"]["admin"])
    yield made
    made.close()


@pytest.fixture
def proxy(server: LiveServer) -> Iterator[LossyProxy]:
    """A proxy that loses answers."""
    with lossy(server.url) as made:
        yield made


def test_it_knows_its_organization_and_digest_key(server: LiveServer, record: ServerRecord, admin: ServerRecord) -> None:
    assert record.organization == server.keys["acme"]["organization"]
    assert len(record.digest_key or b"") == 32
    assert admin.digest_key is None


def test_an_action_runs_once(record: ServerRecord) -> None:
    one, token = call(record, amount=10), new_token()
    grant = record.claim(one, claimant(token))
    assert grant == Grant(run=one.run, key=one.key, attempt=1, epoch=0, approval=None)
    with pytest.raises(errors.EffectRunning) as running:
        record.claim(one, claimant())
    assert running.value.lease_until > 0
    assert record.heartbeat([(one.run, one.key, token), (one.run, "b" * 64, token)], 30.0) == ["b" * 64]
    assert record.complete(one.run, one.key, token, result='{"id":1}') == "done"
    again = record.claim(one, claimant())
    assert isinstance(again, Recorded)
    assert again.result == '{"id":1}'
    effect = record.effect(one.key, one.run)
    assert effect is not None
    assert (effect.state, effect.arguments, effect.result) == ("done", '{"amount":10}', '{"id":1}')
    assert [entry.kind for entry in record.entries(run=one.run)] == ["effect.running", "effect.done"]
    assert [found.key for found in record.effects(run=one.run)] == [one.key]
    assert record.effect("c" * 64) is None


def test_more_claims_than_one_request_may_name_are_all_kept_alive(record: ServerRecord) -> None:
    one, token = call(record, amount=1), new_token()
    record.claim(one, claimant(token))
    nobodys = [(one.run, f"{number:064x}", token) for number in range(1000)]

    lost = record.heartbeat([*nobodys, (one.run, one.key, token)], 3000.0)

    assert lost == [key for _, key, _ in nobodys]
    head = record.effect(one.key, one.run)
    assert head is not None
    assert head.lease_until - head.first_at > 2_000_000_000


@pytest.mark.parametrize(("lease", "patience"), [(15.0, 5.0), (1.0, 1.0), (3600.0, 30.0)])
def test_a_heartbeat_waits_no_longer_than_a_lease_bears(
    record: ServerRecord, monkeypatch: pytest.MonkeyPatch, lease: float, patience: float
) -> None:
    waited: list[float] = []

    def request(method: str, path: str, *, body: Any, read_seconds: float) -> Any:
        waited.append(read_seconds)
        return {"lost": []}

    monkeypatch.setattr(record, "_request", request)
    record.heartbeat([("r", "a" * 64, new_token())], lease)
    assert waited == [patience]


def test_an_agent_that_may_only_act_can_look_up_what_happened(server: LiveServer) -> None:
    actor = ServerRecord(server.url, server.keys["acme"]["actor"])
    one, token, asker = call(actor, amount=1), new_token(), new_token()
    actor.claim(one, claimant(token))
    actor.fail(one.run, one.key, token, error="TimeoutError")

    actor.ask(one.run, one.key, attempt=1, token=asker, actor="", after_seconds=0, lease_seconds=15)
    head = actor.effect(one.key, one.run)
    actor.answer(one.run, one.key, asker, verdict="done", result='"found"', actor="")

    assert head is not None
    assert head.epoch == 0
    assert isinstance(actor.claim(one, claimant()), Recorded)
    with pytest.raises(errors.ScopeRefused):
        actor.effects()
    actor.close()


def test_typed_arguments_and_exact_numbers_survive(record: ServerRecord) -> None:
    one = call(record, when=datetime.date(2025, 1, 1), amount=Decimal("123.40"), n=2512292042121000001, names={"b", "a"}, raw=b"\x00")
    record.claim(one, claimant())
    effect = record.effect(one.key, one.run)
    assert effect is not None
    assert (effect.arguments, effect.arguments_codec) == (one.arguments, one.arguments_codec)


def test_an_excluded_parameter_and_an_explicit_key_go_through(record: ServerRecord) -> None:
    first = call(record, run="x" + uuid.uuid4().hex, exclude=("trace",), amount=1, trace="a")
    assert isinstance(record.claim(first, claimant()), Grant)
    second = call(record, run=first.run, exclude=("trace",), amount=1, trace="b")
    with pytest.raises(errors.EffectRunning):
        record.claim(second, claimant())
    order = call(record, explicit_key="order-1", amount=1)
    assert isinstance(record.claim(order, claimant()), Grant)
    with pytest.raises(errors.KeyConflict) as conflict:
        record.claim(call(record, run=order.run, explicit_key="order-1", amount=2), claimant())
    assert conflict.value.recorded_arguments == '{"amount":1}'


def test_doubt_and_its_settlements(record: ServerRecord, admin: ServerRecord) -> None:
    one, token = call(record, amount=1), new_token()
    record.claim(one, claimant(token))
    assert record.fail(one.run, one.key, token, error="boom") == "in_doubt"
    with pytest.raises(errors.EffectInDoubt) as doubt:
        record.claim(one, claimant())
    assert (doubt.value.reason, doubt.value.error, doubt.value.body_ended) == ("raised", "boom", True)
    asker = new_token()
    record.ask(one.run, one.key, attempt=1, token=asker, actor="a", after_seconds=0, lease_seconds=15)
    record.answer(one.run, one.key, asker, verdict="not_done", actor="a")
    again = new_token()
    assert record.claim(one, claimant(again)) == Grant(one.run, one.key, 2, 0, None)
    record.fail(one.run, one.key, again, error="boom")
    token = new_token()
    assert record.reclaim(one, claimant(token), attempt=2, window_seconds=600).attempt == 3
    assert record.release(one.run, one.key, token) == "not_done"
    record.claim(one, claimant(token := new_token()))
    record.fail(one.run, one.key, token, error="boom")
    resolved = admin.resolve(one.key, "done", attempt=4, note="seen", actor="x", run=one.run, result='"tx"')
    assert (resolved.state, resolved.result) == ("done", '"tx"')
    with pytest.raises(errors.StaleVerdict):
        admin.resolve(one.key, "done", attempt=4, note="seen", actor="x", run=one.run)
    with pytest.raises(errors.ScopeRefused):
        record.resolve(one.key, "done", attempt=4, note="seen", actor="x")


def test_a_dead_process_is_declared(record: ServerRecord) -> None:
    one = call(record, amount=1)
    record.claim(one, Claimant(token=new_token(), actor="x", holder="boot:7"))
    record.declare_dead(one.run, one.key, attempt=1, holder="boot:7", actor="x")
    effect = record.effect(one.key)
    assert effect is not None
    assert (effect.state, effect.reason, effect.holder) == ("in_doubt", "dead", "boot:7")


def test_a_run_and_an_agent_are_stopped(server: LiveServer, record: ServerRecord, admin: ServerRecord) -> None:
    one = call(record, run=f"../{uuid.uuid4().hex}/ü ?", amount=1)
    admin.freeze(run=one.run, by="x", note="wait")
    with pytest.raises(errors.AgentFrozen):
        record.claim(one, claimant())
    admin.thaw(run=one.run, by="x")
    admin.freeze(agent=f"agent:{server.keys['acme']['agent']}", by="x")
    with pytest.raises(errors.AgentFrozen):
        record.claim(one, claimant())
    admin.thaw(agent=server.keys["acme"]["agent"], by="x")
    assert isinstance(record.claim(one, claimant()), Grant)


def test_an_agent_can_never_decide(record: ServerRecord) -> None:
    for decide in (record.approve, record.deny):
        given: dict[str, Any] = {"run": "r", "tool": "t", "arguments": "{}", "call_digest": "d" * 64, "by": "me"}
        if decide == record.approve:
            given["explicit_key"] = None
        with pytest.raises(errors.DecideNotAllowed):
            decide(**given)


def test_waiting_ends_when_the_action_is_settled(server: LiveServer, record: ServerRecord) -> None:
    one, token = call(record, amount=1), new_token()
    record.claim(one, claimant(token))
    waiter = ServerRecord(server.events_url, server.keys["acme"]["key"])
    started = time.monotonic()
    waiter.wait(one.run, one.key, 0.3)
    assert 0.25 < time.monotonic() - started < 5
    done_at: list[float] = []

    def settle() -> None:
        time.sleep(0.5)
        record.complete(one.run, one.key, token, result="1")
        done_at.append(time.monotonic())

    thread = threading.Thread(target=settle)
    thread.start()
    waiter.wait(one.run, one.key, 30)
    woken = time.monotonic()
    thread.join()
    assert woken - done_at[0] < 3
    waiter.wait(one.run, one.key, 30)
    waiter.wait("nobody", "d" * 64, 30)
    assert time.monotonic() - woken < 10
    waiter.close()


def test_a_lost_answer_is_asked_again_with_the_same_token(server: LiveServer, proxy: LossyProxy) -> None:
    record = ServerRecord(proxy.url, server.keys["acme"]["key"])
    one, token = call(record, amount=1), new_token()
    proxy.lose_next(2, "claim")
    assert isinstance(record.claim(one, claimant(token)), Grant)
    assert proxy.lost == 2
    proxy.lose_next(1, "complete")
    assert record.complete(one.run, one.key, token, result="1") in ("done", "repeated")
    assert [entry.kind for entry in record.entries(run=one.run)] == ["effect.running", "effect.done"]
    record.close()


def test_a_lost_answer_to_a_verdict_is_told_by_the_state(server: LiveServer, proxy: LossyProxy) -> None:
    record, admin = (ServerRecord(proxy.url, server.keys["acme"][key]) for key in ("key", "admin"))
    one, token = call(record, amount=1), new_token()
    record.claim(one, claimant(token))
    record.fail(one.run, one.key, token, error="x")
    proxy.lose_next(1, "resolve")
    assert admin.resolve(one.key, "not_done", attempt=1, note="n", actor="x", run=one.run).state == "not_done"
    record.claim(one, claimant(token := new_token()))
    record.fail(one.run, one.key, token, error="x")
    record.ask(one.run, one.key, attempt=2, token=(asker := new_token()), actor="x", after_seconds=0, lease_seconds=15)
    proxy.lose_next(1, "answer")
    record.answer(one.run, one.key, asker, verdict="done", result="5", actor="x")
    assert isinstance(record.claim(one, claimant()), Recorded)
    record.close()
    admin.close()


def test_every_answer_lost_is_unreachable_and_the_next_call_settles(server: LiveServer, proxy: LossyProxy) -> None:
    record = ServerRecord(proxy.url, server.keys["acme"]["key"])
    one, token = call(record, amount=1), new_token()
    proxy.lose_next(99, "claim")
    with pytest.raises(errors.RecordUnreachable):
        record.claim(one, claimant(token))
    proxy.lose_next(0, "")
    assert record.claim(one, claimant(token)) == Grant(one.run, one.key, 1, 0, None)
    record.close()


def test_a_server_that_is_away_is_unreachable() -> None:
    with pytest.raises(errors.RecordUnreachable) as caught:
        ServerRecord(f"http://127.0.0.1:{free_port()}", "c4a_abcdefgh_" + "x" * 43)
    assert caught.value.status == 503


def test_a_wrong_key_or_address_is_told_at_once(server: LiveServer) -> None:
    with pytest.raises(errors.NotAuthenticated):
        ServerRecord(server.url, "c4a_abcdefgh_" + "x" * 43)
    for url, key in (
        ("ftp://x", "c4a_abcdefgh"),
        ("https://", "c4a_abcdefgh"),
        ("https://u:p@host", "c4a_abcdefgh"),
        ("https://host", "nonsense"),
        ("https://host", "c4a_abcdefgh\r\nX: y"),
    ):
        with pytest.raises(errors.InvalidArguments):
            ServerRecord(url, key)
    with pytest.raises(errors.LedgerError, match="check the address"):
        ServerRecord(f"{server.url}/sign-in/nothing?".rstrip("?"), server.keys["acme"]["key"])


def test_no_key_is_shown(record: ServerRecord, server: LiveServer) -> None:
    assert server.keys["acme"]["key"] not in repr(record) + record.place + repr(vars(record).get("_client"))


def test_a_forked_child_has_its_own_connections(record: ServerRecord) -> None:
    record.effects(limit=1)
    one = call(record, amount=1)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            record.claim(one, claimant())
            os.write(writing, b"granted")
        except BaseException as error:  # noqa: BLE001  (the parent is told)
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"granted"
    os.waitpid(child, 0)
    with pytest.raises(errors.EffectRunning):
        record.claim(one, claimant())


def test_many_threads_share_one_record(record: ServerRecord) -> None:
    one = call(record, amount=1)
    outcomes: list[object] = []

    def work() -> None:
        try:
            outcomes.append(record.claim(one, claimant()))
        except errors.EffectRunning as error:
            outcomes.append(error)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 20
    assert sum(isinstance(outcome, Grant) for outcome in outcomes) == 1


def test_the_librarys_effects_run_over_a_server(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_current", None)
    c4a.init(server.url, key=server.keys["acme"]["key"])
    runs: list[int] = []

    @c4a.effect(name="shop.charge")
    def charge(amount: int) -> dict[str, int]:
        runs.append(amount)
        return {"charged": amount}

    with c4a.run(f"lib-{uuid.uuid4().hex}"):
        assert charge(5) == charge(5) == {"charged": 5}
    assert runs == [5]
    c4a.current_record().close()
