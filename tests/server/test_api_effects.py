"""The life of an effect over REST."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import quote

import pytest

from accounts import verbs
from accounts.models import Agent
from c4a import canonical, keys
from c4a.record.dialects import Statement
from ledger.executor import executor_default
from ledger.tasks import lease_sweep
from tests.server.callers import new_token
from tests.server.cast import ACTOR, Api, Company


def test_it_grants_a_claim_and_repeats_the_recorded_result(agent: Api) -> None:
    token = new_token()
    grant = agent.claim(token=token)
    key = grant.json["key"]
    assert grant.json["outcome"] == "granted"
    assert grant.json["outside_key"] == keys.outside_key(key, 0)
    done = agent.post(f"effects/{key}/complete", {"run": "r1", "token": token, "result": {"id": 7}})
    assert done.json == {"key": key, "outcome": "done"}
    again = agent.claim()
    assert (again.json["outcome"], again.json["result"], again.json["result_codec"]) == ("recorded", {"id": 7}, '{"id":7}')


def test_the_same_token_gets_the_same_grant(agent: Api) -> None:
    token = new_token()
    assert agent.claim(token=token).json == agent.claim(token=token).json


def test_another_caller_is_told_it_is_running(agent: Api, acme: Company) -> None:
    agent.claim()
    reply = agent.claim()
    assert (reply.status, reply.code) == (409, "effect-running")
    assert reply.json["fields"]["actor"] == f"agent:{acme.agent.id}"


def test_a_failure_is_in_doubt_and_a_proved_one_may_be_tried_again(agent: Api) -> None:
    key = agent.doubt()
    reply = agent.claim()
    assert (reply.status, reply.code) == (409, "effect-in-doubt")
    assert reply.json["fields"]["key"] == key
    token = new_token()
    other = agent.claim("r2", token=token).json["key"]
    agent.post(f"effects/{other}/fail", {"run": "r2", "token": token, "error": "refused", "nothing_happened": True})
    assert agent.claim("r2").json["attempt"] == 2


def test_a_released_claim_is_free_again(agent: Api) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    assert agent.post(f"effects/{key}/release", {"run": "r1", "token": token}).json["outcome"] == "not_done"
    assert agent.claim().json["attempt"] == 2


def test_a_stranger_to_the_claim_cannot_settle_it(agent: Api) -> None:
    key = agent.claim().json["key"]
    for verb, more in (("complete", {"result": 1}), ("fail", {"error": "x"}), ("release", {})):
        reply = agent.post(f"effects/{key}/{verb}", {"run": "r1", "token": new_token(), **more})
        assert (reply.status, reply.code) == (409, "claim-lost")


def test_heartbeats_extend_and_name_the_lost(agent: Api) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    before = agent.get(f"effects/{key}").json["lease_until"]
    assert agent.post(f"effects/{key}/heartbeat", {"run": "r1", "token": token, "lease_seconds": 60}).json == {"lost": []}
    assert agent.get(f"effects/{key}").json["lease_until"] > before + 40_000_000
    claims = [{"run": "r1", "key": key, "token": token}, {"run": "r1", "key": "b" * 64, "token": token}]
    assert agent.post("effects/heartbeat", {"claims": claims}).json == {"lost": ["b" * 64]}


def test_an_operator_resolves_a_doubt_with_a_result(agent: Api, admin_key: Api, acme: Company) -> None:
    key = agent.doubt()
    body = {"verdict": "done", "attempt": 1, "note": "seen at the bank", "result": {"id": "tx_1"}}
    resolved = admin_key.post(f"effects/{key}/resolve", body)
    assert (resolved.status, resolved.json["state"]) == (200, "done")
    assert agent.claim().json["result"] == {"id": "tx_1"}
    entries = agent.get("runs/r1/entries").json["entries"]
    assert entries[-1]["actor"] == f"service:{acme.service.id}"
    assert admin_key.post(f"effects/{key}/resolve", body).code == "stale-verdict"


def test_an_operator_resolves_a_doubt_as_not_done_with_a_new_outside_key(agent: Api, admin_key: Api) -> None:
    key = agent.doubt()
    body = {"verdict": "not_done", "attempt": 1, "note": "not there", "new_outside_key": True}
    assert admin_key.post(f"effects/{key}/resolve", body).json["state"] == "not_done"
    grant = agent.claim().json
    assert (grant["attempt"], grant["epoch"]) == (2, 1)
    assert grant["outside_key"] == keys.outside_key(key, 1)


def test_a_running_effect_cannot_be_resolved(agent: Api, admin_key: Api) -> None:
    key = agent.claim().json["key"]
    assert admin_key.post(f"effects/{key}/resolve", {"verdict": "done", "attempt": 1, "note": "x"}).code == "effect-running"
    assert admin_key.post(f"effects/{'c' * 64}/resolve", {"verdict": "done", "attempt": 1, "note": "x"}).code == "effect-unknown"
    assert admin_key.post(f"effects/{key}/resolve", {"verdict": "done", "attempt": 1, "note": " "}).code == "request-refused"


def test_an_agent_reconciles_its_own_doubt(agent: Api) -> None:
    key = agent.doubt()
    token = new_token()
    asked = {"run": "r1", "attempt": 1, "token": token}
    assert agent.post(f"effects/{key}/ask", asked).status == 200
    assert agent.post(f"effects/{key}/ask", asked).status == 200
    assert agent.post(f"effects/{key}/ask", {**asked, "token": new_token()}).code == "effect-in-doubt"
    answer = {"run": "r1", "token": token, "verdict": "done", "result": 5}
    assert agent.post(f"effects/{key}/answer", answer).status == 200
    assert agent.claim().json["result"] == 5


def test_an_agent_reclaims_within_the_window_only(agent: Api) -> None:
    key = agent.doubt()
    body = {"run": "r1", "tool": "pay", "arguments": {"amount": 10}, "token": new_token(), "attempt": 1}
    assert agent.post(f"effects/{key}/reclaim", {**body, "window_seconds": 0}).code == "effect-in-doubt"
    assert agent.post(f"effects/{'d' * 64}/reclaim", {**body, "window_seconds": 60}).code == "request-refused"
    again = agent.post(f"effects/{key}/reclaim", {**body, "window_seconds": 3600})
    assert (again.status, again.json["attempt"]) == (200, 2)


def test_a_dead_process_is_declared_and_the_effect_is_in_doubt_at_once(agent: Api) -> None:
    key = agent.claim(holder="boot:1").json["key"]
    assert agent.post(f"effects/{key}/declare-dead", {"run": "r1", "attempt": 1, "holder": "boot:2"}).status == 200
    assert agent.get(f"effects/{key}").json["state"] == "running"
    assert agent.post(f"effects/{key}/declare-dead", {"run": "r1", "attempt": 1, "holder": "boot:1"}).status == 200
    assert agent.get(f"effects/{key}").json["state"] == "in_doubt"


def test_plain_json_and_codec_text_name_the_same_action(agent: Api) -> None:
    plain = agent.claim("r3", token=new_token()).json["key"]
    _, codec = canonical.encode_arguments({"amount": 10})
    reply = agent.claim("r3", arguments=None, arguments_codec=codec)
    assert reply.json["fields"]["key"] == plain


def test_it_computes_every_digest_and_refuses_another(agent: Api, acme: Company) -> None:
    text = canonical.canonical_from_codec(canonical.plain_arguments_codec({"amount": 10}))
    key = keys.effect_key(acme.organization.id, "r1", "pay", arguments=text)
    digest = keys.call_digest("pay", text)
    for wrong in ({"key": "0" * 64}, {"call_digest": "0" * 64}, {"args_digest": "0" * 64}):
        reply = agent.claim(**wrong)
        assert (reply.status, reply.code) == (400, "request-refused"), wrong
    assert agent.get("effects").json["effects"] == []
    assert agent.claim(key=key, call_digest=digest, args_digest=digest).json["key"] == key


def test_an_excluded_parameter_tells_no_two_actions_apart(agent: Api, acme: Company) -> None:
    first = agent.claim("r4", arguments={"amount": 10, "trace": 'a"b,}'}, exclude=["trace"])
    text = canonical.canonical_from_codec(canonical.plain_arguments_codec({"amount": 10}))
    assert first.json["key"] == keys.effect_key(acme.organization.id, "r4", "pay", arguments=text)
    assert agent.claim("r4", arguments={"amount": 10, "trace": "z"}, exclude=["trace"]).code == "effect-running"
    assert agent.claim("r4", arguments={"amount": 10, "trace": "z"}).json["outcome"] == "granted"


def test_an_explicit_key_names_one_action(agent: Api) -> None:
    agent.claim("r5", explicit_key=7)
    assert agent.claim("r5", explicit_key="7").code == "effect-running"
    reply = agent.claim("r5", explicit_key="7", arguments={"amount": 11})
    assert (reply.status, reply.code) == (409, "key-conflict")
    assert reply.json["fields"]["recorded_arguments"] == '{"amount":10}'


@pytest.mark.parametrize("digits", ["2512292042121000001", "9007199254740993", "0.1", "123.40", "1e20", "1.7976931348623157e308"])
def test_case_42_digits_survive_the_server(agent: Api, digits: str) -> None:
    body = f'{{"run":"r6","tool":"pay","token":"{new_token()}","arguments":{{"id":{digits}}}}}'.encode()
    key = agent.post("effects/claim", body).json["key"]
    expected, _ = canonical.encode_arguments({"id": canonical.parse_json(digits)})
    assert agent.get("runs/r6/entries").json["entries"][0]["payload"]["arguments"] == expected
    assert f'"arguments": {expected}' in agent.get(f"effects/{key}").text


def test_case_40_ten_and_ten_point_zero_are_one_action(agent: Api) -> None:
    for number in ("10", "10.0", "1e1"):
        body = f'{{"run":"r7","tool":"pay","token":"{new_token()}","arguments":{{"amount":{number}}}}}'.encode()
        reply = agent.post("effects/claim", body)
        assert reply.status == (200 if number == "10" else 409)


def test_case_49_null_is_not_missing_and_order_does_not_count(agent: Api) -> None:
    assert agent.claim("r8", arguments={"note": None}).json["outcome"] == "granted"
    assert agent.claim("r8", arguments={}).json["outcome"] == "granted"
    assert agent.claim("r8", arguments={"a": 1, "b": 2}).json["outcome"] == "granted"
    assert agent.claim("r8", arguments={"b": 2, "a": 1}).code == "effect-running"


def test_a_missing_result_is_null(agent: Api) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    agent.post(f"effects/{key}/complete", {"run": "r1", "token": token})
    again = agent.claim().json
    assert (again["result"], again["result_codec"], again["note"]) == (None, "null", None)


def test_a_result_that_could_not_be_kept_says_why(agent: Api) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    agent.post(f"effects/{key}/complete", {"run": "r1", "token": token, "note": "oversize"})
    again = agent.claim().json
    assert (again["result"], again["result_codec"], again["note"]) == (None, None, "oversize")


@pytest.mark.parametrize(
    ("result", "note"),
    [
        ({"result": "x" * 1_100_000}, "oversize"),
        ({"result_codec": '"' + "x" * 1_100_000 + '"'}, "oversize"),
        ({"result_codec": "{"}, "unrecordable"),
    ],
)
def test_a_result_that_cannot_be_kept_leaves_the_action_done(agent: Api, result: dict[str, object], note: str) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    reply = agent.post(f"effects/{key}/complete", {"run": "r1", "token": token, **result})
    assert (reply.status, reply.code, reply.json["fields"]["note"]) == (409, "result-not-recordable", note)
    again = agent.claim().json
    assert (again["outcome"], again["note"]) == ("recorded", note)
    text = str(result.get("result_codec") or json.dumps(result["result"]))
    if note == "oversize":
        digest = hashlib.sha256(text.encode()).hexdigest()
        assert again["result"] == {"sha256": digest, "head": text[:1000], "size_bytes": str(len(text))}
    else:
        assert again["result"] == {"text": text}


def test_two_results_are_refused(agent: Api) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    reply = agent.post(f"effects/{key}/complete", {"run": "r1", "token": token, "result": 1, "result_codec": "1"})
    assert (reply.status, reply.code) == (400, "request-refused")
    assert agent.get(f"effects/{key}").json["state"] == "running"


def test_an_errors_text_is_kept_whatever_is_in_it(agent: Api) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    reply = agent.post(f"effects/{key}/fail", {"run": "r1", "token": token, "error": "bad byte \x00 " + "x" * 50_000})
    assert reply.json["outcome"] == "in_doubt"
    error = agent.get(f"effects/{key}").json["error"]
    assert error.startswith("bad byte \\x00 xxx")
    assert len(error) < 11_000


def test_case_20_a_result_with_nul_is_done(agent: Api) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    assert agent.post(f"effects/{key}/complete", {"run": "r1", "token": token, "result": {"log": "a\x00b"}}).json["outcome"] == "done"
    assert agent.claim().json["result"] == {"log": "a\x00b"}


def test_lists_page_by_cursor_and_filter(agent: Api) -> None:
    made = [agent.claim(f"p{number}").json["key"] for number in range(5)]
    first = agent.get("effects?limit=2").json
    second = agent.get(f"effects?limit=2&after={first['next']}").json
    third = agent.get(f"effects?limit=2&after={second['next']}").json
    assert [one["key"] for page in (first, second, third) for one in page["effects"]] == made
    assert third["next"] is None
    assert [one["run"] for one in agent.get("effects?run=p3").json["effects"]] == ["p3"]
    agent.doubt("p9")
    assert [one["run"] for one in agent.get("effects?state=in_doubt").json["effects"]] == ["p9"]
    entries = agent.get("runs/p9/entries?limit=1").json
    assert entries["entries"][0]["kind"] == "effect.running"
    assert agent.get(f"runs/p9/entries?after={entries['next']}").json["entries"][0]["kind"] == "effect.in_doubt"


def test_a_gated_action_needs_a_yes(agent: Api) -> None:
    reply = agent.claim(gated=True)
    assert (reply.status, reply.code) == (403, "approval-required")
    assert reply.json["fields"]["arguments"] == '{"amount":10}'
    assert agent.get("effects").json["effects"] == []


def test_a_stopped_run_or_agent_claims_nothing(agent: Api, admin_key: Api, acme: Company) -> None:
    assert admin_key.post("runs/r1/freeze", {"note": "look first"}).json == {"subject": "run:r1", "frozen": True}
    reply = agent.claim()
    assert (reply.status, reply.code) == (423, "agent-frozen")
    assert reply.json["fields"]["note"] == "look first"
    admin_key.post("runs/r1/thaw", {})
    admin_key.post(f"agents/{acme.agent.id}/freeze", {})
    assert agent.claim().code == "agent-frozen"
    admin_key.post(f"agents/{acme.agent.id}/thaw", {})
    assert agent.claim().json["outcome"] == "granted"


def test_a_run_may_have_any_name(agent: Api, admin_key: Api) -> None:
    name = "thread/1 ü?&#%2F"
    assert admin_key.post(f"runs/{quote(name, safe='')}/freeze", {}).json["subject"] == f"run:{name}"
    assert agent.claim(name).code == "agent-frozen"


def test_a_strangers_effects_are_nowhere(acme: Company, other: Company, agent: Api) -> None:
    token = new_token()
    key = agent.claim(token=token).json["key"]
    stranger = Api(other.key)
    assert stranger.get(f"effects/{key}").code == "effect-unknown"
    assert stranger.get("effects").json["effects"] == []
    assert stranger.get("runs/r1/entries").json["entries"] == []
    for verb, more in (("complete", {"result": 1}), ("fail", {"error": "x"}), ("release", {})):
        assert stranger.post(f"effects/{key}/{verb}", {"run": "r1", "token": token, **more}).code == "claim-lost"
    assert stranger.post("effects/heartbeat", {"claims": [{"run": "r1", "key": key, "token": token}]}).json == {"lost": [key]}
    assert Api(other.admin).post(f"effects/{key}/resolve", {"verdict": "done", "attempt": 1, "note": "x"}).status == 404
    assert Api(other.admin).post(f"agents/{acme.agent.id}/freeze", {}).status == 404
    Api(other.admin).post("runs/r1/freeze", {})
    assert agent.post(f"effects/{key}/complete", {"run": "r1", "token": token, "result": 1}).json["outcome"] == "done"
    assert agent.claim("r1", arguments={"amount": 11}).json["outcome"] == "granted"


def test_case_11_one_key_text_of_two_organizations_is_two_effects(agent: Api, other: Company) -> None:
    mine = agent.claim(explicit_key="order-1")
    theirs = Api(other.key).claim(explicit_key="order-1")
    assert mine.json["outcome"] == theirs.json["outcome"] == "granted"
    assert mine.json["key"] != theirs.json["key"]


def test_a_team_mates_agent_shares_effects_on_purpose(agent: Api, acme: Company) -> None:
    mate = Agent.objects.create(organization=acme.organization, name="shipping")
    agent.claim()
    assert Api(verbs.key_create(mate, {"act"}, actor=ACTOR).token).claim().code == "effect-running"


def test_a_lapsed_claim_is_in_doubt_when_the_sweep_sees_it(agent: Api) -> None:
    key = agent.claim().json["key"]
    assert lease_sweep() == 0
    executor_default().trip([Statement("UPDATE c4a_effect SET lease_until = {now} - 1 WHERE key = :key", {"key": key})])
    assert lease_sweep() == 1
    effect = agent.get(f"effects/{key}").json
    assert (effect["state"], effect["reason"]) == ("in_doubt", "lapsed")
    assert lease_sweep() == 0
