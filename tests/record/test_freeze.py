"""Freeze: a person stops a run or an agent; every later claim is refused until it is thawed."""

from __future__ import annotations

import threading

import pytest

from c4a.errors import AgentFrozen, C4AError, InvalidArguments, RequestRefused
from c4a.record.freeze import note_subject
from c4a.record.types import Call, Grant, Recorded
from tests.record.cast import AGENT, PERSON, RUN, Kept, approve, begun, call, claimant, deny, in_doubt


def refused(kept: Kept, one: Call) -> AgentFrozen:
    """The claim is refused and writes nothing."""
    before = kept.count()
    with pytest.raises(AgentFrozen) as caught:
        kept.record.claim(one, claimant())
    assert kept.count() == before
    return caught.value


@pytest.mark.parametrize("gated", [False, True])
def test_a_frozen_run_starts_nothing_and_says_who_stopped_it(kept: Kept, gated: bool) -> None:
    one = call(10, gated=gated)
    approve(kept.record, one)
    kept.record.freeze(run=RUN, by=PERSON, note="pays the wrong people")

    error = refused(kept, one)

    assert (error.subject, error.by, error.note) == (f"run:{RUN}", PERSON, "pays the wrong people")
    assert "pays the wrong people" in str(error)
    assert kept.sql("SELECT COUNT(*) FROM c4a_approval WHERE state = 'unspent'") == [(1,)]
    assert kept.record.verify() == []


def test_who_is_stopped_is_told_so_and_not_that_a_yes_is_missing(kept: Kept) -> None:
    first, second = call(10, gated=True), call(11, gated=True)
    approve(kept.record, first)
    who, _ = begun(kept, first)
    kept.record.release(first.run, first.key, who.token)
    deny(kept.record, first)
    kept.record.freeze(run=RUN, by=PERSON)

    for one in (first, second):
        assert refused(kept, one).subject == f"run:{RUN}"


def test_a_frozen_agent_starts_nothing_in_any_run_and_others_go_on(kept: Kept) -> None:
    kept.record.freeze(agent=AGENT, by=PERSON)

    assert refused(kept, call(10)).subject == f"agent:{AGENT}"
    refused(kept, call(10, run="run-2"))
    assert isinstance(kept.record.claim(call(10), claimant(actor="agent:other")), Grant)


def test_a_frozen_run_stops_no_other_run(kept: Kept) -> None:
    kept.record.freeze(run=RUN, by=PERSON)

    assert isinstance(kept.record.claim(call(10, run="run-2"), claimant()), Grant)


def test_after_the_thaw_it_goes_on(kept: Kept) -> None:
    one = call(10, gated=True)
    approve(kept.record, one)
    kept.record.freeze(run=RUN, by=PERSON)
    kept.record.freeze(agent=AGENT, by=PERSON)
    refused(kept, one)
    kept.record.thaw(run=RUN, by=PERSON)
    refused(kept, one)
    kept.record.thaw(agent=AGENT, by=PERSON)

    begun(kept, one)
    assert kept.record.verify() == []


def test_what_runs_may_settle_and_what_is_done_is_still_told(kept: Kept) -> None:
    running, done = call(1), call(2)
    who, _ = begun(kept, running)
    other, _ = begun(kept, done)
    kept.record.complete(done.run, done.key, other.token, result="2")
    kept.record.freeze(run=RUN, by=PERSON)

    assert kept.record.heartbeat([(running.run, running.key, who.token)], 15) == []
    kept.record.complete(running.run, running.key, who.token, result="1")
    assert isinstance(kept.record.claim(done, claimant()), Recorded)


@pytest.mark.parametrize("gated", [False, True])
def test_a_retry_is_a_start(kept: Kept, gated: bool) -> None:
    one = call(10, gated=gated)
    approve(kept.record, one)
    who, _ = begun(kept, one)
    kept.record.release(one.run, one.key, who.token)
    kept.record.freeze(run=RUN, by=PERSON)

    assert refused(kept, one).subject == f"run:{RUN}"
    assert kept.effect(one).attempt == 1


def test_sending_again_is_a_start(kept: Kept) -> None:
    one = call(10)
    in_doubt(kept, one)
    kept.record.freeze(agent=AGENT, by=PERSON)

    with pytest.raises(AgentFrozen):
        kept.record.reclaim(one, claimant(), attempt=1, window_seconds=3600)
    assert kept.effect(one).attempt == 1


def test_freezing_twice_is_written_once_and_keeps_the_first_name(kept: Kept) -> None:
    kept.record.freeze(run=RUN, by=PERSON)
    kept.record.freeze(run=RUN, by="person:bob")
    kept.record.thaw(run=RUN, by=PERSON)
    kept.record.thaw(run=RUN, by=PERSON)

    assert [(entry.kind, entry.actor) for entry in kept.record.entries()] == [("run.frozen", PERSON), ("run.thawed", PERSON)]
    assert kept.record.verify() == []


def test_either_a_run_or_an_agent_and_a_name_are_needed(kept_file: Kept) -> None:
    record = kept_file.record
    for verb in (record.freeze, record.thaw):
        with pytest.raises(RequestRefused, match="either"):
            verb(by=PERSON)
        with pytest.raises(RequestRefused, match="either"):
            verb(run=RUN, agent=AGENT, by=PERSON)
        with pytest.raises(RequestRefused, match="name"):
            verb(run=RUN, by=" ")
        with pytest.raises(InvalidArguments):
            verb(run=RUN, by="a\0b")
        for name in ("", "a\0b", "x" * 300):  # PostgreSQL would cut the second and stop run `a`
            with pytest.raises(InvalidArguments):
                verb(run=name, by=PERSON)
            with pytest.raises(InvalidArguments):
                verb(agent=name, by=PERSON)
    assert kept_file.count() == 0


@pytest.mark.parametrize("note", ["é😀", "nul\0inside", "lone \ud800"])
def test_odd_notes_stop_alike_on_both_databases(kept: Kept, note: str) -> None:
    kept.record.freeze(run=RUN, by=PERSON, note=note)

    refused(kept, call(10))
    assert kept.record.verify() == []


def test_a_subjects_changes_are_chained_by_subject(kept: Kept) -> None:
    with kept.executor() as executor:
        for role in ("reviewer", "owner"):
            note_subject(executor, kept.record.organization, "person:bob", what="role", by=PERSON, details={"role": role})
    kept.record.freeze(agent="person:bob", by=PERSON)

    entries = kept.record.entries(run="", key="person:bob")
    assert [(entry.kind, entry.seq) for entry in entries] == [("subject.noted", 1), ("subject.noted", 2), ("subject.frozen", 3)]
    assert entries[1].payload == {"what": "role", "role": "owner"}
    assert kept.record.verify() == []


def test_no_claim_slips_past_a_freeze(kept: Kept) -> None:
    """Once freeze has returned, no intent of the run is newer than it."""
    stop, errors = threading.Event(), []

    def work(number: int) -> None:
        count = 0
        while not stop.is_set() and count < 400:
            count += 1
            try:
                kept.record.claim(call(number * 1000 + count), claimant())
            except AgentFrozen:
                return
            except C4AError as error:  # pragma: no cover
                errors.append(error)
                return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    threading.Event().wait(0.05)
    kept.record.freeze(run=RUN, by=PERSON)
    frozen = next(entry.id for entry in kept.record.entries(run=RUN, key="run") if entry.kind == "run.frozen")
    stop.set()
    for thread in threads:
        thread.join(10)

    assert errors == []
    assert not [entry for entry in kept.record.entries(run=RUN, after=frozen, limit=5000) if entry.kind == "effect.running"]
