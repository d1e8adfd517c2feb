"""`python -m benchmarks.record`: what an action costs on SQLite and PostgreSQL, beside two bare commits and call4agents.

Names a database with C4A_TEST_DATABASE_URL, else starts one from the test requirements. `--quick` for a short look,
`--million` adds the same figures at 1,000,000 entries, `--write FILE` keeps the report.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from benchmarks.contenders import Agent, postgres_floor, sqlite_floor
from benchmarks.delay import delayed
from benchmarks.measure import Figure, medians, table
from benchmarks.seed import seed_million

WRITERS: Final = 16


def main(argv: list[str] | None = None) -> int:
    """Measure, print the report, and exit 1 if a figure falls short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--write", type=Path)
    options = parser.parse_args(argv)
    rounds = 8 if options.quick else 60
    report: list[str] = [f"Python {platform.python_version()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"]
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="c4a-bench-") as folder:
        if options.only != "postgres":
            _sqlite(Path(folder), rounds, options, report, figures)
        if options.only != "sqlite":
            _postgres(Path(folder), rounds, options, report, figures)
    lines = ["\n### Musts\n", "| figure | measured | must | |", "|---|---|---|---|", *[figure.row() for figure in figures]]
    text = "\n".join([*report, *lines])
    print(text)
    if options.write:
        options.write.write_text(text + "\n", encoding="utf-8")
    return 0 if all(figure.holds for figure in figures) else 1


def _sqlite(folder: Path, rounds: int, options: argparse.Namespace, report: list[str], figures: list[Figure]) -> None:
    ours = Agent("c4a", str(folder / "ours" / "ledger.sqlite"))
    peer = Agent("call4agents", str(folder / "peer" / "ledger.sqlite"))
    floor = sqlite_floor(folder / "bare.sqlite")
    found = _measure(ours, peer, floor, rounds)
    report.append(table("SQLite", found))
    figures += [
        Figure("SQLite: new action against two bare commits", found["ours new"] / found["floor"], 1.5),
        Figure("SQLite: new action against call4agents", found["ours new"] / found["peer new"], 0.85),
        Figure("SQLite: repeat against call4agents", found["ours repeat"] / found["peer repeat"], 1.0),
        Figure("SQLite: approve + gated against call4agents", found["ours approved"] / found["peer approved"], 0.5),
        Figure("SQLite: pause + decide against call4agents", found["ours decided"] / found["peer decided"], 0.6),
    ]
    figures += _writers("SQLite", str(folder / "w-ours" / "l.sqlite"), str(folder / "w-peer" / "l.sqlite"), options, report, 1.0, 60.0)
    if options.million:
        ours.open(str(folder / "ours" / "ledger.sqlite"))
        seed_million(str(folder / "ours" / "ledger.sqlite"))
        figures += _at_a_million("SQLite", ours, peer, floor, found, rounds, report)


