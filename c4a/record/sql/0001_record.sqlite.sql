-- The record, step 1, SQLite. Times are microseconds since 1970 (UTC); digests are 64 hex characters.

CREATE TABLE c4a_meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- The truth: only ever added to.
CREATE TABLE c4a_entry (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    approval TEXT,
    payload TEXT,
    salt TEXT,
    payload_digest TEXT NOT NULL,
    actor TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    prev TEXT NOT NULL,
    digest TEXT NOT NULL
);

-- Promise: a chain (effect, gate, run or subject) has one entry at each place, so it can't fork, and
-- an intent is written once even if its head was deleted or set back.
CREATE UNIQUE INDEX c4a_entry_chain ON c4a_entry (organization, run, key, seq);

-- Promise: one yes is spent by one intent, whatever the heads say.
CREATE UNIQUE INDEX c4a_entry_spend ON c4a_entry (organization, run, approval)
    WHERE kind = 'effect.running' AND approval IS NOT NULL;

CREATE TRIGGER c4a_entry_no_delete BEFORE DELETE ON c4a_entry
BEGIN
    SELECT RAISE(ABORT, 'c4a_entry is append-only: entries are never deleted');
END;

-- The one exception is erasure: payload and salt may become NULL once an entry `entry.erased` (run '', key = digest) names the row.
CREATE TRIGGER c4a_entry_no_update BEFORE UPDATE ON c4a_entry
WHEN NOT (
    NEW.payload IS NULL AND NEW.salt IS NULL
    AND NEW.id = OLD.id AND NEW.organization = OLD.organization AND NEW.run = OLD.run AND NEW.key = OLD.key
    AND NEW.seq = OLD.seq AND NEW.kind = OLD.kind AND NEW.attempt = OLD.attempt AND NEW.approval IS OLD.approval
    AND NEW.payload_digest = OLD.payload_digest AND NEW.actor = OLD.actor AND NEW.recorded_at = OLD.recorded_at
    AND NEW.prev = OLD.prev AND NEW.digest = OLD.digest
    AND EXISTS (
        SELECT 1 FROM c4a_entry AS e
        WHERE e.organization = OLD.organization AND e.run = '' AND e.key = OLD.digest AND e.kind = 'entry.erased'
    )
)
BEGIN
    SELECT RAISE(ABORT, 'c4a_entry is append-only: entries are never changed');
END;

-- INSERT OR REPLACE deletes the old row without firing a DELETE trigger: refuse it before it begins, for every unique index.
CREATE TRIGGER c4a_entry_no_replace BEFORE INSERT ON c4a_entry
WHEN EXISTS (
        SELECT 1 FROM c4a_entry AS e
        WHERE e.organization = NEW.organization AND e.run = NEW.run AND e.key = NEW.key AND e.seq = NEW.seq
    )
    OR EXISTS (SELECT 1 FROM c4a_entry AS e WHERE e.id = NEW.id)
    OR (NEW.approval IS NOT NULL AND NEW.kind = 'effect.running' AND EXISTS (
        SELECT 1 FROM c4a_entry AS e
        WHERE e.organization = NEW.organization AND e.run = NEW.run AND e.approval = NEW.approval AND e.kind = 'effect.running'
            AND e.approval IS NOT NULL
    ))
BEGIN
    SELECT RAISE(ABORT, 'c4a_entry is append-only: an entry stands at this place already');
END;

-- Heads: the current state, folded from entries. They may be dropped and folded anew.
CREATE TABLE c4a_effect (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    tool TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    call_digest TEXT NOT NULL,
    args_digest TEXT NOT NULL,
    explicit_key TEXT,
    parent TEXT,
    approval TEXT,
    reason TEXT,
    error TEXT,
    note TEXT,
    settled_by TEXT,
    actor TEXT NOT NULL,
    token_hash TEXT NOT NULL,
    holder TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    waited INTEGER NOT NULL,
    asker_hash TEXT,
    asker_until INTEGER,
    first_at INTEGER NOT NULL,
    done_at INTEGER,
    happened_twice INTEGER NOT NULL,
    intent_seq INTEGER NOT NULL,
    result_seq INTEGER,
    seq INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    prev_digest TEXT NOT NULL,
    last_digest TEXT NOT NULL,
    last_payload_digest TEXT NOT NULL
);
-- Promise: one head an effect. The key stands before the run so that a look-up by key alone (`c4a resolve KEY`) needs no second
-- index: each index costs a page in every commit. A run's effects are found through the chain index of its entries.
CREATE UNIQUE INDEX c4a_effect_run ON c4a_effect (organization, key, run);
-- Serves the lease sweep and the in-doubt page.
CREATE INDEX c4a_effect_open ON c4a_effect (state, lease_until) WHERE state IN ('running', 'in_doubt');
-- Serves a no that comes while the approved action runs.
CREATE INDEX c4a_effect_gated ON c4a_effect (organization, run, call_digest) WHERE approval IS NOT NULL;

CREATE TABLE c4a_gate (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    tool TEXT NOT NULL,
    answer TEXT,
    reason TEXT,
    answered_by TEXT,
    answered_at INTEGER,
    seq INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    prev_digest TEXT NOT NULL,
    last_digest TEXT NOT NULL,
    last_payload_digest TEXT NOT NULL
);
CREATE UNIQUE INDEX c4a_gate_run ON c4a_gate (organization, run, key);

CREATE TABLE c4a_approval (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    run TEXT NOT NULL,
    approval TEXT NOT NULL,
    key TEXT NOT NULL,
    tool TEXT NOT NULL,
    explicit_key TEXT,
    state TEXT NOT NULL,
    approved_by TEXT NOT NULL,
    approved_at INTEGER NOT NULL,
    expires_at INTEGER,
    mac TEXT NOT NULL,
    key_id TEXT NOT NULL,
    gate_seq INTEGER NOT NULL,
    spent_by TEXT
);
CREATE UNIQUE INDEX c4a_approval_run ON c4a_approval (organization, run, approval);
-- Serves the gated claim's look for a yes: spent ones are not in it, so it stays as small as what is waiting.
CREATE INDEX c4a_approval_unspent ON c4a_approval (organization, run, key) WHERE state = 'unspent';

CREATE TABLE c4a_run (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    started_by TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    frozen_at INTEGER,
    frozen_by TEXT,
    frozen_note TEXT,
    seq INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    prev_digest TEXT NOT NULL,
    last_digest TEXT NOT NULL,
    last_payload_digest TEXT NOT NULL
);
CREATE UNIQUE INDEX c4a_run_run ON c4a_run (organization, run);

CREATE TABLE c4a_subject (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    frozen_at INTEGER,
    frozen_by TEXT,
    frozen_note TEXT,
    seq INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    prev_digest TEXT NOT NULL,
    last_digest TEXT NOT NULL,
    last_payload_digest TEXT NOT NULL
);
CREATE UNIQUE INDEX c4a_subject_key ON c4a_subject (organization, key);
