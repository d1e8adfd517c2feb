"""What goes on behind an action: leases kept alive, outcomes that could not be written kept and tried again."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import c4a
from c4a import connect, outbox
from c4a.heartbeat import Heartbeat
from c4a.record.types import Record
from tests.library.conftest import Library


class Flaky:
    """A record that can't be reached while `down` names the verb."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.down: set[str] = set()
        self.calls: list[str] = []
        self.tokens: list[str] = []
        self.after = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.record, name)
        if not callable(found):
            return found

        def maybe(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if name == "claim":
                self.tokens.append(args[1].token)
            if name in self.down:
                if self.after:
                    found(*args, **kwargs)
                raise c4a.RecordUnreachable("the database did not answer")
            return found(*args, **kwargs)

        return maybe


@pytest.fixture
def flaky(library: Library, monkeypatch: pytest.MonkeyPatch) -> Flaky:
    """The library's record behind a line that can be cut."""
    monkeypatch.setattr(outbox, "FIRST_PAUSE_SECONDS", 0.05)
    flaky = Flaky(library.record)
    connect.use_record(flaky)
    return flaky


def kept(library: Library) -> list[Path]:
    """Files in the outbox."""
    return sorted((library.folder / ".c4a" / "outbox").glob("*.json"))


def until(true: Any) -> None:
    """Wait up to five seconds."""
    deadline = time.monotonic() + 5
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_f7_c_e5_an_outcome_that_cannot_be_written_is_kept_and_written_later(library: Library, flaky: Flaky) -> None:
    ran: list[int] = []

    @c4a.effect(wait=5.0)
    def act() -> str:
        ran.append(1)
        flaky.down = {"complete"}
        return "id-7"

    with c4a.run("r"):
        with pytest.warns(RuntimeWarning, match="will be tried again"):
            assert act() == "id-7"
        (path,) = kept(library)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        flaky.down = set()
        assert act() == "id-7"
    assert ran == [1]
    until(lambda: not kept(library))


def test_the_next_init_writes_what_an_earlier_process_kept(library: Library) -> None:
    code = """
        import warnings
        warnings.simplefilter("ignore")
        record = c4a.current_record()
        def down(*args, **kwargs):
            raise c4a.RecordUnreachable("down")
        record.complete = down
        @c4a.effect(name="act")
        def act():
            return "id-7"
        with c4a.run("r"):
            say(act())
        os._exit(0)
    """
    assert library.start(code).communicate(timeout=30)[0] == "id-7\n"
    assert library.only_effect().state == "running"
    assert len(kept(library)) == 1
    library.init()
    assert library.only_effect().state == "done"
    assert kept(library) == []


def test_a_failure_that_cannot_be_written_keeps_the_bodys_own_error(library: Library, flaky: Flaky) -> None:
    @c4a.effect
    def act() -> None:
        flaky.down = {"fail"}
        raise TimeoutError("bank")

    with c4a.run("r"), pytest.warns(RuntimeWarning), pytest.raises(TimeoutError, match="bank"):
        act()
    flaky.down = set()
    until(lambda: library.only_effect().state == "in_doubt")
    assert library.only_effect().error == "TimeoutError: bank"


def test_with_a_full_disk_memory_keeps_it(library: Library, flaky: Flaky, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(28, "No space left on device")

    @c4a.effect
    def act() -> str:
        flaky.down = {"complete"}
        monkeypatch.setattr(os, "open", full)
        return "id-7"

    with c4a.run("r"), pytest.warns(RuntimeWarning, match="memory only"):
        assert act() == "id-7"
    monkeypatch.undo()
    flaky.down = set()
    until(lambda: library.only_effect().state == "done")


def test_case_80_a_claim_whose_answer_was_lost_is_asked_again_with_the_same_token_and_runs_once(library: Library, flaky: Flaky) -> None:
    ran: list[int] = []

    @c4a.effect
    def act() -> str:
        ran.append(1)
        return "done"

    flaky.down, flaky.after = {"claim"}, True
    threading.Timer(0.03, flaky.down.clear).start()
    with c4a.run("r"):
        assert act() == "done"
    assert ran == [1]
    assert len(flaky.tokens) > 1
    assert len(set(flaky.tokens)) == 1
    assert library.only_effect().attempt == 1


def test_case_80_a_claim_that_is_given_up_leaves_a_release_behind_since_its_body_never_ran(library: Library, flaky: Flaky) -> None:
    ran: list[int] = []

    @c4a.effect
    def act() -> str:
        ran.append(1)
        return "done"

    flaky.down, flaky.after = {"claim"}, True
    with c4a.run("r"):
        with pytest.raises(c4a.RecordUnreachable):
            act()
        flaky.down = set()
        until(lambda: library.only_effect().state == "not_done")
        assert act() == "done"
    assert ran == [1]


def test_case_80_an_outcome_whose_answer_was_lost_is_written_once(library: Library, flaky: Flaky) -> None:
    @c4a.effect
    def act() -> str:
        flaky.down, flaky.after = {"complete"}, True
        return "done"

    with c4a.run("r"), pytest.warns(RuntimeWarning):
        act()
    flaky.down = set()
    until(lambda: not kept(library))
    assert [entry.kind for entry in library.record.entries(run="r")].count("effect.done") == 1


def test_an_outcome_of_another_record_is_left_alone_and_a_broken_file_harms_nothing(library: Library) -> None:
    folder = library.folder / ".c4a" / "outbox"
    folder.mkdir(parents=True, exist_ok=True)
    foreign = folder / "foreign.json"
    foreign.write_text(json.dumps({"place": "elsewhere", "organization": "o", "verb": "release", "run": "r", "key": "k", "token": "t"}))
    (folder / "broken.json").write_text("{")
    library.init()
    assert foreign.exists()


def test_an_outcome_the_record_refuses_for_ever_is_dropped_aloud(library: Library) -> None:
    @c4a.effect
    def act() -> int:
        return 1

    with c4a.run("r"):
        act()
    effect = library.only_effect()
    connection = connect.connection()
    connection.outbox._save(outbox.Outcome("complete", "r", effect.key, "never-held", result="1"))
    with pytest.warns(RuntimeWarning, match="was refused"):
        library.init()
    assert kept(library) == []


def test_a_release_whose_claim_never_arrived_is_dropped_in_silence(library: Library, recwarn: pytest.WarningsRecorder) -> None:
    connect.connection().outbox._save(outbox.Outcome("release", "r", "0" * 64, "never-arrived"))
    library.init()
    assert kept(library) == []
    assert not [one for one in recwarn if issubclass(one.category, RuntimeWarning)]


class Counting:
    """Counts heartbeats; `lost` keys are no longer held."""

    place = organization = "x"

    def __init__(self) -> None:
        self.beats: list[list[str]] = []
        self.lost: list[str] = []
        self.broken = False

    def heartbeat(self, claims: list[tuple[str, str, str]], lease_seconds: float) -> list[str]:
        self.beats.append([key for _, key, _ in claims])
        if self.broken:
            raise c4a.RecordUnreachable("down")
        return self.lost


def test_a_short_action_costs_no_heartbeat_and_a_long_one_is_kept_alive_in_one_trip() -> None:
    record: Any = Counting()
    beating = Heartbeat(record)
    beating.hold("t1", "r", "short", 0.3)
    beating.drop("t1")
    for number in range(3):
        beating.hold(f"l{number}", "r", f"long{number}", 0.3)
    time.sleep(0.5)
    assert record.beats
    assert all(sorted(beat) == ["long0", "long1", "long2"] for beat in record.beats)


def test_a_claim_that_is_no_longer_held_is_dropped_and_an_unreachable_record_is_tried_again() -> None:
    record: Any = Counting()
    record.broken = True
    beating = Heartbeat(record)
    beating.hold("t", "r", "k", 0.15)
    until(lambda: len(record.beats) > 2)
    assert beating.holds() == 1
    record.broken, record.lost = False, ["k"]
    until(lambda: beating.holds() == 0)
    assert record.beats[-1] == ["k"]


def test_a_heartbeat_nobody_uses_any_more_ends_its_thread() -> None:
    beating = Heartbeat(Counting())  # type: ignore[arg-type]
    beating.hold("t", "r", "k", 0.03)
    beating.drop("t")
    thread = beating._thread
    assert thread is not None
    assert thread.is_alive()
    del beating
    thread.join(5)
    assert not thread.is_alive()
