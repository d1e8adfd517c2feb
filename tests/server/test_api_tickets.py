"""Questions to people and their answers over REST."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import jsonschema
import pytest
from django.db import connection
from django.urls import get_resolver

import c4a
from accounts import verbs
from accounts.models import Agent
from c4a import connect, keys
from c4a.errors import ApprovalDenied, ApprovalRequired, DecideNotAllowed, TicketRefused, TicketUnknown
from c4a.record.http import ServerRecord
from c4a.record.types import Call, Ticket
from tests.server.callers import call, new_token
from tests.server.cast import ACTOR, Api, Company
from tests.server.live import LiveServer
from tests.server.lossy import lossy
from tickets.tasks import ticket_sweep

CALL: dict[str, Any] = {"run": "r1", "tool": "pay", "arguments": {"amount": 10}}
DIGEST = keys.call_digest("pay", '{"amount":10}')


@pytest.fixture
def decider(acme: Company) -> Api:
    """The REST API as a service of Acme's that decides sees it."""
    return Api(acme.decider)


@pytest.fixture
def mate(acme: Company) -> Api:
    """The REST API as another agent of Acme's sees it."""
    other = Agent.objects.create(organization=acme.organization, name="mate", owner=acme.owner)
    return Api(verbs.key_create(other, {"act", "read"}, actor=ACTOR).token)


def ask(api: Api, **more: Any) -> dict[str, Any]:
    """Pause `pay(amount=10)` unless something else is said."""
    reply = api.post("tickets", {**CALL, **more})
    assert reply.status == 200, reply.text
    return reply.json  # type: ignore[no-any-return]


