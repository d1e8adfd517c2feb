-- The record, step 2, SQLite: tickets, the questions that agents put to people. Times are microseconds since 1970 (UTC).

-- A head, folded from its chain; `key` is the ticket's id, `number` its place among the tickets of its slot.
CREATE TABLE c4a_ticket (
    id INTEGER PRIMARY KEY,
    organization TEXT NOT NULL,
    run TEXT NOT NULL,
    key TEXT NOT NULL,
    slot TEXT NOT NULL,
    number INTEGER NOT NULL,
    tool TEXT NOT NULL,
    call_digest TEXT NOT NULL,
    explicit_key TEXT,
    state TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    why TEXT NOT NULL,
    mac TEXT NOT NULL,
    key_id TEXT NOT NULL,
    decided_by TEXT,
    decided_at INTEGER,
    reason TEXT,
    approval TEXT,
    waited INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    prev_digest TEXT NOT NULL,
    last_digest TEXT NOT NULL,
    last_payload_digest TEXT NOT NULL
);
-- Each index begins with another column: where two began alike, PostgreSQL would take either on tables never analysed, and a
-- plan cached then would walk all tickets of a run for ever after.
CREATE UNIQUE INDEX c4a_ticket_run ON c4a_ticket (key, organization, run);
-- Promise: the tickets of one action are counted. Serves the look for the latest.
CREATE UNIQUE INDEX c4a_ticket_number ON c4a_ticket (slot, organization, run, number);
-- Promise: one open ticket an action, and explicit key if it has one. Serves the list of open tickets and their expiry.
CREATE UNIQUE INDEX c4a_ticket_open ON c4a_ticket (organization, run, slot) WHERE state = 'open';
