"""Kill a real process at every moment, kill whoever recovers at every moment of that, and look what a third one finds.

    python -m tests.crash.matrix [--file] [--database URL] [--server URL --key KEY] [--scenario NAME] [--single] [--sample N] [--json]

For each way to act (`tests.crash.agent.SCENARIOS`) and each record: a first process is killed at moment i, a second one at moment
j of its recovery, a third lives. It must be told done, in doubt or not started, and be told so at once; the deed is never done twice
(with `idempotent_for` never under two keys), done means done outside too, and every chain and head verifies.

This process holds no connection and no thread, so its children are forked: real processes, 10 ms each.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.crash.agent import SCENARIOS, Place, World, live

AT_ONCE_SECONDS: Final = 5.0
"""Well under the lease of 15 s: what a process on the same machine left behind is known without waiting for it."""
ENDINGS: Final = ("done", "in doubt", "not started")


@dataclass(frozen=True)
class Ended:
    """One case: where the processes were killed, how it ended, and what was wrong."""

    place: str
    scenario: str
    killed_at: tuple[str, ...]
    ending: str
    wrong: tuple[str, ...] = ()


@dataclass
class Record:
    """Makes an empty record for a case (a file), or a run of its own in a shared one (a database, a server)."""

    kind: str
    folder: Path
    address: str = ""
    key: str | None = None
    _count: int = 0
    _template: Path | None = field(default=None)

    def fresh(self, scenario: str) -> tuple[Place, str, World]:
        """Where the case's processes act, in which run, on what world."""
        self._count += 1
        world = World(self.folder / f"world-{self.kind}-{self._count}")
        if self.kind != "file":
            return Place(self.kind, self.address, self.key), f"case-{self._count}-{os.getpid()}", world
        home = self.folder / f"record-{self._count}"
        if scenario != "opening":
            shutil.copytree(self._made(), home)
        return Place("file", str(home / "ledger.sqlite")), "run", world

    def _made(self) -> Path:
        if self._template is None:
            template = self.folder / "template"
            place = Place("file", str(template / "ledger.sqlite"))
            assert not _forked(lambda: _opened(place)).killed
            self._template = template
        return self._template


@dataclass(frozen=True)
class Life:
    """What became of one process."""

    killed: bool
    report: dict[str, Any]


def cases(record: Record, scenario: str, *, twice: bool, rng: random.Random | None = None, sample: int | None = None) -> Iterator[Ended]:
    """Every case of a scenario: killed once, and (`twice`) killed again while recovering; or a sample drawn of both."""
    whole = _run(record, scenario, [])
    yield whole.ended
    labels = whole.labels
    firsts = range(len(labels))
    if sample is not None and rng is not None and sample < len(labels):
        firsts = sorted(rng.sample(firsts, sample))  # type: ignore[assignment]
    for first in firsts:
        once = _run(record, scenario, [first], labels)
        yield once.ended
        if not twice:
            continue
        seconds = list(range(len(once.labels)))
        if sample is not None and rng is not None:
            seconds = rng.sample(seconds, min(2, len(seconds)))
        for second in seconds:
            yield _run(record, scenario, [first, second], labels, once.labels).ended


@dataclass(frozen=True)
class _Case:
    ended: Ended
    labels: list[str]


def _run(record: Record, scenario: str, kills: list[int], *known: list[str]) -> _Case:
    """Kill one process after the other, let the last live, and judge."""
    place, run, world = record.fresh(scenario)
    wrong: list[str] = []
    where: list[str] = []
    for number, kill_at in enumerate(kills):
        where.append(f"{kill_at}: {known[number][kill_at]}")
        life = _forked(lambda kill_at=kill_at: live(scenario, place, run, world, kill_at))  # type: ignore[misc]
        # With a database on the way a process may come by fewer moments than the one that showed them; then it lived.
        if not life.killed and place.kind == "file":
            wrong.append(f"process {number + 1} was not killed: {life.report}")
    life = _forked(lambda: live(scenario, place, run, world, None))
    seen = _forked(lambda: _inspected(place, run))
    ending = _judge(scenario, life, seen, world, wrong)
    shown = Ended(place.kind, scenario, tuple(where), ending, tuple(wrong))
    if place.kind == "file" and not wrong:
        shutil.rmtree(Path(place.address).parent, ignore_errors=True)
    return _Case(shown, life.report.get("labels", []))


TOLD: Final = {"done": "done", "effect-in-doubt": "in doubt", "raised": "in doubt", "approval-required": "not started"}
"""What the last process was told, and the ending it means."""
STATES: Final = {"done": ["done"], "in doubt": ["in_doubt"], "not started": []}


