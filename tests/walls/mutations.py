"""Every guard and the tests that must fail without it. Whoever adds a guard adds a row; see `tests/walls/mutate.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mutation:
    """One guard: `text` stands exactly once in `file` (from the root); with `instead` in its place, `tests` must fail.

    `tests` are pytest node ids, as few and as quick as show it.
    """

    guard: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]

    def applied_to(self, whole: str) -> str:
        """The file's text without the guard.

        Raises:
            ValueError: `text` does not stand there exactly once.
        """
        count = whole.count(self.text)
        if count != 1:
            raise ValueError(f"{self.guard}: expected its text once in {self.file}, found it {count} times; the guard moved, mend the row")
        return whole.replace(self.text, self.instead)


_SQLITE: Final = "c4a/record/sql/0001_record.sqlite.sql"
_POSTGRESQL: Final = "c4a/record/sql/0001_record.postgresql.sql"
_APPEND_ONLY: Final = "tests/walls/test_append_only.py"
_RECORD: Final = "tests/record"
_DOUBT: Final = "tests/library/test_effect_doubt.py"
_KEYS: Final = "tests/server/test_api_keys.py"
_EFFECTS: Final = "tests/server/test_api_effects.py"
_CLI: Final = "tests/cli"

MUTATIONS: Final[tuple[Mutation, ...]] = (
    # What the schema promises.
    Mutation(
        "an entry is never deleted (SQLite)",
        _SQLITE,
        "BEFORE DELETE ON c4a_entry\n",
        "BEFORE DELETE ON c4a_entry WHEN 1 = 0\n",
        (f"{_APPEND_ONLY}::test_an_entry_is_never_changed_or_deleted",),
    ),
    Mutation(
        "an entry is never changed (SQLite)",
        _SQLITE,
        "BEFORE UPDATE ON c4a_entry\nWHEN NOT (",
        "BEFORE UPDATE ON c4a_entry\nWHEN 1 = 0 AND NOT (",
        (f"{_APPEND_ONLY}::test_an_entry_is_never_changed_or_deleted",),
    ),
    Mutation(
        "erasure needs its own entry first (SQLite)",
        _SQLITE,
        "e.run = '' AND e.key = OLD.digest AND e.kind = 'entry.erased'",
        "1 = 1",
        (f"{_APPEND_ONLY}::test_an_entry_is_never_changed_or_deleted",),
    ),
    Mutation(
        "an entry is never replaced (SQLite)",
        _SQLITE,
        "SELECT RAISE(ABORT, 'c4a_entry is append-only: an entry stands at this place already')",
        "SELECT 1",
        (f"{_APPEND_ONLY}::test_the_entries_are_never_emptied_or_replaced",),
    ),
    Mutation(
        "an entry is never changed or deleted (PostgreSQL)",
        _POSTGRESQL,
        "CREATE TRIGGER c4a_entry_no_change BEFORE UPDATE OR DELETE ON c4a_entry FOR EACH ROW EXECUTE FUNCTION c4a_entry_refuse();",
        "",
        (f"{_APPEND_ONLY}::test_an_entry_is_never_changed_or_deleted",),
    ),
    Mutation(
        "the entries are never emptied (PostgreSQL)",
        _POSTGRESQL,
        "CREATE TRIGGER c4a_entry_no_truncate BEFORE TRUNCATE ON c4a_entry FOR EACH STATEMENT EXECUTE FUNCTION c4a_entry_refuse();",
        "",
        (f"{_APPEND_ONLY}::test_the_entries_are_never_emptied_or_replaced",),
    ),
    Mutation(
        "a chain has one entry at each place (PostgreSQL)",
        _POSTGRESQL,
        "CREATE UNIQUE INDEX c4a_entry_chain",
        "CREATE INDEX c4a_entry_chain",
        (f"{_APPEND_ONLY}::test_a_chain_cannot_fork",),
    ),
    Mutation(
        "a yes is spent by one intent (PostgreSQL)",
        _POSTGRESQL,
        "CREATE UNIQUE INDEX c4a_entry_spend",
        "CREATE INDEX c4a_entry_spend",
        (f"{_APPEND_ONLY}::test_a_yes_is_spent_by_one_intent_whatever_the_heads_say",),
    ),
    # Claims and approvals.
    Mutation(
        "an approval's signature is checked",
        "c4a/record/yes.py",
        "tool == call.tool and keyring.verifies(mac, key_id, APPROVAL_DOMAIN, fields)",
        "tool == call.tool",
        (f"{_APPEND_ONLY}::test_a_yes_changed_by_hand_buys_nothing",),
    ),
    Mutation(
        "an approval's signature binds its expiry",
        "c4a/record/yes.py",
        '"-" if expires_at is None else str(expires_at)]',
        '"-"]',
        (f"{_APPEND_ONLY}::test_a_yes_changed_by_hand_buys_nothing",),
    ),
    Mutation(
        "an explicit key keeps its meaning",
        "c4a/record/head.py",
        "if seen.state is None or seen.args_digest == call.args_digest:",
        "if True:",
        (f"{_EFFECTS}::test_an_explicit_key_names_one_action",),
    ),
    Mutation(
        "the token settles, and nobody without it",
        "c4a/record/settle.py",
        '_MINE: Final = "token_hash = :token_hash"',
        '_MINE: Final = ":token_hash = :token_hash"',
        (f"{_EFFECTS}::test_a_stranger_to_the_claim_cannot_settle_it",),
    ),
    Mutation(
        "a stopped run or agent claims nothing",
        "c4a/record/claim.py",
        "NOT EXISTS (SELECT 1 FROM c4a_run AS f WHERE",
        "1 = 1 OR NOT EXISTS (SELECT 1 FROM c4a_run AS f WHERE",
        (f"{_EFFECTS}::test_a_stopped_run_or_agent_claims_nothing",),
    ),
    # Doubt.
    Mutation(
        "a verdict names the attempt it judges",
        "c4a/record/doubt.py",
        "where = f\"state = 'in_doubt' AND attempt = :attempt AND",
        "where = f\"state = 'in_doubt' AND",
        (f"{_RECORD}/test_doubt.py::test_c_a9_a_verdict_about_an_older_attempt_is_refused_even_when_the_newer_is_in_doubt",),
    ),
    Mutation(
        "only what is in doubt is judged",
        "c4a/record/doubt.py",
        "where = f\"state = 'in_doubt' AND attempt = :attempt AND {ENTRIES_AGREE}\"",
        'where = "attempt = :attempt"',
        (f"{_RECORD}/test_doubt.py::test_a_verdict_on_what_is_settled_is_stale",),
    ),
    Mutation(
        "a proof of death is about this very process",
        "c4a/record/doubt.py",
        'where = f"attempt = :attempt AND holder = :holder AND ',
        'where = f"attempt = :attempt AND ',
        (f"{_RECORD}/test_doubt.py::test_a_proof_about_another_process_or_attempt_changes_nothing",),
    ),
    Mutation(
        "who did not ask does not answer",
        "c4a/record/doubt.py",
        "where = f\"state = 'in_doubt' AND asker_hash = :asker AND",
        "where = f\"state = 'in_doubt' AND",
        (f"{_RECORD}/test_doubt.py::test_nobody_answers_who_did_not_ask",),
    ),
    Mutation(
        "a heartbeat keeps only its own claim alive",
        "c4a/record/settle.py",
        "WHERE organization = :organization AND run = :run AND key = :key AND token_hash = :token_hash\n",
        "WHERE organization = :organization AND run = :run AND key = :key\n",
        (f"{_RECORD}/test_settle.py::test_another_callers_heartbeat_keeps_nobody_elses_claim_alive",),
    ),
    Mutation(
        "one caller asks outside",
        "c4a/record/doubt.py",
        "AND (asker_until IS NULL OR asker_until < {{now}} OR asker_hash = :asker)",
        "",
        (f"{_DOUBT}::test_c_a1_of_four_callers_one_asks_outside_and_one_new_attempt_runs",),
    ),
    Mutation(
        "reconcile waits for the provider's read lag",
        "c4a/record/doubt.py",
        "AND last_at <= {{now}} - :after",
        "",
        (f"{_DOUBT}::test_reconcile_after_leaves_the_outside_its_read_lag",),
    ),
    Mutation(
        "an action is sent again only within its window",
        "c4a/record/claim.py",
        "AND first_at > {{now}} - :window",
        "",
        (f"{_DOUBT}::test_outside_the_window_it_stays_in_doubt",),
    ),
    # The server's edge.
    Mutation(
        "a revoked key is refused",
        "accounts/keys.py",
        "if revoked_at is not None:",
        "if False:",
        (f"{_KEYS}::test_it_refuses_a_revoked_key_at_once",),
    ),
    Mutation(
        "an expired key is refused",
        "accounts/keys.py",
        "if expires_at is not None and _moment(expires_at) <= now:",
        "if False:",
        (f"{_KEYS}::test_it_refuses_an_expired_key",),
    ),
    Mutation(
        "a key does what its scopes say",
        "gateway/api.py",
        "if not caller.scopes & scopes:",
        "if False:",
        (f"{_KEYS}::test_it_refuses_a_write_without_its_scope", f"{_KEYS}::test_it_refuses_a_read_without_its_scope"),
    ),
    Mutation(
        "a key stops with its person's membership",
        "accounts/keys.py",
        "if is_member != 1:",
        "if False:",
        (f"{_KEYS}::test_a_persons_key_stops_with_the_persons_account",),
    ),
    Mutation(
        "a person's key does what the roles allow now",
        "accounts/keys.py",
        "scopes = {scope for scope in scopes if _ROLES_FOR[scope] & set(json.loads(roles))}",
        "pass",
        (f"{_KEYS}::test_a_persons_key_does_what_the_roles_allow_now",),
    ),
    Mutation(
        "the server: a digest sent along must be this call's",
        "gateway/calls.py",
        "    _refuse_other(body, key=key, call_digest=digest, args_digest=args_digest)\n",
        "",
        (f"{_EFFECTS}::test_it_computes_every_digest_and_refuses_another",),
    ),
    Mutation(
        "the server: a misspelt option is not ignored",
        "gateway/fields.py",
        "for name in given.keys() - self.fields.keys()]",
        "for name in ()]",
        ("tests/server/test_api_bodies.py::test_it_names_every_error_at_once",),
    ),
    Mutation(
        "the server: an error nobody foresaw tells nothing",
        "gateway/problems.py",
        'C4AError("Something unexpected went wrong; it was logged. A repeat with the same token is safe.")',
        "C4AError(str(error))",
        ("tests/server/test_api_bodies.py::test_an_unexpected_error_tells_nothing",),
    ),
    Mutation(
        "the server: a sign-in link works once",
        "accounts/verbs.py",
        "used = SignInLink.objects.filter(token_hash=digest, used_at=None, expires_at__gt=now, user__is_active=True)",
        "used = SignInLink.objects.filter(token_hash=digest, expires_at__gt=now, user__is_active=True)",
        ("tests/server/test_sign_in.py::test_a_link_signs_in_once",),
    ),
    Mutation(
        "the server: guessing passwords is throttled",
        "accounts/views.py",
        "if sign_in_is_throttled(request, email):",
        "if False:",
        ("tests/server/test_sign_in.py::test_guessing_is_throttled_for_the_pair_only",),
    ),
    Mutation(
        "the server: the admin shows an operator one organization",
        "ledger/scoped_admin.py",
        'return rows.filter(**{self.organization_field: getattr(request, "organization", "")})',
        "return rows",
        ("tests/server/test_admin.py::test_a_stranger_finds_no_row_by_its_address",),
    ),
    Mutation(
        "the server: the admin wants a role",
        "ledger/scoped_admin.py",
        'return bool(user.is_active and (user.is_superuser or self.roles & getattr(request, "roles", frozenset())))',
        "return True",
        ("tests/server/test_admin.py::test_an_operator_alone_changes_no_people",),
    ),
    Mutation(
        "the server: a failure inside a block undoes all of it",
        "ledger/executor.py",
        "            connection.needs_rollback = True\n",
        "",
        ("tests/server/test_executor.py::test_a_failure_inside_an_atomic_block_undoes_all_of_it",),
    ),
    Mutation(
        "the server: the ORM writes nothing of the record",
        "ledger/models.py",
        '        _refuse("update()")',
        "        return super().update(**kwargs)",
        ("tests/server/test_models.py::test_the_orm_writes_nothing_of_the_record",),
    ),
    # Running it.
    Mutation(
        "children die with a killed supervisor",
        "c4a_project/supervisor.py",
        "preexec_fn=_die_with_parent,",
        "preexec_fn=None,",
        ("tests/running/test_supervisor.py::test_children_end_even_if_the_supervisor_is_killed",),
    ),
    Mutation(
        "a child's own children end with it",
        "c4a_project/supervisor.py",
        "os.killpg(life.process.pid, signal.SIGKILL)",
        "os.kill(life.process.pid, signal.SIGKILL)",
        ("tests/running/test_supervisor.py::test_a_child_that_ignores_the_request_and_its_own_child_are_ended",),
    ),
    # The command line.
    Mutation(
        "the command line makes no record",
        "c4a/cli/records.py",
        "        file_check(Path(address))\n",
        "",
        (f"{_CLI}/test_bad_records.py::test_a_missing_record_is_not_made",),
    ),
    Mutation(
        "the command line refuses a server's own database",
        "c4a/cli/records.py",
        "connection.execute(\"SELECT 1 FROM c4a_meta WHERE name = 'server'\").fetchone()",
        "None",
        (f"{_CLI}/test_bad_records.py::test_a_servers_own_database_is_refused",),
    ),
    Mutation(
        "the command line refuses a key prefix that several actions share",
        "c4a/cli/records.py",
        "if len(keys) > 1:",
        "if len(keys) < 0:",
        (f"{_CLI}/test_doubts.py::test_resolve_refuses_a_prefix_that_several_keys_share",),
    ),
    Mutation(
        "the command line's verdict is about the attempt it names",
        "c4a/cli/doubts.py",
        "attempt=effect.attempt if options.attempt is None else options.attempt,",
        "attempt=effect.attempt,",
        (f"{_CLI}/test_doubts.py::test_resolve_refuses_a_verdict_on_an_older_attempt",),
    ),
    Mutation(
        "the command line escapes what could play with a terminal",
        "c4a/cli/output.py",
        "character if character.isprintable() else _escaped(character)",
        "character",
        (f"{_CLI}/test_doubts.py::test_doubt_shows_the_evidence_and_lets_no_text_play_with_the_terminal",),
    ),
    Mutation(
        "the command line ends quietly when its reader goes away",
        "c4a/cli/__init__.py",
        "if code not in (Exit.CLOSED, Exit.FAILED):",
        "if code:",
        (f"{_CLI}/test_ends.py::test_a_reader_that_goes_away_ends_it_quietly_with_141",),
    ),
    # The record, beyond what its schema promises.
    Mutation(
        "the record: a yes is not counted after a later no",
        "c4a/record/yes.py",
        "AND (n.kind = 'gate.denied' OR (n.kind = 'gate.withdrawn' AND n.approval = a.approval))",
        "AND n.kind = 'gate.withdrawn' AND n.approval = a.approval",
        (f"{_RECORD}/test_tamper.py::test_an_approval_row_set_back_after_a_no_buys_nothing",),
    ),
    Mutation(
        "the record: a yes stands at its own place in the gate's chain",
        "c4a/record/yes.py",
        " AND y.seq = a.gate_seq AND",
        " AND",
        (f"{_RECORD}/test_tamper.py::test_a_yes_moved_forward_in_the_gates_chain_does_not_pass_a_no",),
    ),
    Mutation(
        "the record: a yes with an intent is no candidate",
        "c4a/record/yes.py",
        "            AND s.approval IS NOT NULL\n    ) IS NULL",
        "            AND s.approval IS NULL\n    ) IS NULL",
        (f"{_RECORD}/test_tamper.py::test_an_approval_row_set_back_to_unspent_buys_nothing",),
    ),
    Mutation(
        "the record: a retry runs under the yes that it spent itself",
        "c4a/record/yes.py",
        "    ) = :key",
        "    ) IS NOT NULL",
        (f"{_RECORD}/test_tamper.py::test_a_head_that_names_somebody_elses_spent_yes_gets_no_retry",),
    ),
    Mutation(
        "the record: an approval's signature binds its run",
        "c4a/record/yes.py",
        "return [organization, run, tool,",
        "return [organization, tool,",
        (f"{_RECORD}/test_tamper.py::test_c_b1_a_signature_moved_with_its_entry_buys_nothing",),
    ),
    Mutation(
        "the record: an approval's signature binds its call",
        "c4a/record/yes.py",
        "run, tool, call_digest, key, approval,",
        "run, tool, key, approval,",
        (f"{_RECORD}/test_tamper.py::test_c_b1_a_signature_moved_with_its_entry_buys_nothing",),
    ),
    Mutation(
        "the record: an approval's signature binds its own id",
        "c4a/record/yes.py",
        "call_digest, key, approval, by,",
        "call_digest, key, by,",
        (f"{_RECORD}/test_tamper.py::test_c_b1_a_signature_under_a_fresh_id_buys_nothing",),
    ),
    Mutation(
        "the record: an approval's signature binds its explicit key",
        "c4a/record/yes.py",
        'key = "-" if explicit_key is None else "=" + explicit_key',
        'key = "-"',
        (f"{_RECORD}/test_tamper.py::test_a_yes_with_any_bound_field_changed_buys_nothing",),
    ),
    Mutation(
        "the record: a yes that names a key covers only that key",
        "c4a/record/yes.py",
        "AND (a.explicit_key IS NULL OR a.explicit_key = :explicit_key)\n",
        "\n",
        (f"{_RECORD}/test_answers.py::test_a_yes_that_names_a_key_covers_only_that_key",),
    ),
    Mutation(
        "the record: a yes is spent only with the head of its own claim",
        "c4a/record/yes.py",
        ") = 'running ' || :approval || ' ' || :token_hash",
        ") IS NULL",
        (f"{_RECORD}/test_answers.py::test_a_caller_who_loses_the_effect_keeps_its_yes",),
    ),
    Mutation(
        "the record: claims of one approved action take turns",
        "c4a/record/claim.py",
        "    if call.gated:\n        locks.append",
        "    if call.gated and not call.gated:\n        locks.append",
        (f"{_RECORD}/test_races.py::test_one_yes_for_8_callers_with_keys_of_their_own_buys_one",),
    ),
    Mutation(
        "the record: a retry needs a last entry that says not done",
        "c4a/record/claim.py",
        "AND e.digest = c4a_effect.last_digest AND e.kind = :was_kind",
        "AND e.digest = c4a_effect.last_digest",
        (f"{_RECORD}/test_tamper.py::test_a_head_set_to_not_done_starts_nothing",),
    ),
    Mutation(
        "the record: nothing is sent again that may still run",
        "c4a/record/claim.py",
        "    AND (asker_until IS NULL OR asker_until < {{now}})\n    AND {BODY_ENDED}",
        "    AND (asker_until IS NULL OR asker_until < {{now}})",
        (f"{_RECORD}/test_claim.py::test_c_a3_an_attempt_that_may_still_run_is_sent_again_only_after_lease_and_grace",),
    ),
    Mutation(
        "the record: nothing is sent again while somebody asks outside",
        "c4a/record/claim.py",
        "    AND (asker_until IS NULL OR asker_until < {{now}})\n",
        "",
        (f"{_RECORD}/test_claim.py::test_while_somebody_asks_outside_nobody_sends_it_again",),
    ),
    Mutation(
        "the record: nobody asks outside about what may still run",
        "c4a/record/doubt.py",
        "    AND last_at <= {{now}} - :after\n    AND {BODY_ENDED}\n",
        "    AND last_at <= {{now}} - :after\n",
        (f"{_RECORD}/test_doubt.py::test_nobody_asks_about_an_action_that_runs_or_may_still_run",),
    ),
    Mutation(
        "the record: not done on what may still run needs a confirmation",
        "c4a/record/doubt.py",
        'if verdict == "not_done" and not confirm_lapsed:',
        'if verdict == "not_done" and confirm_lapsed:',
        (f"{_RECORD}/test_doubt.py::test_not_done_on_what_may_still_run_needs_a_confirmation",),
    ),
    Mutation(
        "the record: a head that entries don't bear out is not judged, ended or lapsed",
        "c4a/record/entries.py",
        ") = 'effect.' || c4a_effect.state",
        ") IS NOT NULL",
        (
            f"{_RECORD}/test_doubt.py::test_a_head_set_to_in_doubt_by_hand_is_neither_asked_about_nor_resolved",
            f"{_RECORD}/test_tamper.py::test_a_head_set_back_to_running_and_lapsed_does_not_become_an_attempt",
        ),
    ),
    Mutation(
        "the record: done needs an entry that says so",
        "c4a/record/head.py",
        'if seen.payload is None and seen.note != "erased":',
        'if seen.payload is None and seen.note == "erased":',
        (f"{_RECORD}/test_tamper.py::test_a_head_set_to_done_does_not_pretend_a_result",),
    ),
    Mutation(
        "the record: an older attempt that is done after all stops the next one",
        "c4a/record/doubt.py",
        "\"state = 'not_done' AND happened_twice = 1\"",
        "\"state = 'not_done' AND happened_twice = 2\"",
        (f"{_RECORD}/test_settle.py::test_an_older_attempts_result_stops_a_third_attempt",),
    ),
    Mutation(
        "the record: a late failure voids the answer of whoever asked meanwhile",
        "c4a/record/settle.py",
        "settled_by = NULL, reason = :reason, error = :error, asker_hash = NULL, asker_until = NULL",
        "settled_by = NULL, reason = :reason, error = :error",
        (f"{_RECORD}/test_settle.py::test_a_late_failure_makes_the_answer_of_whoever_asked_meanwhile_stale",),
    ),
    Mutation(
        "the record: an entry is appended once however often its statements run",
        "c4a/record/entries.py",
        "), '') <> {head}.last_digest",
        "), '') <> ''",
        (f"{_RECORD}/test_database.py::test_c_e5_a_connection_lost_around_any_trip_is_settled_by_repeating",),
    ),
    Mutation(
        "the record: an organization sees its own effects only",
        "c4a/record/reads.py",
        'WHERE h.organization = :organization"""',
        'WHERE :organization = :organization"""',
        (f"{_RECORD}/test_claim.py::test_one_organization_reads_and_settles_nothing_of_another",),
    ),
    Mutation(
        "the record: an organization sees its own entries only",
        "c4a/record/reads.py",
        'FROM c4a_entry WHERE organization = :organization"""',
        'FROM c4a_entry WHERE :organization = :organization"""',
        (f"{_RECORD}/test_claim.py::test_one_organization_reads_and_settles_nothing_of_another",),
    ),
    Mutation(
        "the record: a claim looks at its own organization",
        "c4a/record/head.py",
        'WHERE h.organization = :organization AND h.run = :run AND h.key = :key"""',
        'WHERE h.run = :run AND h.key = :key"""',
        (f"{_RECORD}/test_claim.py::test_runs_and_organizations_do_not_share_effects",),
    ),
    Mutation(
        "the record: a newer schema is refused",
        "c4a/record/schema.py",
        "if version > SCHEMA_VERSION:",
        "if version > SCHEMA_VERSION + 1:",
        (
            f"{_RECORD}/test_file.py::test_a_newer_record_is_refused_and_left_as_it_is",
            f"{_RECORD}/test_database.py::test_a_newer_record_is_refused",
        ),
    ),
    Mutation(
        "the record: a network drive is refused",
        "c4a/record/sqlite.py",
        "if kind in NETWORK_FILESYSTEMS:",
        "if kind not in NETWORK_FILESYSTEMS and not kind:",
        (f"{_RECORD}/test_file.py::test_a_network_drive_is_refused_before_anything_is_made",),
    ),
    Mutation(
        "the record: a file is closed to others",
        "c4a/record/sqlite.py",
        "stat.S_IMODE(name.stat().st_mode) & 0o077",
        "stat.S_IMODE(name.stat().st_mode) & 0o000",
        (f"{_RECORD}/test_file.py::test_c_f2_a_record_that_others_could_read_is_made_private",),
    ),
    Mutation(
        "the record: another program's file is refused",
        "c4a/record/sqlite.py",
        "    elif not schema.version_of(connection):\n",
        "    elif schema.version_of(connection) < 0:\n",
        (f"{_RECORD}/test_file.py::test_another_programs_database_is_refused_and_left_as_it_is",),
    ),
    Mutation(
        "the record: another secret is refused (file)",
        "c4a/record/sqlite.py",
        "if not self._keyring.knows(known):",
        "if not known:",
        (f"{_RECORD}/test_file.py::test_another_secret_is_refused_until_the_former_is_named",),
    ),
    Mutation(
        "the record: another secret is refused (database)",
        "c4a/record/postgres.py",
        "if not self._keyring.knows(known):",
        "if not known:",
        (f"{_RECORD}/test_database.py::test_another_secret_is_refused_until_the_former_is_named",),
    ),
    Mutation(
        "the record: a database that forgets is refused",
        "c4a/record/postgres.py",
        "if got[name] not in good:",
        "if not got[name]:",
        (f"{_RECORD}/test_database.py::test_settings_that_forget_are_refused",),
    ),
    Mutation(
        "the record: an interrupted trip's answers go to nobody else",
        "c4a/record/postgres.py",
        "                self.connection.close()\n",
        "                pass\n",
        (f"{_RECORD}/test_database.py::test_an_interrupted_trip_poisons_no_connection",),
    ),
    Mutation(
        "the record: after a restart no stale connection is tried",
        "c4a/record/postgres.py",
        "                self._pool.drop_idle()\n",
        "",
        (f"{_RECORD}/test_database.py::test_c_e5_after_a_restart_every_idle_connection_is_stale_and_the_next_call_still_works",),
    ),
    Mutation(
        "the record: connections are bounded",
        "c4a/record/pool.py",
        "if self._made < self._size and not self._forking:",
        "if not self._forking:",
        (f"{_RECORD}/test_database.py::test_c_e6_a_caller_who_gets_no_connection_is_told_after_a_bounded_wait",),
    ),
    Mutation(
        "the record: nobody is notified unless somebody waits",
        _POSTGRESQL,
        "WHEN (OLD.waited > 0 AND OLD.state",
        "WHEN (OLD.state",
        (f"{_RECORD}/test_database.py::test_c_e4_nobody_is_notified_unless_somebody_waits",),
    ),
    Mutation(
        "the record: time never runs backwards within a chain",
        "c4a/record/entries.py",
        "    last_at = CASE WHEN last_at > {{now}} THEN last_at ELSE {{now}} END,\n",
        "    last_at = {{now}},\n",
        (f"{_RECORD}/test_claim.py::test_time_never_runs_backwards_within_a_chain",),
    ),
    Mutation(
        "the record: an edited entry is found",
        "c4a/record/fold.py",
        "if link.digest != _digest(link):",
        "if not link.digest:",
        (f"{_RECORD}/test_chain.py::test_case_75_one_edited_entry_is_pinpointed_on_both",),
    ),
    Mutation(
        "the record: an edited approval row is found",
        "c4a/record/verify.py",
        "if got.get(name) != expected.get(name)",
        "if got.get(name) is None",
        (f"{_RECORD}/test_tamper.py::test_verify_names_every_edited_head_and_rebuild_mends_it",),
    ),
    Mutation(
        "the record: a no that is repeated after a lost commit is written once",
        "c4a/record/entries.py",
        "AND e.payload_digest = :payload_digest) IS NULL",
        "AND e.payload_digest = :payload_digest) IS NULL OR 1 = 1",
        (f"{_RECORD}/test_database.py::test_case_80_a_no_repeated_after_a_lost_commit_does_not_void_a_newer_yes",),
    ),
    Mutation(
        "the record: a yes that is repeated after a lost commit is written once",
        "c4a/record/answers.py",
        "AND a.approval = :approval\n) IS NULL",
        "AND a.approval = ''\n) IS NULL",
        (f"{_RECORD}/test_database.py::test_case_80_a_yes_repeated_after_a_lost_commit_does_not_overtake_a_newer_no",),
    ),
    Mutation(
        "the record: a no voids nothing that came after it",
        "c4a/record/answers.py",
        "g.key = :key\n) = :payload_digest",
        "g.key = :key\n) IS NOT NULL",
        (f"{_RECORD}/test_database.py::test_case_80_a_no_repeated_after_a_lost_commit_does_not_void_a_newer_yes",),
    ),
    Mutation(
        "the record: a process proved gone leaves a doubt",
        "c4a/record/doubt.py",
        "\"state = 'in_doubt', reason = 'dead'\"",
        "\"state = 'not_done', reason = 'dead'\"",
        ("tests/crash/test_crash.py::test_one_kill_inside_the_action_is_in_doubt_at_once_for_the_next_process",),
    ),
    # Tickets.
    Mutation(
        "a ticket: its signature binds its row to one action",
        "c4a/record/ticket_row.py",
        "return keyring.verifies(row.mac, row.key_id, TICKET_DOMAIN, fields)",
        "return True",
        (f"{_RECORD}/test_tickets_forged.py::test_a_row_copied_into_another_run_can_not_be_answered",),
    ),
    Mutation(
        "a ticket: its text is compared with the row's",
        "c4a/record/ticket_row.py",
        "not hmac.compare_digest(row.ticket.text.encode(), text.encode()) or ",
        "",
        (f"{_RECORD}/test_tickets_forged.py::test_a_ticket_whose_text_was_edited_is_refused",),
    ),
    Mutation(
        "a ticket: what is no ticket's text is never looked for",
        "c4a/record/ticket_row.py",
        "_TEXT.fullmatch(text) if isinstance(text, str) else None",
        're.match("c4a1.(.*).(.*)", str(text))',
        (f"{_RECORD}/test_tickets_forged.py::test_what_is_no_ticket_is_refused",),
    ),
    Mutation(
        "a ticket: an edited row is answered by nobody",
        "c4a/record/ticket_end.py",
        "AND expires_at = :expires_at AND mac = :mac AND key_id = :key_id",
        "AND expires_at = :expires_at AND mac = :mac",
        (f"{_RECORD}/test_tickets_forged.py::test_a_ticket_whose_row_was_edited_buys_nothing",),
    ),
    Mutation(
        "a ticket: set back to open it is not answered again",
        "c4a/record/tickets.py",
        '{AS_SIGNED} AND {STILL_OPEN}"',
        "{AS_SIGNED} AND state = 'open'\"",
        (f"{_RECORD}/test_tickets_forged.py::test_case_28_a_ticket_set_back_to_open_by_hand_can_not_be_answered_again",),
    ),
    Mutation(
        "a ticket: nobody answers it after its time",
        "c4a/record/tickets.py",
        'f"expires_at > {{now}} AND {AS_SIGNED}',
        'f"{AS_SIGNED}',
        (f"{_RECORD}/test_tickets.py::test_case_82_a_tickets_time_is_judged_by_the_databases_clock",),
    ),
    Mutation(
        "a ticket: only the decision that closed it moves the gate",
        "c4a/record/tickets.py",
        'f"{not_yet} AND {_DECIDED}"',
        'f"{not_yet}"',
        (f"{_RECORD}/test_tickets.py::test_case_36_the_first_answer_counts_and_the_other_is_told_who_and_when",),
    ),
    Mutation(
        "a ticket: a no voids the yeses before it",
        "c4a/record/tickets.py",
        'not_yet_said("c4a_gate"), VOID_UNSPENT',
        'not_yet_said("c4a_gate"), "SELECT 1"',
        (f"{_RECORD}/test_tickets.py::test_c_b2_a_no_by_ticket_and_what_it_voids_are_one_transaction",),
    ),
    Mutation(
        "a ticket: a repeated yes does not overtake a newer no",
        "c4a/record/tickets.py",
        "not_yet, then = NOT_KEPT, KEEP_YES",
        'not_yet, then = "1 = 1", KEEP_YES',
        (f"{_RECORD}/test_tickets.py::test_case_80_a_decision_repeated_after_a_lost_commit_stands_once_and_overtakes_no_newer_answer",),
    ),
    Mutation(
        "a ticket: a frozen run opens none",
        "c4a/record/tickets.py",
        "    AND {NOT_FROZEN}\nON CONFLICT DO NOTHING",
        "\nON CONFLICT DO NOTHING",
        (f"{_RECORD}/test_tickets.py::test_a_frozen_run_or_agent_asks_nothing",),
    ),
    Mutation(
        "a ticket: an answer that counts is not asked for again",
        "c4a/record/tickets.py",
        ":again = 0 AND (t.state = 'denied' OR ",
        "1 = 0 AND (t.state = 'denied' OR ",
        ("tests/library/test_tickets.py::test_case_38_a_flow_that_begins_again_in_new_processes_asks_once",),
    ),
    Mutation(
        "a ticket: one is open at a time (SQLite)",
        "c4a/record/sql/0002_tickets.sqlite.sql",
        "CREATE UNIQUE INDEX c4a_ticket_open",
        "CREATE INDEX c4a_ticket_open",
        (f"{_RECORD}/test_tickets_forged.py::test_the_schema_refuses_a_second_open_ticket_and_a_second_of_one_number",),
    ),
    Mutation(
        "a ticket: one is open at a time (PostgreSQL)",
        "c4a/record/sql/0002_tickets.postgresql.sql",
        "CREATE UNIQUE INDEX c4a_ticket_open",
        "CREATE INDEX c4a_ticket_open",
        ("tests/walls/test_dialects.py::test_both_schemas_have_the_same_tables_columns_and_promises",),
    ),
    Mutation(
        "a ticket: people see the arguments they would say yes to",
        "c4a/record/ticket_row.py",
        "digest_of(row.ticket.tool, arguments) != row.ticket.call_digest",
        'arguments == ""',
        (f"{_RECORD}/test_tickets_forged.py::test_arguments_that_are_not_those_asked_about_are_not_shown",),
    ),
    Mutation(
        "a ticket: the sweep goes past a damaged one",
        "c4a/record/ticket_end.py",
        "    except RecordDamaged:\n        return 0",
        "    except RecordDamaged:\n        raise",
        (f"{_RECORD}/test_tickets.py::test_the_sweep_goes_past_a_damaged_ticket",),
    ),
    Mutation(
        "a ticket: silence is told as silence",
        "c4a/record/yes.py",
        "    if silence:",
        "    if False:",
        ("tests/library/test_tickets.py::test_case_31_silence_is_told_as_silence",),
    ),
    Mutation(
        "a ticket: a tool that a no would not stop is not asked about",
        "c4a/pauses.py",
        "if not asked_of.gated:",
        "if False:",
        ("tests/library/test_tickets.py::test_a_tool_that_needs_no_approval_is_not_asked_about",),
    ),
    Mutation(
        "a yes: a spent one is not withdrawn",
        "c4a/record/withdrawal.py",
        "AND {YES_STANDS} AND {NEVER_SPENT}",
        "AND {YES_STANDS}",
        (f"{_RECORD}/test_tickets_forged.py::test_a_spent_yes_set_back_by_hand_can_not_be_withdrawn",),
    ),
    Mutation(
        "a signature that is no text of ours is refused, not stumbled over",
        "c4a/record/keyring.py",
        ".encode(), mac.encode())",
        ", mac)",
        (f"{_RECORD}/test_tickets_forged.py::test_a_signature_that_is_none_is_refused_and_not_stumbled_over",),
    ),
    Mutation(
        "rotate: a compromised secret is forgotten",
        "c4a/cli/rotate.py",
        "        (beside / connect.FORMER_FILE).unlink(missing_ok=True)",
        "        pass",
        (f"{_CLI}/test_rotate.py::test_a_compromised_secret_buys_nothing_more_and_no_done_action_runs_again",),
    ),
    Mutation(
        "rotate: what it replaces is kept first",
        "c4a/secrets_beside.py",
        "    if present not in kept:",
        "    if False:",
        (f"{_CLI}/test_rotate.py::test_after_a_rotation_everything_signed_before_still_counts",),
    ),
)
