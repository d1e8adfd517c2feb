"""`c4a status`, `c4a doubt` and `c4a resolve`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import c4a
from c4a.record.types import Effect
from tests.cli.conftest import ROOT, doubt_make

NOTE: Final = "the mail server's log"


def doubted(c4a_run: Any, record: Path) -> dict[str, Any]:
    """The action in doubt, as a program reads it."""
    found: dict[str, Any] = c4a_run("doubt", record, "--json").json["in_doubt"][0]
    return found


def effect_of(record: Path, key: str) -> Effect:
    c4a.init(record)
    effect = c4a.current_record().effect(key)
    c4a.current_record().close()
    assert effect is not None
    return effect


def test_status_counts_what_is_open(c4a_run: Any, record: Path) -> None:
    answer = c4a_run("status", record, "--json")

    assert answer.code == 0
    assert answer.json["in_doubt"] == 1
    assert answer.json["running"] == 0
    assert answer.json["place"] == str(record)


def test_status_prints_the_same_for_people(c4a_run: Any, record: Path) -> None:
    answer = c4a_run("status", record)

    assert "in doubt      1 (see `c4a doubt`)" in answer.out


def test_the_file_of_this_folder_is_the_default(c4a_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    doubt_make(".c4a/ledger.sqlite")

    assert c4a_run("status", "--json").json["in_doubt"] == 1


def test_doubt_shows_the_evidence_and_lets_no_text_play_with_the_terminal(c4a_run: Any, record: Path) -> None:
    answer = c4a_run("doubt", record)

    assert answer.code == 0
    assert 'arguments  {"to":"alice"}' in answer.out
    assert "the body raised, so the action may have happened" in answer.out
    assert r"connection lost after DATA\x1b[2J" in answer.out
    assert "\x1b" not in answer.out


def test_doubt_shows_a_command_that_settles_the_first(c4a_run: Any, record: Path) -> None:
    shown = c4a_run("doubt", record).out.splitlines()[-1]

    answer = c4a_run(*shlex.split(shown)[1:])

    assert answer.code == 0
    assert c4a_run("doubt", record, "--fail-if-any").code == 0


def test_doubt_ends_with_3_if_asked_to_and_something_is_in_doubt(c4a_run: Any, record: Path) -> None:
    assert c4a_run("doubt", record, "--fail-if-any").code == 3
    assert c4a_run("doubt", record, "--fail-if-any", "--json").code == 3


def test_doubt_ends_with_0_once_nothing_is_in_doubt(c4a_run: Any, record: Path) -> None:
    c4a_run("resolve", record, doubted(c4a_run, record)["key"], "done", NOTE)

    answer = c4a_run("doubt", record, "--fail-if-any")

    assert answer.code == 0
    assert answer.out == "Nothing is in doubt.\n"


def test_an_action_whose_process_was_killed_is_in_doubt_at_once(c4a_run: Any, tmp_path: Path) -> None:
    record = tmp_path / "ledger.sqlite"
    script = (
        "import c4a, os, signal, sys\nc4a.init(sys.argv[1])\n"
        "@c4a.effect\ndef act() -> None: os.kill(os.getpid(), signal.SIGKILL)\n"
        "with c4a.run('r'): act()\n"
    )
    subprocess.run([sys.executable, "-c", script, record], env={**os.environ, "PYTHONPATH": str(ROOT)})

    assert [effect["reason"] for effect in c4a_run("doubt", record, "--json").json["in_doubt"]] == ["dead"]


def test_resolve_takes_the_first_characters_of_a_key(c4a_run: Any, record: Path) -> None:
    key = doubted(c4a_run, record)["key"]

    answer = c4a_run("resolve", record, key[:6].upper(), "done", NOTE, "--result", '{"id": 7}')

    assert answer.code == 0
    assert answer.out == f"send_email ({key[:12]}) is settled: done.\n"
    settled = effect_of(record, key)
    assert settled.state == "done"
    assert settled.result == '{"id":7}'


def test_resolve_names_who_judged_in_the_record(c4a_run: Any, record: Path) -> None:
    key = doubted(c4a_run, record)["key"]
    c4a_run("resolve", record, key, "not-done", NOTE, "--by", "member:alice")

    c4a.init(record)
    entry = c4a.current_record().entries(key=key)[-1]
    c4a.current_record().close()
    assert (entry.kind, entry.actor) == ("effect.not_done", "member:alice")
    assert entry.payload is not None
    assert entry.payload["note"] == NOTE


def test_resolve_refuses_a_prefix_that_several_keys_share(c4a_run: Any, record: Path) -> None:
    c4a.init(record)
    keys = [effect.key for effect in c4a.current_record().effects()]
    run = 0
    while len({key[:4] for key in keys}) == len(keys):
        run += 1
        keys.append(_action_in_run(str(run)))
    c4a.current_record().close()
    shared = next(key[:4] for key in keys if sum(other.startswith(key[:4]) for other in keys) > 1)

    answer = c4a_run("resolve", record, shared, "done", NOTE)

    assert answer.code == 1
    assert f"several keys begin with {shared}" in answer.err
    assert "give more characters" in answer.err


def _action_in_run(run: str) -> str:
    with c4a.run(run):
        c4a.effect(name="noop")(lambda: None)()
    last = c4a.last_outcome()
    assert last is not None
    return last.key


@pytest.mark.parametrize("prefix", ["", "abc", "xyzt", "0" * 65])
def test_resolve_refuses_what_is_no_key(c4a_run: Any, record: Path, prefix: str) -> None:
    answer = c4a_run("resolve", record, prefix, "done", NOTE)

    assert answer.code == 1
    assert "expected 4 to 64 hexadecimal characters" in answer.err


def test_resolve_refuses_a_key_that_nothing_has(c4a_run: Any, record: Path) -> None:
    answer = c4a_run("resolve", record, "0" * 64, "done", NOTE)

    assert answer.code == 1
    assert "no action in" in answer.err


def test_resolve_refuses_a_verdict_on_an_older_attempt(c4a_run: Any, record: Path) -> None:
    key = doubted(c4a_run, record)["key"]

    answer = c4a_run("resolve", record, key, "done", NOTE, "--attempt", "2", "--json")

    assert answer.code == 1
    assert '"code": "stale-verdict"' in answer.err
    assert effect_of(record, key).state == "in_doubt"


def test_resolve_refuses_a_second_verdict(c4a_run: Any, record: Path) -> None:
    key = doubted(c4a_run, record)["key"]
    c4a_run("resolve", record, key, "done", NOTE)

    answer = c4a_run("resolve", record, key, "not-done", NOTE)

    assert answer.code == 1
    assert effect_of(record, key).state == "done"


def test_resolve_refuses_a_blank_note(c4a_run: Any, record: Path) -> None:
    answer = c4a_run("resolve", record, doubted(c4a_run, record)["key"], "done", "  ")

    assert answer.code == 1
    assert "note must say something" in answer.err


@pytest.mark.parametrize("name", ["", "a" * 257, "\udcff"])
def test_resolve_refuses_a_name_that_is_none(c4a_run: Any, record: Path, name: str) -> None:
    answer = c4a_run("resolve", record, doubted(c4a_run, record)["key"], "done", NOTE, "--by", name)

    assert answer.code == 1
    assert "--by" in answer.err


def test_resolve_keeps_a_note_of_any_bytes(c4a_run: Any, record: Path) -> None:
    key = doubted(c4a_run, record)["key"]

    answer = c4a_run("resolve", record, key, "done", "log \udcff \x00 line")

    assert answer.code == 0
    assert effect_of(record, key).state == "done"


def test_resolve_refuses_a_result_that_is_not_json(c4a_run: Any, record: Path) -> None:
    key = doubted(c4a_run, record)["key"]

    answer = c4a_run("resolve", record, key, "done", NOTE, "--result", "{id: 7")

    assert answer.code == 1
    assert "--result" in answer.err
    assert effect_of(record, key).state == "in_doubt"


def test_not_done_of_a_claim_that_merely_lapsed_needs_a_confirmation(c4a_run: Any, tmp_path: Path) -> None:
    record = tmp_path / "ledger.sqlite"
    key = _lapsed(record)

    refused = c4a_run("resolve", record, key, "not-done", NOTE)
    confirmed = c4a_run("resolve", record, key, "not-done", NOTE, "--confirm-lapsed", "--new-outside-key")

    assert refused.code == 1
    assert "it may still be running" in refused.err
    assert confirmed.code == 0
    settled = effect_of(record, key)
    assert (settled.state, settled.epoch) == ("not_done", 1)


def _lapsed(record: Path) -> str:
    """An action that this process still holds when its short lease has run out."""
    from c4a.record.types import Call, Claimant

    c4a.init(record)
    opened = c4a.current_record()
    key = "ab" * 32
    call = Call(run="r", tool="t", arguments="{}", arguments_codec="{}", call_digest="c" * 64, args_digest="d" * 64, key=key)
    opened.claim(call, Claimant(token="e" * 32, actor="local:test", lease_seconds=0.001))
    opened.close()
    return key