def together(*works: Callable[[], Any]) -> list[Any]:
    """What each returns or raises, run at the same time."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = []

    def run(work: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            results.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# -- asking and looking -------------------------------------------------------------------------------------------------------


def test_a_question_gets_a_ticket_whose_digest_the_server_computed(agent: Api, acme: Company) -> None:
    asked = ask(agent, why="the invoice is due", ttl_seconds=60)
    assert asked["text"].startswith(f"c4a1.{asked['id']}.")
    assert (asked["state"], asked["call_digest"], asked["why"]) == ("open", DIGEST, "the invoice is due")
    assert asked["asked_by"] == f"agent:{acme.agent.id}"
    assert asked["arguments"] == {"amount": 10}
    assert 55_000_000 < asked["expires_at"] - asked["asked_at"] <= 60_000_000


def test_the_same_action_has_one_ticket_and_another_action_its_own(agent: Api, mate: Api) -> None:
    first = ask(agent)
    assert ask(mate, why="other words")["text"] == first["text"]
    texts = {ask(agent, **more)["text"] for more in ({"arguments": {"amount": 11}}, {"run": "r2"}, {"tool": "refund"}, {"explicit_key": 7})}
    assert len(texts - {first["text"]}) == 4


def test_an_answered_question_is_asked_anew_only_on_demand(agent: Api, decider: Api) -> None:
    first = ask(agent)
    decider.post("denials", {"ticket": first["text"], "reason": "not today"})
    assert (ask(agent)["id"], ask(agent)["state"]) == (first["id"], "denied")
    assert ask(agent, again=True)["number"] == 2


def test_digits_come_back_as_they_were_sent(agent: Api) -> None:
    asked = agent.post("tickets", b'{"run":"r1","tool":"pay","arguments":{"order":2512292042121000001,"amount":123.40}}')
    assert asked.json["arguments"] == {"amount": 123.4, "order": {"$c4a": "number", "v": "2512292042121000001e0"}}
    assert asked.json["call_digest"] == keys.call_digest("pay", asked.json["arguments_text"])
    assert f'"arguments": {asked.json["arguments_text"]}' in asked.text


def test_the_team_sees_the_open_tickets_page_by_page(agent: Api, mate: Api, acme: Company) -> None:
    asked = [ask(agent, run=f"r{number % 2}", arguments={"amount": number}) for number in range(5)]
    agent.post(f"tickets/{asked[0]['id']}/cancel", {})
    for api in (agent, mate, Api(acme.reader)):
        first = api.get("tickets?limit=3").json
        rest = api.get(f"tickets?limit=3&after={first['next']}").json
        assert [one["id"] for one in first["tickets"] + rest["tickets"]] == [one["id"] for one in asked[1:]]
        assert rest["next"] is None
        assert [one["arguments"] for one in api.get("tickets?run=r0").json["tickets"]] == [{"amount": 2}, {"amount": 4}]
        assert api.get(f"tickets/{asked[1]['id']}").json == api.get(f"tickets/{asked[1]['text']}").json == asked[1]


def test_answers_are_as_openapi_says(agent: Api, decider: Api) -> None:
    paths = Api(None).get("openapi.json").json["paths"]

    def schema(path: str, method: str) -> Any:
        return paths[f"/api/v1/{path}"][method]["responses"]["200"]["content"]["application/json"]["schema"]

    asked = ask(agent)
    jsonschema.validate(asked, schema("tickets", "post"))
    jsonschema.validate(agent.get("tickets").json, schema("tickets", "get"))
    jsonschema.validate(decider.post("approvals", {"ticket": asked["id"]}).json, schema("approvals", "post"))
    jsonschema.validate(decider.post("denials", CALL).json, schema("denials", "post"))
    jsonschema.validate(agent.get(f"tickets/{asked['id']}").json, schema("tickets/{ticket}", "get"))


# -- who may ---------------------------------------------------------------------------------------------------------------------


def test_no_agents_key_decides_at_any_address(agent: Api, acme: Company) -> None:
    addresses = [
        str(pattern.pattern)
        for pattern in get_resolver("gateway.urls").url_patterns
        for operation in getattr(getattr(pattern.callback, "cls", None), "operations", {}).values()
        if "decide" in operation.scopes and "act" not in operation.scopes
    ]
    assert sorted(addresses) == ["api/v1/approvals", "api/v1/denials"]
    asked = ask(agent)
    full = Api(verbs.key_create(acme.agent, {"act", "read"}, actor=ACTOR).token)
    for address in addresses:
        for body in ({"ticket": asked["text"]}, CALL):
            reply = full.post(address.removeprefix("api/v1/"), body)
            assert (reply.status, reply.code) == (403, "decide-not-allowed")
    assert agent.get(f"tickets/{asked['id']}").json["state"] == "open"
    assert agent.claim(gated=True).code == "approval-required"


def test_each_key_does_what_its_scopes_say(agent: Api, acme: Company) -> None:
    asked = ask(agent)
    address = f"tickets/{asked['id']}"
    for key in (acme.reader, acme.admin, acme.decider):
        assert Api(key).post("tickets", CALL).code == "scope-refused"
        assert Api(key).post(f"{address}/cancel", {}).code == "scope-refused"
    for key in (acme.reader, acme.admin):
        for address_to_decide in ("approvals", "denials"):
            assert Api(key).post(address_to_decide, {"ticket": asked["text"]}).code == "scope-refused"
    only_admin = Api(verbs.key_create(acme.service, {"admin"}, actor=ACTOR).token)
    for path in ("tickets", address):
        assert only_admin.get(path).code == "scope-refused"
    assert agent.get(address).json["state"] == "open"


def test_anothers_ticket_is_unknown_at_every_address(agent: Api, decider: Api, other: Company) -> None:
    asked = ask(agent)
    stranger, strange_decider = Api(other.key), Api(other.decider)
    for name in (asked["id"], asked["text"]):
        replies = [
            stranger.get(f"tickets/{name}"),
            stranger.post(f"tickets/{name}/cancel", {}),
            strange_decider.post("approvals", {"ticket": name}),
            strange_decider.post("denials", {"ticket": name}),
        ]
        for reply in replies:
            assert (reply.status, reply.code) == (404, "ticket-unknown")
            assert "pay" not in reply.text
    assert stranger.get("tickets").json == {"next": None, "tickets": []}
    assert ask(stranger)["id"] != asked["id"]
    strange_decider.post("approvals", CALL)
    assert agent.claim(gated=True).code == "approval-required"
    assert agent.get(f"tickets/{asked['id']}").json["state"] == "open"


def test_a_forged_or_edited_text_is_refused(agent: Api, decider: Api) -> None:
    asked, second = ask(agent), ask(agent, arguments={"amount": 11})
    _, key, mac = asked["text"].split(".")
    texts = {
        f"c4a1.{key}.{'0' * 64}": (409, "ticket-refused", "changed"),
        f"c4a1.{second['id']}.{mac}": (409, "ticket-refused", "changed"),
        f"c4a1.tkt_{'0' * 24}.{mac}": (404, "ticket-unknown", "unknown"),
        "tkt_" + "0" * 24: (404, "ticket-unknown", "unknown"),
        f"c4a1.{key}": (409, "ticket-refused", "malformed"),
        f"c4a2.{key}.{mac}": (409, "ticket-refused", "malformed"),
        asked["text"].upper(): (409, "ticket-refused", "malformed"),
        "x": (409, "ticket-refused", "malformed"),
    }
    for text, told in texts.items():
        replies = [agent.get(f"tickets/{text}"), agent.post(f"tickets/{text}/cancel", {})]
        replies += [decider.post(path, {"ticket": text}) for path in ("approvals", "denials")]
        for reply in replies:
            assert (reply.status, reply.code, reply.json["fields"]["why"]) == told, text
    assert agent.get("tickets/%00").code == "ticket-refused"
    assert [one["id"] for one in agent.get("tickets").json["tickets"]] == [asked["id"], second["id"]]


def test_a_row_moved_by_hand_is_refused_by_id_and_not_listed(agent: Api, decider: Api) -> None:
    asked = ask(agent)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE c4a_ticket SET run = 'r2' WHERE key = %s", [asked["id"]])
    assert agent.get(f"tickets/{asked['id']}").json["fields"]["why"] == "changed"
    assert decider.post("approvals", {"ticket": asked["id"]}).json["fields"]["why"] == "changed"
    assert agent.get("tickets").json["tickets"] == []


# -- answers --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_ticket", [True, False])
def test_a_yes_by_a_service_lets_exactly_this_action_run_once(agent: Api, decider: Api, acme: Company, by_ticket: bool) -> None:
    asked = ask(agent)
    answer = decider.post("approvals", {"ticket": asked["text"]} if by_ticket else CALL).json
    assert (answer["answer"], answer["by"]) == ("approve", f"service:{acme.service.id}")
    for more in ({"arguments": {"amount": 11}}, {"tool": "refund"}, {"run": "r2"}):
        assert agent.claim(gated=True, **more).code == "approval-required"
    token = new_token()
    grant = agent.claim(token=token, gated=True).json
    assert (grant["outcome"], grant["approval"]) == ("granted", answer["approval"])
    assert agent.claim(gated=True).code == "effect-running"
    agent.post(f"effects/{grant['key']}/complete", {"run": "r1", "token": token, "result": 1})
    assert agent.claim(gated=True).json["outcome"] == "recorded"
    assert agent.claim(gated=True, explicit_key="another").code == "approval-required"


@pytest.mark.parametrize("claimed", [{"approved": True}, {"approval": "yes_1"}, {"ticket": "tkt_1"}, {"gated": "approved"}])
def test_case_28_a_body_that_says_it_is_approved_runs_nothing(agent: Api, decider: Api, claimed: dict[str, Any]) -> None:
    ask(agent)
    assert (agent.claim(**{"gated": True, **claimed}).status, agent.post("tickets", {**CALL, **claimed}).status) == (400, 400)
    assert agent.claim(gated=True).code == "approval-required"
    decider.post("approvals", CALL)
    digest = agent.claim(gated=True, call_digest=DIGEST, arguments={"amount": 11})
    assert (digest.status, digest.code) == (400, "request-refused")
    assert agent.claim(gated=True).json["outcome"] == "granted"


def test_case_40_one_and_one_point_zero_are_one_question(agent: Api, decider: Api) -> None:
    bodies = [b'{"run":"r1","tool":"log","arguments":{"hours":%s}}' % hours for hours in (b"1.0", b"1", b"1e0", b"10e-1")]
    asked = [agent.post("tickets", body).json for body in bodies]
    assert {one["text"] for one in asked} == {asked[0]["text"]}
    decider.post("approvals", {"ticket": asked[0]["text"]})
    assert agent.claim(tool="log", arguments={"hours": 1.0}, gated=True).json["outcome"] == "granted"


def test_a_yes_for_an_explicit_key_covers_that_key_only(agent: Api, decider: Api) -> None:
    decider.post("approvals", {**CALL, "explicit_key": "order-1"})
    assert agent.claim(gated=True).code == "approval-required"
    assert agent.claim(gated=True, explicit_key="order-1").json["outcome"] == "granted"


@pytest.mark.parametrize("by_ticket", [True, False])
def test_the_exact_reason_of_a_no_reaches_the_agents_claim(agent: Api, decider: Api, acme: Company, by_ticket: bool) -> None:
    decider.post("approvals", CALL)
    named = {"ticket": ask(agent)["id"]} if by_ticket else CALL
    answer = decider.post("denials", {**named, "reason": "wrong IBAN é😀"})
    assert answer.json["approval"] is None
    reply = agent.claim(gated=True)
    assert (reply.status, reply.code) == (403, "approval-denied")
    assert (reply.json["fields"]["reason"], reply.json["fields"]["by"]) == ("wrong IBAN é😀", f"service:{acme.service.id}")


def test_case_36_the_first_answer_counts_and_the_same_answer_again_is_the_same_receipt(agent: Api, decider: Api, acme: Company) -> None:
    asked = ask(agent)
    receipt = decider.post("approvals", {"ticket": asked["text"], "reason": "seen"})
    assert decider.post("approvals", {"ticket": asked["id"]}).json == receipt.json
    late = decider.post("denials", {"ticket": asked["text"]})
    assert (late.status, late.code) == (409, "ticket-refused")
    assert (late.json["fields"]["why"], late.json["fields"]["by"]) == ("decided", f"service:{acme.service.id}")
    assert late.json["fields"]["at"] == receipt.json["at"]
    assert agent.post(f"tickets/{asked['id']}/cancel", {}).json["fields"]["why"] == "decided"


def test_a_yes_that_runs_out_is_told_so(agent: Api, decider: Api) -> None:
    decider.post("approvals", {"ticket": ask(agent)["id"], "expires_seconds": 0.01})
    time.sleep(0.05)
    assert agent.claim(gated=True).code == "approval-expired"
    assert ask(agent)["number"] == 2


def test_case_31_silence_is_no_yes_and_nobody_answers_an_expired_ticket(agent: Api, decider: Api) -> None:
    asked = ask(agent, ttl_seconds=0.01)
    time.sleep(0.05)
    assert agent.get(f"tickets/{asked['id']}").json["state"] == "expired"
    assert agent.get("tickets").json["tickets"] == []
    reply = decider.post("approvals", {"ticket": asked["text"]})
    assert (reply.status, reply.code, reply.json["fields"]["why"]) == (409, "ticket-refused", "expired")
    assert agent.claim(gated=True).code == "approval-expired"
    assert ask(agent)["number"] == 2


def test_the_sweep_closes_a_ticket_whose_time_is_over(agent: Api) -> None:
    asked, still = ask(agent, ttl_seconds=0.01), ask(agent, arguments={"amount": 11})
    time.sleep(0.05)
    assert ticket_sweep() == 1
    kinds = [entry["kind"] for entry in agent.get(f"runs/r1/entries?key={asked['id']}").json["entries"]]
    assert kinds == ["ticket.opened", "ticket.expired"]
    assert agent.get(f"tickets/{still['id']}").json["state"] == "open"
    assert ticket_sweep() == 0
    assert agent.claim(gated=True).code == "approval-expired"


def test_a_cancelled_ticket_is_answered_no_more(agent: Api, mate: Api, decider: Api, acme: Company) -> None:
    asked = ask(agent)
    cancelled = agent.post(f"tickets/{asked['text']}/cancel", {"reason": "not needed"}).json
    assert (cancelled["state"], cancelled["decided_by"], cancelled["reason"]) == ("cancelled", f"agent:{acme.agent.id}", "not needed")
    assert mate.post(f"tickets/{asked['id']}/cancel", {}).json == cancelled
    assert decider.post("approvals", {"ticket": asked["text"]}).json["fields"]["why"] == "cancelled"
    assert agent.claim(gated=True).code == "approval-required"
    assert ask(agent)["number"] == 2


def test_a_stopped_run_asks_nothing(agent: Api, admin_key: Api) -> None:
    admin_key.post("runs/r1/freeze", {})
    assert (agent.post("tickets", CALL).status, agent.post("tickets", CALL).code) == (423, "agent-frozen")


# -- bodies ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("tickets", {}, "request-refused"),
        ("tickets", {"run": "r1", "tool": "pay"}, "invalid-arguments"),
        ("tickets", {**CALL, "arguments": [1]}, "request-refused"),
        ("tickets", {**CALL, "arguments_codec": "{}"}, "invalid-arguments"),
        ("tickets", {**CALL, "call_digest": "0" * 64}, "request-refused"),
        ("tickets", {**CALL, "ttl_seconds": 0}, "request-refused"),
        ("tickets", {**CALL, "ttl_seconds": 40_000_000}, "request-refused"),
        ("tickets", {**CALL, "explicit_key": " "}, "request-refused"),
        ("tickets", {**CALL, "by": "me"}, "request-refused"),
        ("approvals", {}, "request-refused"),
        ("approvals", {"run": "r1", "tool": "pay"}, "invalid-arguments"),
        ("approvals", {"run": "r1", "arguments": {}}, "request-refused"),
        ("approvals", {**CALL, "by": "somebody"}, "request-refused"),
        ("approvals", {**CALL, "reason": "why"}, "request-refused"),
        ("approvals", {**CALL, "expires_seconds": 0}, "request-refused"),
        ("approvals", {"ticket": 7}, "request-refused"),
        ("approvals", {"ticket": "a\0"}, "request-refused"),
        ("denials", {}, "request-refused"),
        ("denials", {**CALL, "explicit_key": "order-1"}, "request-refused"),
        ("denials", {**CALL, "call_digest": "0" * 64}, "request-refused"),
    ],
)
def test_a_bad_body_is_refused_and_nothing_is_written(agent: Api, decider: Api, path: str, body: dict[str, Any], code: str) -> None:
    reply = (agent if path == "tickets" else decider).post(path, body)
    assert reply.status in (400, 422), reply.text
    assert reply.code == code
    assert agent.get("runs/r1/entries").json["entries"] == []


@pytest.mark.parametrize("path", ["approvals", "denials"])
def test_a_ticket_and_an_action_at_once_are_refused(agent: Api, decider: Api, path: str) -> None:
    asked = ask(agent)
    reply = decider.post(path, {"ticket": asked["text"], **CALL, "arguments": {"amount": 99}})
    assert (reply.status, reply.code) == (400, "request-refused")
    assert agent.get(f"tickets/{asked['id']}").json["state"] == "open"


# -- real servers, in both shapes ----------------------------------------------------------------------------------------------


@pytest.fixture
def record(server: LiveServer) -> Iterator[ServerRecord]:
    """Acme's agent's record."""
    made = ServerRecord(server.url, server.keys["acme"]["key"])
    yield made
    made.close()


def decided(server: LiveServer, path: str, asked: Ticket, **more: Any) -> httpx.Response:
    """The answer of Acme's deciding service."""
    headers = {"Authorization": f"Bearer {server.keys['acme']['decider']}"}
    return httpx.post(f"{server.url}/api/v1/{path}", json={"ticket": asked.text, **more}, headers=headers, timeout=30)


