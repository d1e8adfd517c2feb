"""Bad input over REST: a clear problem with a stable code, nothing written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.models import Effect, Entry
from tests.server.callers import new_token
from tests.server.cast import Api

TOKEN = "ab" * 16


@pytest.fixture
def untouched(agent: Api) -> Iterator[Api]:
    """The agent's API; the record must be as it was."""
    entries = Entry.objects.count()
    yield agent
    assert Entry.objects.count() == entries
    assert Effect.objects.count() == 0


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"{",
        b"nonsense",
        b"[1]",
        b'"text"',
        b"null",
        b'{"run": "r", "run": "s"}',
        b'{"run": "r", "tool": "t", "token": "' + TOKEN.encode() + b'", "arguments": {"x": NaN}}',
        b'{"run": "r", "tool": "t", "token": "' + TOKEN.encode() + b'", "arguments": {"x": -Infinity}}',
        b'{"run": "r", "tool": "t", "token": "' + TOKEN.encode() + b'", "arguments": {"x": "\\ud800"}}',
        b'{"run": "r", "tool": "t", "token": "' + TOKEN.encode() + b'", "arguments": {"x": 1e99999}}',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"arguments":' * 300 + b"1" + b"}" * 300,
    ],
)
def test_it_refuses_what_is_no_json_object(untouched: Api, body: bytes) -> None:
    reply = untouched.post("effects/claim", body)
    assert (reply.status, reply.code) == (400, "request-refused")
    assert reply.json["fields"]["errors"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", None),
        ("run", ""),
        ("run", "  "),
        ("run", 7),
        ("run", "x" * 257),
        ("run", "a\x00b"),
        ("tool", None),
        ("tool", ["pay"]),
        ("token", None),
        ("token", "short"),
        ("token", "Z" * 32),
        ("arguments", [1]),
        ("arguments", "text"),
        ("arguments_codec", 7),
        ("explicit_key", True),
        ("explicit_key", " "),
        ("explicit_key", 1.5),
        ("exclude", "amount"),
        ("exclude", [1]),
        ("gated", "yes"),
        ("gated", 1),
        ("parent", "abc"),
        ("holder", "x" * 2000),
        ("lease_seconds", 0),
        ("lease_seconds", -5),
        ("lease_seconds", 1e9),
        ("lease_seconds", "15"),
        ("lease_seconds", True),
        ("key", "nonsense"),
        ("gatedd", True),
    ],
)
def test_it_refuses_a_wrong_field_and_names_it(untouched: Api, field: str, value: object) -> None:
    body = {"run": "r", "tool": "t", "token": TOKEN, "arguments": {}} | {field: value}
    reply = untouched.post("effects/claim", body)
    assert reply.status in (400, 422), reply.text
    assert reply.code in ("request-refused", "invalid-arguments")
    if reply.code == "request-refused" and field != "lease_seconds":
        assert field in [error["field"] for error in reply.json["fields"]["errors"]]


def test_it_shows_no_value_back(untouched: Api) -> None:
    reply = untouched.post("effects/claim", {"run": 7, "tool": {"password": "hunter2hunter2"}, "token": TOKEN})
    assert "hunter2" not in reply.text


def test_it_names_every_error_at_once(untouched: Api) -> None:
    reply = untouched.post("effects/claim", {"run": 7, "gated": 1, "extra": 1})
    assert {error["field"] for error in reply.json["fields"]["errors"]} == {"run", "gated", "extra", "tool", "token"}


def test_it_wants_arguments_in_one_form(untouched: Api) -> None:
    for forms in ({}, {"arguments": {}, "arguments_codec": "{}"}):
        reply = untouched.post("effects/claim", {"run": "r", "tool": "t", "token": TOKEN, **forms})
        assert (reply.status, reply.code) == (422, "invalid-arguments")


