"""The command line `c4a` on a record behind a server: what is in doubt, who may settle it, and what it says otherwise."""

from __future__ import annotations

import json

import pytest

from c4a import cli
from c4a.record.http import ServerRecord
from tests.server.callers import call, claimant, new_token
from tests.server.live import LiveServer


@pytest.fixture
def doubted(server: LiveServer) -> str:
    """The key of an action of Acme's agent that is in doubt."""
    record = ServerRecord(server.url, server.keys["acme"]["key"])
    one, token = call(record, amount=10), new_token()
    record.claim(one, claimant(token))
    record.fail(one.run, one.key, token, error="connection lost")
    record.close()
    return one.key


def use_key(monkeypatch: pytest.MonkeyPatch, server: LiveServer, which: str) -> None:
    monkeypatch.setenv("C4A_KEY", server.keys["acme"][which])


def test_it_lists_what_is_in_doubt(
    server: LiveServer, doubted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_key(monkeypatch, server, "key")

    code = cli.main(["doubt", server.url, "--json", "--fail-if-any"])

    found = {effect["key"]: effect for effect in json.loads(capsys.readouterr().out)["in_doubt"]}
    assert code == 3
    assert found[doubted]["error"] == "connection lost"
    assert cli.main(["status", server.url]) == 0
    assert server.keys["acme"]["organization"] in capsys.readouterr().out


def test_an_agents_key_settles_nothing(
    server: LiveServer, doubted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_key(monkeypatch, server, "key")

    code = cli.main(["resolve", server.url, doubted[:16], "done", "looked it up", "--json"])

    assert code == 1
    assert json.loads(capsys.readouterr().err)["code"] == "scope-refused"


def test_an_operators_key_does(
    server: LiveServer, doubted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_key(monkeypatch, server, "admin")

    code = cli.main(["resolve", server.url, doubted[:16], "done", "looked it up", "--result", '"m-1"', "--json"])

    settled = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (settled["key"], settled["state"], settled["result"]) == (doubted, "done", '"m-1"')


def test_an_unknown_key_is_one_line(server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("C4A_KEY", server.keys["acme"]["key"][:-4] + "aaaa")

    code = cli.main(["status", server.url])

    assert code == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_verify_says_where_a_server_is_verified(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_key(monkeypatch, server, "key")

    assert cli.main(["verify", server.url]) == 1
    assert "manage.py record_verify" in capsys.readouterr().err