def test_c_b8_eight_questions_at_once_are_one_ticket(record: ServerRecord) -> None:
    one = call(record, amount=1)
    asked = together(*[lambda: record.pause(one, actor="x")] * 8)
    assert {found.text for found in asked} == {asked[0].text}
    assert [entry.kind for entry in record.entries(run=one.run)] == ["ticket.opened"]


def test_case_50_yes_and_no_at_once_are_one_decision_and_one_run(server: LiveServer, record: ServerRecord) -> None:
    headers = {"Authorization": f"Bearer {server.keys['acme']['key']}"}
    for _ in range(5):
        one = call(record, amount=1)
        asked = record.pause(one, actor="x")
        replies = together(partial(decided, server, "approvals", asked), partial(decided, server, "denials", asked))
        assert sorted(reply.status_code for reply in replies) == [200, 409]

        def claim(one: Call = one) -> int:
            body = {"run": one.run, "tool": one.tool, "arguments_codec": one.arguments_codec, "gated": True, "token": new_token()}
            return httpx.post(f"{server.url}/api/v1/effects/claim", json=body, headers=headers, timeout=30).status_code

        approved = record.ticket(asked.text).state == "approved"
        assert together(claim, claim, claim, claim).count(200) == int(approved)


def test_the_librarys_record_asks_looks_waits_and_takes_back(server: LiveServer, record: ServerRecord) -> None:
    one = call(record, explicit_key="order-1", amount=1)
    asked = record.pause(one, actor="x", why="due", ttl_seconds=60)
    assert asked == record.ticket(asked.text)
    assert (asked.arguments, asked.call_digest, asked.explicit_key) == (one.arguments, one.call_digest, "order-1")
    assert record.tickets(run=one.run) == [asked]
    with pytest.raises(DecideNotAllowed, match="agent's key can never decide"):
        record.decide(asked.text, "approve", by="me")
    record.cancel(asked.text, by="x", reason="no need")
    record.cancel(asked.text, by="x")
    assert record.ticket(asked.text).state == "cancelled"
    with pytest.raises(TicketUnknown):
        record.ticket(f"c4a1.tkt_{'0' * 24}.{'0' * 64}")
    again = record.pause(one, actor="x")
    assert decided(server, "denials", again, reason="no").status_code == 200
    with pytest.raises(TicketRefused) as closed:
        record.cancel(again.text, by="x")
    assert (closed.value.why, closed.value.reason) == ("decided", "no")