@pytest.mark.parametrize(
    "codec",
    [
        "",
        "nonsense",
        "[1]",
        "7",
        '{"$c4a":"bytes","v":"AA=="}',
        '{"x":{"$c4a":"no-such-tag","v":1}}',
        '{"x":{"$c4a":"float","v":"nan"}}',
        '{"x":NaN}',
    ],
)
def test_it_refuses_codec_text_that_is_none(untouched: Api, codec: str) -> None:
    reply = untouched.post("effects/claim", {"run": "r", "tool": "t", "token": TOKEN, "arguments_codec": codec})
    assert (reply.status, reply.code) == (422, "invalid-arguments")


def test_plain_data_that_looks_like_a_tag_is_only_data(agent: Api) -> None:
    tagged = {"x": {"$c4a": "bytes", "v": "AA=="}}
    assert agent.claim("r1", arguments=tagged).json["outcome"] == "granted"
    codec = '{"x":{"$c4a":"bytes","v":"AA=="}}'
    assert agent.claim("r1", arguments=None, arguments_codec=codec).json["outcome"] == "granted"


def test_it_refuses_20_megabytes(untouched: Api) -> None:
    reply = untouched.post("effects/claim", b'{"run":"' + b"x" * 20_000_000 + b'"}')
    assert (reply.status, reply.code) == (413, "body-too-large")
    assert reply.json["fields"]["limit_bytes"] == 4 * 1024 * 1024


def test_it_refuses_arguments_over_their_own_limit(untouched: Api) -> None:
    body = {"run": "r", "tool": "t", "token": TOKEN, "arguments": {"text": "x" * 2_000_000}}
    reply = untouched.post("effects/claim", body)
    assert (reply.status, reply.code) == (422, "invalid-arguments")


def test_it_refuses_arguments_nested_over_200(untouched: Api) -> None:
    nested: object = 1
    for _ in range(199):
        nested = [nested]
    body = {"run": "r", "tool": "t", "token": new_token(), "arguments": {"x": [[[nested]]]}}
    assert untouched.post("effects/claim", body).status in (400, 422)


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/json; charset=utf-16"],
)
def test_it_refuses_another_media_type(untouched: Api, content_type: str) -> None:
    reply = untouched.post("effects/claim", b"{}", content_type=content_type)
    assert (reply.status, reply.code) == (415, "media-type-refused")


def test_it_refuses_a_compressed_body(untouched: Api) -> None:
    reply = untouched.post("effects/claim", b"{}", headers={"Content-Encoding": "gzip"})
    assert (reply.status, reply.code) == (415, "media-type-refused")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "limit=x", "limit=1&limit=2", "state=open", "after=-1", "sort=tool", "after=" + "9" * 40]
)
def test_it_refuses_a_wrong_query(agent: Api, query: str) -> None:
    reply = agent.get(f"effects?{query}")
    assert (reply.status, reply.code) == (400, "request-refused")


@pytest.mark.parametrize(
    "path", ["nothing", "effects/", "effects/xyz", "effects/" + "A" * 64, "effects/" + "a" * 63, "wait/effects/7", "me/"]
)
def test_an_address_that_is_none_is_a_problem_document(agent: Api, path: str) -> None:
    reply = agent.get(path)
    assert (reply.status, reply.code) == (404, "no-such-address")


def test_a_method_that_is_none_is_a_problem_document(agent: Api) -> None:
    reply = agent.get("effects/claim")
    assert (reply.status, reply.code) == (405, "method-refused")
    assert reply.json["fields"]["allowed"] == ["POST"]


def test_an_unexpected_error_tells_nothing(agent: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("the secret is 42")

    monkeypatch.setattr("gateway.effects.claim.claim", broken)
    reply = agent.claim()
    assert (reply.status, reply.code) == (500, "c4a-error")
    assert "42" not in reply.text
    assert "the secret is 42" in caplog.text


def test_another_host_name_is_refused(agent: Api) -> None:
    reply = agent.get("me", headers={"Host": "evil.example"})
    assert (reply.status, reply.code) == (400, "request-refused")


def test_answers_are_neither_sniffed_nor_stored(agent: Api) -> None:
    headers = agent.get("me").response.headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