def _judge(scenario: str, life: Life, seen: Life, world: World, wrong: list[str]) -> str:
    """Name the ending and note everything that must not be."""
    told, found, lines = life.report.get("told"), seen.report, world.lines()
    if told not in TOLD or "states" not in found:
        wrong.append(f"the last process was told {told}: {life.report} {found}")
        return "failed"
    ending = TOLD[told]
    if found["states"] != STATES[ending]:
        wrong.append(f"told {ending}, but the record says {found['states']}")
    if (ending == "done" and not lines) or (ending == "not started" and lines):
        wrong.append(f"told {ending}, but {len(lines)} deeds")
    # The outside of an action that is sent again keeps one deed of each key.
    if len(set(lines) if scenario == "resent" else lines) > 1:
        wrong.append(f"done twice: {lines}")
    if found["findings"] or found["spent"] > 1:
        wrong.append(f"verify: {found['findings']}; {found['spent']} yeses spent")
    if life.report["seconds"] > AT_ONCE_SECONDS:
        wrong.append(f"told after {life.report['seconds']:.1f} s")
    return ending


def _opened(place: Place) -> dict[str, Any]:
    place.open()
    import c4a

    c4a.current_record().close()
    return {}


def _inspected(place: Place, run: str) -> dict[str, Any]:
    """What the record says at the end: states, spent yeses, and for a file whether all of it verifies."""
    import c4a

    place.open()
    record = c4a.current_record()
    # A shared record grows with every case and is verified once, at the end.
    findings = [str(one) for one in record.verify()] if place.kind == "file" else []
    entries = record.entries(run=run)
    spent = len({one.approval for one in entries if one.kind == "effect.running" and one.approval})
    return {"states": [one.state for one in record.effects(run=run)], "findings": findings, "spent": spent}


def verified(place: Place) -> list[str]:
    """What `verify` finds in a shared record after all cases."""
    life = _forked(lambda: {"findings": _found(place)})
    return list(life.report.get("findings", [f"verify failed: {life.report}"]))


def _found(place: Place) -> list[str]:
    import c4a

    place.open()
    return [str(one) for one in c4a.current_record().verify()]


def _forked(work: Callable[[], dict[str, Any]]) -> Life:
    """Run in a real process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            said = json.dumps(work())
        except BaseException:  # noqa: BLE001 - reported, not hidden
            said = json.dumps({"failed": traceback.format_exc()[-1500:]})
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return Life(killed, json.loads(said) if said else {})


def run_matrix(records: list[Record], scenarios: list[str], *, twice: bool, sample: int | None, seed: int) -> list[Ended]:
    """All cases of all scenarios on all records."""
    ended: list[Ended] = []
    for record in records:
        for scenario in scenarios:
            if scenario == "opening" and record.kind != "file":
                continue  # only a file is made by the agent that opens it
            ended += cases(record, scenario, twice=twice and scenario != "opening", rng=random.Random(seed), sample=sample)
        if record.kind == "database":
            wrong = verified(Place(record.kind, record.address, record.key))
            ended.append(Ended(record.kind, "verify", (), "done", tuple(wrong)))
    return ended


def table(ended: list[Ended], seconds: float) -> str:
    """The report, as Markdown."""
    lines = ["| record | scenario | cases | " + " | ".join(ENDINGS) + " | wrong |", "|---|---|---|" + "---|" * (len(ENDINGS) + 1)]
    groups: dict[tuple[str, str], list[Ended]] = collections.defaultdict(list)
    for one in ended:
        groups[one.place, one.scenario].append(one)
    for (place, scenario), each in groups.items():
        if scenario == "verify":
            continue
        counts = collections.Counter(one.ending for one in each)
        wrong = sum(bool(one.wrong) for one in each)
        lines.append(f"| {place} | {scenario} | {len(each)} | " + " | ".join(str(counts[name]) for name in ENDINGS) + f" | {wrong} |")
    total = len([one for one in ended if one.scenario != "verify"])
    lines.append(f"\n{total} cases, {sum(bool(one.wrong) for one in ended)} wrong, {seconds:.0f} s.")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run the matrix; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.matrix")
    parser.add_argument("--file", action="store_true")
    parser.add_argument("--database", help="an empty PostgreSQL database with the record's schema and an organization")
    parser.add_argument("--server", help="the address of a running server")
    parser.add_argument("--key", help="an agent key of that server")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    parser.add_argument("--single", action="store_true", help="kill one process only, not its recovery")
    parser.add_argument("--sample", type=int, help="only so many first moments a scenario, and two second ones of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for name in ("c4a.record.sqlite", "c4a.record.postgres", "c4a.record.http", "psycopg", "httpx"):
        importlib.import_module(name)  # before the forks, so that a process costs 10 ms and not 300
    os.environ.pop("C4A_SECRET", None)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="c4a-crash-") as place:
        os.chdir(place)
        records = [Record("file", Path(place))] if options.file or not (options.database or options.server) else []
        if options.database:
            records.append(Record("database", Path(place), options.database))
        if options.server:
            records.append(Record("server", Path(place), options.server, options.key))
        ended = run_matrix(records, options.scenario or list(SCENARIOS), twice=not options.single, sample=options.sample, seed=options.seed)
    if options.json:
        print(json.dumps([vars(one) for one in ended]))
    else:
        print(table(ended, time.monotonic() - began))
    for one in ended:
        if one.wrong:
            print(
                f"{one.place} {one.scenario} killed at {' then '.join(one.killed_at) or 'no moment'}: {'; '.join(one.wrong)}",
                file=sys.stderr,
            )
    return int(any(one.wrong for one in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
