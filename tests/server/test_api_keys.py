"""Keys: who may do what, and who may not any more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import verbs
from accounts.keys import caller_of_token, key_hash, key_new_token
from accounts.models import ApiKey, Role
from c4a.errors import RequestRefused
from c4a.record.dialects import Result, Statement
from ledger.executor import DjangoExecutor, executor_default
from ledger.models import Entry
from tests.server.cast import ACTOR, Api, Company, member


def test_it_refuses_a_request_without_a_key(acme: Company) -> None:
    reply = Api(None).get("effects")
    assert (reply.status, reply.code) == (401, "not-authenticated")
    assert reply.response.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", ["", "Basic abc", "Bearer", "Bearer nonsense", "Bearer c4a_aaaaaaaa_" + "x" * 43, "Bearer c4a_\x00"])
def test_it_refuses_a_key_it_never_gave_out(acme: Company, header: str) -> None:
    reply = Api(None).get("me", headers={"Authorization": header})
    assert (reply.status, reply.code) == (401, "not-authenticated")


def test_a_new_key_is_shown_by_no_repr(acme: Company) -> None:
    made, new = verbs.key_create(acme.agent, {"act"}, actor=ACTOR), key_new_token()
    assert made.token not in repr(made)
    assert new.token not in repr(new)


def test_it_refuses_a_revoked_key_at_once(acme: Company, agent: Api) -> None:
    assert agent.get("me").status == 200
    verbs.key_revoke(ApiKey.objects.get(token_hash=key_hash(acme.key)), actor=ACTOR)
    reply = agent.get("me")
    assert (reply.status, reply.code) == (401, "not-authenticated")
    assert "revoked" in reply.json["detail"]


def test_it_refuses_an_expired_key(acme: Company, agent: Api) -> None:
    ApiKey.objects.filter(token_hash=key_hash(acme.key)).update(expires_at=timezone.now() + timedelta(seconds=60))
    assert agent.get("me").status == 200
    ApiKey.objects.filter(token_hash=key_hash(acme.key)).update(expires_at=timezone.now() - timedelta(seconds=1))
    reply = agent.get("me")
    assert (reply.status, reply.code) == (401, "not-authenticated")
    assert "expired" in reply.json["detail"]


def test_it_finds_a_key_with_one_indexed_read_and_no_orm(acme: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[Statement] = []
    read = DjangoExecutor.read

    def counted(self: DjangoExecutor, asked: Sequence[Statement]) -> list[Result]:
        statements.extend(asked)
        return read(self, asked)

    monkeypatch.setattr(DjangoExecutor, "read", counted)
    with CaptureQueriesContext(connection) as queries:
        caller = caller_of_token(acme.key, now=timezone.now())
    assert (caller.organization, caller.actor) == (acme.organization.id, f"agent:{acme.agent.id}")
    assert len(statements) == 1
    assert len(queries) == 0


def test_it_stores_no_key_only_its_hash(acme: Company) -> None:
    row = ApiKey.objects.filter(token_hash=key_hash(acme.key)).values().get()
    secret = acme.key.rsplit("_", 1)[0]
    assert not any(acme.key in str(value) for value in row.values())
    assert row["prefix"] == secret.removeprefix("c4a_")[:8]


WRITES = [
    ("effects/claim", "act"),
    ("effects/heartbeat", "act"),
    ("effects/" + "a" * 64 + "/complete", "act"),
    ("effects/" + "a" * 64 + "/fail", "act"),
    ("effects/" + "a" * 64 + "/heartbeat", "act"),
    ("effects/" + "a" * 64 + "/release", "act"),
    ("effects/" + "a" * 64 + "/reclaim", "act"),
    ("effects/" + "a" * 64 + "/declare-dead", "act"),
    ("effects/" + "a" * 64 + "/ask", "act"),
    ("effects/" + "a" * 64 + "/answer", "act"),
    ("effects/" + "a" * 64 + "/resolve", "admin"),
    ("runs/r1/freeze", "admin"),
    ("runs/r1/thaw", "admin"),
    ("agents/agt_1/freeze", "admin"),
    ("agents/agt_1/thaw", "admin"),
]


@pytest.mark.parametrize(("path", "needs"), WRITES)
def test_it_refuses_a_write_without_its_scope(acme: Company, path: str, needs: str) -> None:
    keys = {"act": acme.key, "admin": acme.admin, "decide": acme.decider, "read": acme.reader}
    for has, key in keys.items():
        reply = Api(key).post(path, {})
        if has == needs:
            assert reply.status not in (401, 403), (has, reply.text)
        else:
            assert (reply.status, reply.code) == (403, "scope-refused")
            assert reply.json["fields"]["needs"] == [needs]


def test_it_refuses_a_read_without_its_scope(acme: Company) -> None:
    blind = Api(verbs.key_create(acme.agent, {"act"}, actor=ACTOR).token)
    for path in ("effects", "runs/r1/entries", "metrics"):
        reply = blind.get(path)
        assert (reply.status, reply.code) == (403, "scope-refused"), path
    # One action by its key it may see: reconciling needs it, and a claim would tell it the same.
    assert blind.get("effects/" + "a" * 64).status == 404
    assert blind.get("me").status == 200


def test_the_database_refuses_act_and_decide_on_one_key(acme: Company) -> None:
    key = ApiKey.objects.get(token_hash=key_hash(acme.key))
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk).update(can_decide=True)
    service = ApiKey.objects.get(token_hash=key_hash(acme.decider))
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiKey.objects.filter(pk=service.pk).update(can_act=True)
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk).update(service_account=acme.service)


def test_the_verb_refuses_scopes_that_a_holder_cannot_have(acme: Company) -> None:
    for holder, scopes in ((acme.agent, {"act", "decide"}), (acme.service, {"act"}), (acme.agent, set()), (acme.agent, {"fly"})):
        with pytest.raises(RequestRefused):
            verbs.key_create(holder, scopes, actor=ACTOR)


def test_a_persons_key_does_what_the_roles_allow_now(acme: Company) -> None:
    person = member(acme.organization, "ann@acme.example", Role.OPERATOR)
    api = Api(verbs.key_create(person, {"admin", "read"}, actor=ACTOR).token)
    assert api.post("runs/r9/freeze", {}).status == 200
    verbs.member_set_roles(person, [Role.AUDITOR], actor=ACTOR)
    assert api.post("runs/r9/thaw", {}).code == "scope-refused"
    assert api.get("effects").status == 200
    verbs.member_remove(person, actor=ACTOR)
    assert api.get("effects").code == "not-authenticated"


def test_a_persons_key_stops_with_the_persons_account(acme: Company) -> None:
    person = member(acme.organization, "ann@acme.example", Role.OPERATOR)
    api = Api(verbs.key_create(person, {"read"}, actor=ACTOR).token)
    assert api.get("effects").status == 200
    person.user.is_active = False
    person.user.save()
    assert api.get("effects").code == "not-authenticated"


def test_role_group_and_key_changes_are_entries(acme: Company) -> None:
    person = member(acme.organization, "ann@acme.example", Role.AUDITOR)
    verbs.member_set_roles(person, [Role.REVIEWER], actor=ACTOR)
    verbs.member_set_roles(person, [Role.REVIEWER], actor=ACTOR)
    group = verbs.group_create(acme.organization, "finance", "Finance", actor=ACTOR)
    verbs.group_add_member(group, person, actor=ACTOR)
    verbs.member_remove(person, actor=ACTOR)

    def noted(subject: str) -> list[str]:
        rows = Entry.objects.filter(organization=acme.organization.id, run="", key=subject, kind="subject.noted").order_by("seq")
        return [json.loads(row.payload or "{}")["what"] for row in rows]

    assert noted(person.subject) == ["member.added", "member.roles_changed", "member.removed"]
    assert noted(group.subject) == ["group.created", "group.member_added", "group.member_removed"]
    assert noted(f"key:{acme.key.split('_')[1]}") == ["key.created"]


def test_a_change_that_fails_leaves_no_entry(acme: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    person = member(acme.organization, "ann@acme.example", Role.AUDITOR)
    entries = Entry.objects.count()
    monkeypatch.setattr(verbs, "subject_entry", _broken)
    with pytest.raises(RuntimeError), transaction.atomic():
        verbs.member_set_roles(person, [Role.ADMIN], actor=ACTOR)
    person.refresh_from_db()
    assert person.roles == [Role.AUDITOR]
    assert Entry.objects.count() == entries


def test_a_group_takes_no_member_of_another_organization(acme: Company, other: Company) -> None:
    group = verbs.group_create(acme.organization, "finance", "Finance", actor=ACTOR)
    with pytest.raises(RequestRefused):
        verbs.group_add_member(group, other.owner, actor=ACTOR)
    assert not group.members.exists()


def test_a_database_that_agents_open_directly_holds_one_organization(db: None) -> None:
    executor_default().trip([Statement("INSERT INTO c4a_meta (name, value) VALUES ('organization', 'org_direct')", {})])
    assert verbs.organization_create("first", "First", actor=ACTOR).id == "org_direct"
    with pytest.raises(RequestRefused):
        verbs.organization_create("second", "Second", actor=ACTOR)


def _broken(*args: object, **kwargs: object) -> None:
    raise RuntimeError("the record is away")
