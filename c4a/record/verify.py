"""Verify that the entries are what was written and that the heads are what they fold to; rebuild heads that aren't."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from c4a.record.dialects import Executor, Statement
from c4a.record.fold import LEASE_COLUMNS, Link, chain_problems, fold, fold_approvals
from c4a.record.types import DEFAULT_LEASE_SECONDS, Finding

PAGE_ROWS: Final = 2_000
LOOKS_AGAIN: Final = 2

_LINK: Final = """
SELECT organization, run, key, seq, kind, attempt, approval, payload, salt, payload_digest, actor, recorded_at, prev, digest
FROM c4a_entry
WHERE organization = :organization AND """

_ONE_CHAIN: Final = _LINK + "run = :run AND key = :key ORDER BY seq"

_LINKS: Final = (
    _LINK
    + """(run > :run OR (run = :run AND (key > :key OR (key = :key AND seq > :seq))))
ORDER BY run, key, seq LIMIT :limit"""
)

_SPENT: Final = """
SELECT approval, key FROM c4a_entry
WHERE organization = :organization AND run = :run AND kind = 'effect.running' AND approval IS NOT NULL"""

_HEAD_TABLES: Final = ("c4a_effect", "c4a_gate", "c4a_ticket", "c4a_run", "c4a_subject")
_COLUMNS: Final = {
    "c4a_effect": (
        "tool, state, attempt, epoch, call_digest, args_digest, explicit_key, parent, approval, reason, error, note, settled_by, actor, "
        "token_hash, first_at, done_at, happened_twice, intent_seq, result_seq, seq, last_at, prev_digest, last_digest, last_payload_digest"
    ),
    "c4a_gate": "tool, answer, reason, answered_by, answered_at, seq, last_at, prev_digest, last_digest, last_payload_digest",
    "c4a_ticket": (
        "slot, number, tool, call_digest, explicit_key, state, asked_by, asked_at, expires_at, why, mac, key_id, decided_by, decided_at, "
        "reason, approval, seq, last_at, prev_digest, last_digest, last_payload_digest"
    ),
    "c4a_run": "frozen_at, frozen_by, frozen_note, seq, last_at, prev_digest, last_digest, last_payload_digest",
    "c4a_subject": "frozen_at, frozen_by, frozen_note, seq, last_at, prev_digest, last_digest, last_payload_digest",
}
_APPROVAL_COLUMNS: Final = (
    "approval", "tool", "explicit_key", "state", "approved_by", "approved_at", "expires_at", "mac", "key_id", "gate_seq", "spent_by",
)  # fmt: skip


def verify(executor: Executor, organization: str) -> list[Finding]:
    """Check every chain and every head of an organization; an empty list means all is as written.

    Reads the record once from end to end in pages; memory stays flat. A record in use may
    move between the two looks at a chain and its head, so what is found is looked at again before it is said.
    """
    findings: list[Finding] = []
    for chain in _chains(executor, organization):
        run, key = chain[-1].run, chain[-1].key
        found = _findings(executor, organization, chain)
        for _ in range(LOOKS_AGAIN):
            if not found:
                break
            found = _findings(executor, organization, _chain(executor, organization, run, key))
        findings += found
    for table in _HEAD_TABLES:
        findings += _orphans(executor, organization, table)
    return findings


def rebuild(executor: Executor, organization: str) -> int:
    """Fold all heads of an organization anew from its entries, in one transaction; returns how many heads were written.

    Live claims keep their token and get a fresh lease; who asks outside, and who waits, is forgotten.
    Run it while nobody writes: what is written between reading and folding is refused or in doubt afterwards, never done twice.
    """
    statements: list[Statement] = [
        Statement(f"DELETE FROM {table} WHERE organization = :organization", {"organization": organization})
        for table in (*_HEAD_TABLES, "c4a_approval")
    ]
    runs: dict[str, Link] = {}
    heads: list[Statement] = []
    for chain in _chains(executor, organization):
        table, columns = fold(chain)
        if table == "c4a_run":
            runs.setdefault(chain[0].run, chain[0])
        elif chain[0].run:
            earliest = runs.get(chain[0].run)
            if earliest is None or chain[0].recorded_at < earliest.recorded_at or earliest.kind.startswith("run."):
                runs[chain[0].run] = chain[0]
        heads.append(_insert(table, columns | _LIVE.get(table, {})))
        if table == "c4a_gate":
            heads += [_insert("c4a_approval", row) for row in fold_approvals(chain, _spent(executor, organization, chain[0].run))]
    frozen = {str(one.params["run"]) for one in heads if one.sql.startswith("INSERT INTO c4a_run ")}
    for run, first in runs.items():
        if run not in frozen:
            heads.append(_insert("c4a_run", _bare_run(organization, run, first)))
    results = executor.trip(statements + heads)
    return sum(result.count for result in results[len(statements) :])


_LIVE: Final[dict[str, dict[str, Any]]] = {
    "c4a_effect": {"holder": "", "waited": 0, "asker_hash": None, "asker_until": None},
    "c4a_ticket": {"waited": 0},
}


def _bare_run(organization: str, run: str, first: Link) -> dict[str, Any]:
    return {
        "organization": organization, "run": run, "key": "run", "started_by": first.actor, "started_at": first.recorded_at,
        "frozen_at": None, "frozen_by": None, "frozen_note": None, "seq": 0, "last_at": 0, "prev_digest": "", "last_digest": "",
        "last_payload_digest": "",
    }  # fmt: skip


def _insert(table: str, columns: dict[str, Any]) -> Statement:
    names = list(columns)
    values = [f":{name}" for name in names]
    params = dict(columns)
    if table == "c4a_effect":
        names.append("lease_until")
        values.append("{now} + :lease")
        params["lease"] = int(DEFAULT_LEASE_SECONDS * 1_000_000)
    return Statement(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(values)})", params)


def _findings(executor: Executor, organization: str, chain: list[Link]) -> list[Finding]:
    """What is wrong with one chain and its head."""
    last = chain[-1]
    found = [Finding(last.run, last.key, seq, problem) for seq, problem in chain_problems(chain)]
    table, expected = fold(chain)
    found += _head_findings(executor, organization, table, expected)
    if table == "c4a_gate":
        found += _approval_findings(executor, organization, chain)
    return found


def _chain(executor: Executor, organization: str, run: str, key: str) -> list[Link]:
    rows = executor.read([Statement(_ONE_CHAIN, {"organization": organization, "run": run, "key": key})])[0].rows
    return [Link(*row) for row in rows]


def _chains(executor: Executor, organization: str) -> Iterator[list[Link]]:
    chain: list[Link] = []
    for link in _links(executor, organization):
        if chain and (chain[-1].run, chain[-1].key) != (link.run, link.key):
            yield chain
            chain = []
        chain.append(link)
    if chain:
        yield chain


def _links(executor: Executor, organization: str) -> Iterator[Link]:
    place: dict[str, Any] = {"organization": organization, "run": "", "key": "", "seq": 0, "limit": PAGE_ROWS}
    while True:
        rows = executor.read([Statement(_LINKS, place)])[0].rows
        for row in rows:
            yield Link(*row)
        if len(rows) < PAGE_ROWS:
            return
        last = rows[-1]
        place = place | {"run": last[1], "key": last[2], "seq": last[3]}


def _head_findings(executor: Executor, organization: str, table: str, expected: dict[str, Any]) -> Iterable[Finding]:
    names = _COLUMNS[table].split(", ")
    text = f"SELECT {_COLUMNS[table]} FROM {table} WHERE organization = :organization AND run = :run AND key = :key"
    place = {"organization": organization, "run": expected["run"], "key": expected["key"]}
    rows = executor.read([Statement(text, place)])[0].rows
    if not rows:
        return [Finding(expected["run"], expected["key"], expected["seq"], f"{table} has no head for this chain")]
    got = dict(zip(names, rows[0], strict=True))
    wrong = [name for name in names if name not in LEASE_COLUMNS and got[name] != expected.get(name)]
    return [
        Finding(
            expected["run"], expected["key"], expected["seq"], f"{table}.{name} is {got[name]!r}, the entries say {expected.get(name)!r}"
        )
        for name in wrong
    ]


def _approval_findings(executor: Executor, organization: str, chain: list[Link]) -> Iterable[Finding]:
    run, key = chain[0].run, chain[0].key
    text = f"SELECT {', '.join(_APPROVAL_COLUMNS)} FROM c4a_approval WHERE organization = :organization AND run = :run AND key = :key"
    got = {row[0]: row for row in executor.read([Statement(text, {"organization": organization, "run": run, "key": key})])[0].rows}
    expected = {
        row["approval"]: tuple(row[name] for name in _APPROVAL_COLUMNS)
        for row in fold_approvals(chain, _spent(executor, organization, run))
    }
    return [
        Finding(run, key, chain[-1].seq, f"approval {name} is {got.get(name)!r}, the entries say {expected.get(name)!r}")
        for name in sorted(got.keys() | expected.keys())
        if got.get(name) != expected.get(name)
    ]


def _spent(executor: Executor, organization: str, run: str) -> dict[str, str]:
    rows = executor.read([Statement(_SPENT, {"organization": organization, "run": run})])[0].rows
    return {str(approval): str(key) for approval, key in rows}


def _orphans(executor: Executor, organization: str, table: str) -> Iterable[Finding]:
    text = f"""
        SELECT run, key, seq FROM {table} AS h WHERE organization = :organization AND seq > 0 AND NOT EXISTS (
            SELECT 1 FROM c4a_entry AS e WHERE e.organization = h.organization AND e.run = h.run AND e.key = h.key
        )"""
    rows = executor.read([Statement(text, {"organization": organization})])[0].rows
    return [Finding(run, key, seq, f"{table} has a head without entries") for run, key, seq in rows]
