-- Least privilege on PostgreSQL. Run as the tables' owner after each `manage.py migrate` or `c4a migrate`:
--
--     psql "$OWNER_URL" -v app=c4a_app -f docs/deploy/postgresql-roles.sql
--
-- The owner migrates, rebuilds heads and erases; web, workers and agents sign in as the role named by `app`, which must exist.
-- Start-up check c4a.W002 says if a server's role can do more.

\set ON_ERROR_STOP on
BEGIN;
GRANT USAGE ON SCHEMA public TO :"app";
-- Django's own tables, where there are any.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO :"app";
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO :"app";
-- Entries are only ever added: the triggers refuse the rest, and this role cannot even take the triggers off.
REVOKE ALL ON c4a_entry, c4a_meta FROM :"app";
GRANT SELECT, INSERT ON c4a_entry, c4a_meta TO :"app";
-- Heads move, but none is ever dropped by hand.
REVOKE ALL ON c4a_effect, c4a_gate, c4a_approval, c4a_ticket, c4a_run, c4a_subject FROM :"app";
GRANT SELECT, INSERT, UPDATE ON c4a_effect, c4a_gate, c4a_approval, c4a_ticket, c4a_run, c4a_subject TO :"app";
COMMIT;