def test_case_38_a_flow_that_begins_again_over_a_server_asks_once_and_runs_once(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_current", None)
    c4a.init(server.url, key=server.keys["acme"]["key"])
    paid: list[int] = []

    @c4a.effect(name="shop.transfer", approval=True)
    def transfer(amount: int) -> str:
        paid.append(amount)
        return "sent"

    def flow() -> str:
        c4a.wait(c4a.pause(transfer, amount=7, c4a_why="rent"), timeout=0.2)
        return transfer(amount=7)

    with c4a.run(f"lib-{uuid.uuid4().hex}") as run:
        with pytest.raises(ApprovalRequired):
            flow()
        (asked,) = c4a.tickets(run=run)
        assert asked.why == "rent"
        with pytest.raises(DecideNotAllowed):
            c4a.decide(asked.text, "approve")
        assert decided(server, "approvals", asked).status_code == 200
        assert flow() == flow() == "sent"
        assert c4a.tickets(run=run) == []
    assert paid == [7]
    c4a.current_record().close()


def test_a_call_that_waits_runs_as_soon_as_a_service_says_yes(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_current", None)
    c4a.init(server.events_url, key=server.keys["acme"]["key"])
    record = c4a.current_record()

    @c4a.effect(name="shop.transfer", approval="wait")
    def transfer(amount: int) -> str:
        return f"sent {amount}"

    def answer(run: str) -> None:
        while not (asked := record.tickets(run=run)):
            time.sleep(0.05)
        assert decided(server, "approvals" if run.endswith("yes") else "denials", asked[0], reason="seen").status_code == 200

    for run in (f"{uuid.uuid4().hex}-yes", f"{uuid.uuid4().hex}-no"):
        person = threading.Thread(target=answer, args=(run,))
        person.start()
        with c4a.run(run):
            if run.endswith("yes"):
                assert transfer(amount=7) == "sent 7"
            else:
                with pytest.raises(ApprovalDenied) as no:
                    transfer(amount=7)
                assert no.value.reason == "seen"
        person.join()
    record.close()


def test_a_lost_answer_to_a_question_is_asked_again(server: LiveServer) -> None:
    with lossy(server.url) as proxy:
        record = ServerRecord(proxy.url, server.keys["acme"]["key"])
        one = call(record, amount=1)
        proxy.lose_next(2, "tickets")
        asked = record.pause(one, actor="x")
        assert proxy.lost == 2
        proxy.lose_next(1, "cancel")
        record.cancel(asked.text, by="x")
        assert [entry.kind for entry in record.entries(run=one.run)] == ["ticket.opened", "ticket.cancelled"]
        record.close()


@pytest.mark.parametrize("path", ["approvals", "denials"])
def test_a_wait_ends_as_soon_as_the_ticket_is_answered(server: LiveServer, record: ServerRecord, path: str) -> None:
    asked = record.pause(call(record, amount=1), actor="x")
    waiter = ServerRecord(server.events_url, server.keys["acme"]["key"])
    started = time.monotonic()
    waiter.wait_ticket(asked.text, 0.3)
    assert 0.25 < time.monotonic() - started < 5
    woken: list[float] = []

    def wait() -> None:
        waiter.wait_ticket(asked.text, 30)
        woken.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    answered = time.monotonic()
    assert decided(server, path, asked).status_code == 200
    thread.join()
    assert woken[0] - answered < 3
    waiter.wait_ticket(asked.text, 30)
    assert time.monotonic() - woken[0] < 5
    waiter.close()


def test_a_wait_ends_when_the_tickets_time_is_over(server: LiveServer, record: ServerRecord) -> None:
    asked = record.pause(call(record, amount=1), actor="x", ttl_seconds=0.7)
    headers = {"Authorization": f"Bearer {server.keys['acme']['key']}"}
    started = time.monotonic()
    seen = httpx.get(f"{server.events_url}/api/v1/wait/tickets/{asked.id}?seconds=30", headers=headers, timeout=60).json()
    assert (seen["state"], seen["closed"]) == ("expired", True)
    assert time.monotonic() - started < 5


def test_a_stranger_cannot_wait_for_it(server: LiveServer, record: ServerRecord) -> None:
    asked = record.pause(call(record, amount=1), actor="x")
    forged = f"c4a1.{asked.id}.{'0' * 64}"
    own, strange = server.keys["acme"]["key"], server.keys["other"]["key"]
    for key, name, status, code in (
        (strange, asked.id, 404, "ticket-unknown"),
        (strange, asked.text, 404, "ticket-unknown"),
        (own, forged, 409, "ticket-refused"),
        (own, "x", 409, "ticket-refused"),
        (server.keys["acme"]["admin"], asked.id, 200, None),
        ("nonsense", asked.id, 401, "not-authenticated"),
    ):
        address = f"{server.events_url}/api/v1/wait/tickets/{name}?seconds=0"
        reply = httpx.get(address, headers={"Authorization": f"Bearer {key}"}, timeout=10)
        assert (reply.status_code, reply.json().get("code")) == (status, code)
    reply = httpx.get(
        f"{server.events_url}/api/v1/wait/tickets/{asked.id}?seconds=61", headers={"Authorization": f"Bearer {own}"}, timeout=10
    )
    assert (reply.status_code, reply.json()["code"]) == (400, "request-refused")


def test_idle_waiters_hold_no_database_connection(production_server: LiveServer) -> None:
    import psycopg

    record = ServerRecord(production_server.url, production_server.keys["acme"]["key"])
    asked = record.pause(call(record, amount=1, salt=uuid.uuid4().hex), actor="x")
    headers = {"Authorization": f"Bearer {production_server.keys['acme']['key']}"}
    states: list[str] = []

    def wait() -> None:
        url = f"{production_server.events_url}/api/v1/wait/tickets/{asked.text}?seconds=30"
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
        answered = time.monotonic()
        assert decided(production_server, "approvals", asked).status_code == 200
        for waiter in waiters:
            waiter.join()
        assert time.monotonic() - answered < 10
    assert states == ["approved"] * 40
    record.close()
