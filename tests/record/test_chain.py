"""Chains: every entry names the one before it, so an edit, a deletion and a swap are told apart and told where."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from c4a.record.entries import ENTRY_KINDS
from tests.record.cast import PERSON, RUN, Kept, approve, begun, call, claimant, deny, in_doubt


def unguarded(kept: Kept, text: str) -> None:
    """Change entries as somebody does who owns the database and lifts its triggers."""
    if kept.kind == "database":
        kept.sql(f"DO $$ BEGIN ALTER TABLE c4a_entry DISABLE TRIGGER USER; {text}; ALTER TABLE c4a_entry ENABLE TRIGGER USER; END $$")
        return
    triggers = [row[0] for row in kept.sql("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
    for name in [row[0] for row in kept.sql("SELECT name FROM sqlite_master WHERE type = 'trigger'")]:
        kept.sql(f"DROP TRIGGER {name}")
    for one in text.split(";"):
        kept.sql(one)
    for one in triggers:
        kept.sql(one)


def history(kept: Kept) -> None:
    """An effect with five entries, another one, a gate and a stopped run."""
    one = call(10)
    in_doubt(kept, one)
    kept.record.resolve(one.key, "not_done", attempt=1, note="looked", actor=PERSON)
    who, _ = begun(kept, one)
    kept.record.complete(one.run, one.key, who.token, result="1")
    begun(kept, call(11))
    approve(kept.record, call(12))
    deny(kept.record, call(12))
    kept.record.freeze(run=RUN, by=PERSON)


def found(kept: Kept) -> set[tuple[str, int]]:
    """Where `verify` sees something wrong: whose chain, which entry."""
    return {(finding.key, finding.seq) for finding in kept.record.verify()}


def test_every_chain_starts_empty_and_each_entry_names_the_one_before(kept: Kept) -> None:
    history(kept)
    chains: dict[str, list[Any]] = {}
    for entry in kept.record.entries():
        chains.setdefault(entry.key, []).append(entry)

    for chain in chains.values():
        assert [entry.seq for entry in chain] == list(range(1, len(chain) + 1))
        assert [entry.prev for entry in chain] == ["", *(entry.digest for entry in chain[:-1])]
    assert len(chains) == 4
    assert kept.record.verify() == []


@pytest.mark.parametrize("seq", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "edit",
    [
        "actor = 'agent:other'",
        "recorded_at = recorded_at - 1000000",
        "payload = '{}'",
        "kind = 'effect.happened_twice'",
        "attempt = attempt + 1",
        "prev = 'x'",
    ],
)
def test_case_75_one_edited_entry_is_pinpointed(kept_file: Kept, edit: str, seq: int) -> None:
    history(kept_file)
    key = call(10).key
    unguarded(kept_file, f"UPDATE c4a_entry SET {edit} WHERE key = '{key}' AND seq = {seq}")

    assert (key, seq) in found(kept_file)
    assert {where for where, _ in found(kept_file)} == {key}


@pytest.mark.parametrize("seq", [1, 3, 5])
@pytest.mark.parametrize("edit", ["actor = 'agent:other'", "payload = '{}'"])
def test_case_75_one_edited_entry_is_pinpointed_on_both(kept: Kept, edit: str, seq: int) -> None:
    history(kept)
    key = call(10).key
    unguarded(kept, f"UPDATE c4a_entry SET {edit} WHERE key = '{key}' AND seq = {seq}")

    assert (key, seq) in found(kept)


@pytest.mark.parametrize("seq", [1, 2, 3, 4])
def test_case_75_one_deleted_entry_is_pinpointed(kept: Kept, seq: int) -> None:
    history(kept)
    key = call(10).key
    unguarded(kept, f"DELETE FROM c4a_entry WHERE key = '{key}' AND seq = {seq}")

    assert (key, seq + 1) in found(kept)


def test_case_75_the_last_entry_deleted_is_seen_by_its_head(kept: Kept) -> None:
    history(kept)
    key = call(10).key
    unguarded(kept, f"DELETE FROM c4a_entry WHERE key = '{key}' AND seq = 5")

    assert key in {where for where, _ in found(kept)}


def test_case_75_a_whole_chain_deleted_is_seen_by_its_head(kept: Kept) -> None:
    history(kept)
    unguarded(kept, f"DELETE FROM c4a_entry WHERE key = '{call(11).key}'")

    assert [finding.problem for finding in kept.record.verify()] == ["c4a_effect has a head without entries"]


def test_case_75_two_swapped_entries_are_pinpointed(kept: Kept) -> None:
    history(kept)
    key = call(10).key
    swap = "; ".join(f"UPDATE c4a_entry SET seq = {to} WHERE key = '{key}' AND seq = {seq}" for seq, to in ((2, 99), (3, 2), (99, 3)))
    unguarded(kept, swap)

    assert {(key, 2), (key, 3)} <= found(kept)


def test_case_75_an_entry_moved_to_another_run_is_seen(kept: Kept) -> None:
    history(kept)
    unguarded(kept, f"UPDATE c4a_entry SET run = 'run-2' WHERE key = '{call(11).key}'")

    problems = {finding.problem for finding in kept.record.verify()}
    assert any("was changed" in problem for problem in problems)


def together(count: int, work: Callable[[int], object]) -> None:
    """All at the same moment."""
    barrier = threading.Barrier(count)

    def one(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, range(count)))


def test_case_75_20_events_at_once_the_very_first_among_them_make_one_chain(kept: Kept) -> None:
    together(20, lambda number: approve(kept.record, call(10), by=f"person:{number}"))
    chain = kept.record.entries(key=call(10).call_digest)

    assert [entry.seq for entry in chain] == list(range(1, 21))
    assert len({entry.actor for entry in chain}) == 20
    assert kept.record.verify() == []


def test_case_75_20_subject_events_at_once_make_one_chain(kept: Kept) -> None:
    from c4a.record.freeze import note_subject

    def note(number: int) -> None:
        with kept.executor() as executor:
            note_subject(executor, kept.record.organization, "person:bob", what="role", by=PERSON, details={"number": number})

    together(20, note)

    assert sorted(entry.payload["number"] for entry in kept.record.entries(key="person:bob")) == list(range(20))  # type: ignore[index]
    assert kept.record.verify() == []


def test_case_75_verify_gives_no_false_alarm_while_others_write(kept: Kept) -> None:
    stop = threading.Event()

    def write(number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            one = call(number * 10_000 + count % 40, gated=count % 2 == 0, key=f"{number}-{count % 60}")
            if one.gated:
                approve(kept.record, one)
            try:
                who = claimant()
                kept.record.claim(one, who)
                kept.record.fail(one.run, one.key, who.token, error="x", nothing_happened=True)
            except Exception:  # noqa: BLE001 - whoever loses a race tries the next one
                continue

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        alarms = [kept.record.verify() for _ in range(12)]
    finally:
        stop.set()
        for writer in writers:
            writer.join(10)

    assert [alarm for alarm in alarms if alarm] == []
    assert kept.record.verify() == []


def test_reading_in_pages_misses_and_repeats_nothing(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    from c4a.record import verify

    history(kept)
    monkeypatch.setattr(verify, "PAGE_ROWS", 3)
    with kept.executor() as executor:
        chains = list(verify._chains(executor, kept.record.organization))

    assert sum(len(chain) for chain in chains) == kept.count()
    assert len(chains) == 4
    assert kept.record.verify() == []


def test_every_kind_that_is_written_is_described(kept: Kept) -> None:
    history(kept)

    assert {entry.kind for entry in kept.record.entries()} <= set(ENTRY_KINDS)