def _postgres(folder: Path, rounds: int, options: argparse.Namespace, report: list[str], figures: list[Figure]) -> None:
    from c4a.record.postgres import migrate
    from tests import services

    server = services.postgres_server_url(services.run_folder_make())
    urls = {name: services.database_create(server) for name in ("ours", "peer", "floor", "w_ours", "w_peer")}
    migrate(urls["ours"])
    migrate(urls["w_ours"])
    try:
        ours, peer, floor = Agent("c4a", urls["ours"]), Agent("call4agents", urls["peer"]), postgres_floor(urls["floor"])
        found = _measure(ours, peer, floor, rounds)
        report.append(table("PostgreSQL", found))
        figures += [
            Figure("PostgreSQL: new action against two bare inserts", found["ours new"] / found["floor"], 1.6),
            Figure("PostgreSQL: new action against call4agents", found["ours new"] / found["peer new"], 0.6),
            Figure("PostgreSQL: repeat against call4agents", found["ours repeat"] / found["peer repeat"], 1.0),
            Figure("PostgreSQL: approve + gated against call4agents", found["ours approved"] / found["peer approved"], 0.5),
            Figure("PostgreSQL: pause + decide against call4agents", found["ours decided"] / found["peer decided"], 0.6),
        ]
        figures += _with_delay(ours, peer, urls, max(2, rounds // 8), report)
        figures += _writers("PostgreSQL", urls["w_ours"], urls["w_peer"], options, report, 1.8, None)
        if options.million:
            ours.open(urls["ours"])
            seed_million(urls["ours"])
            figures += _at_a_million("PostgreSQL", ours, peer, floor, found, rounds, report)
    finally:
        for url in urls.values():
            services.database_drop(url)


def _measure(ours: Agent, peer: Agent, floor: object, rounds: int, *, first: int = 0) -> dict[str, float]:
    for agent in (ours, peer):
        for number in range(200):
            agent.new(number)
    base = first + 1_000_000
    return medians(
        {
            "floor": floor,  # type: ignore[dict-item]
            "ours new": lambda number: ours.new(base + number),
            "peer new": lambda number: peer.new(base + number),
            "ours repeat": ours.repeat,
            "peer repeat": peer.repeat,
            "ours approved": lambda number: ours.approved(base + number),
            "peer approved": lambda number: peer.approved(base + number),
            "ours decided": lambda number: ours.decided(base + number),
            "peer decided": lambda number: peer.decided(base + number),
        },
        rounds=rounds,
    )


def _with_delay(ours: Agent, peer: Agent, urls: dict[str, str], rounds: int, report: list[str]) -> list[Figure]:
    parts = urlsplit(urls["ours"])
    with delayed(parts.hostname or "127.0.0.1", parts.port or 5432, seconds=0.001) as port:
        ours.open(_through(urls["ours"], port))
        peer.open(_through(urls["peer"], port))
        found = medians(
            {
                "ours new": lambda number: ours.new(2_000_000 + number),
                "peer new": lambda number: peer.new(2_000_000 + number),
                "ours approved": lambda number: ours.approved(2_000_000 + number),
                "peer approved": lambda number: peer.approved(2_000_000 + number),
            },
            rounds=rounds,
        )
        report.append(table("PostgreSQL, 1 ms added to each round trip", found))
        ours.open(urls["ours"])
        peer.open(urls["peer"])
    return [
        Figure("PostgreSQL, +1 ms a trip: new action", found["ours new"] / 1000, 6, "ms"),
        Figure("PostgreSQL, +1 ms a trip: approve + gated", found["ours approved"] / 1000, 10, "ms"),
    ]


def _through(url: str, port: int) -> str:
    parts = urlsplit(url)
    user = f"{parts.username}{':' + parts.password if parts.password else ''}@" if parts.username else ""
    query = "&".join(filter(None, [parts.query, "sslmode=disable"]))
    return urlunsplit((parts.scheme, f"{user}127.0.0.1:{port}", parts.path, query, ""))


def _writers(
    name: str, ours: str, peer: str, options: argparse.Namespace, report: list[str], factor: float, p99_ms: float | None
) -> list[Figure]:
    seconds = 2.0 if options.quick else 6.0
    speeds: dict[str, list[tuple[float, float, float]]] = {"c4a": [], "call4agents": []}
    for _ in range(1 if options.quick else 3):
        for module, address in (("c4a", ours), ("call4agents", peer)):
            speeds[module].append(_throughput(module, address, seconds))
    told = {module: [statistics.median(column) for column in zip(*found, strict=True)] for module, found in speeds.items()}
    lines = [f"| {module} | {speed:,.0f} | {p99:,.1f} | {longest:,.1f} |" for module, (speed, p99, longest) in told.items()]
    report.append("\n".join([f"\n### {name}, {WRITERS} processes\n", "| | actions/s | p99 ms | max ms |", "|---|---|---|---|", *lines]))
    figures = [
        Figure(f"{name}: {WRITERS} processes, throughput of call4agents", told["c4a"][0] / told["call4agents"][0], factor, at_least=True)
    ]
    if p99_ms is not None:
        figures.append(Figure(f"{name}: {WRITERS} processes, p99", told["c4a"][1], p99_ms, "ms"))
    return figures


def _throughput(module: str, address: str, seconds: float) -> tuple[float, float, float]:
    context = multiprocessing.get_context("spawn")
    Agent(module, address)  # makes the record
    gate = context.Barrier(WRITERS)
    with context.Pool(WRITERS, initializer=_join, initargs=(gate,)) as pool:
        told = pool.map(_write_for, [(module, address, seconds, number) for number in range(WRITERS)], chunksize=1)
    latencies = sorted(one for times in told for one in times)
    return len(latencies) / seconds, latencies[int(len(latencies) * 0.99)] * 1000, latencies[-1] * 1000


_gate: object = None


def _join(gate: object) -> None:
    global _gate  # noqa: PLW0603
    _gate = gate


def _write_for(order: tuple[str, str, float, int]) -> list[float]:
    module, address, seconds, number = order
    agent = Agent(module, address)
    agent.new(-1 - number, run=f"writer-{number}-{time.time_ns()}")
    run = f"writer-{number}-{time.time_ns()}"
    _gate.wait()  # type: ignore[attr-defined]
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        agent.new(len(times), run=run)
        times.append(time.perf_counter() - start)
    return times


def _at_a_million(
    name: str, ours: Agent, peer: Agent, floor: object, small: dict[str, float], rounds: int, report: list[str]
) -> list[Figure]:
    found = _measure(ours, peer, floor, rounds, first=10_000_000)
    report.append(
        table(f"{name}, at 1,000,000 entries (ours)", {key: value for key, value in found.items() if key.startswith(("ours", "floor"))})
    )
    # The floor tells how much the machine itself changed between the two measurements.
    drift = found["floor"] / small["floor"]
    return [
        Figure(f"{name}: {what} at 1,000,000 entries against 1,000", found[f"ours {what}"] / small[f"ours {what}"] / drift, 1.3)
        for what in ("new", "repeat", "approved", "decided")
    ]


if __name__ == "__main__":
    sys.exit(main())
