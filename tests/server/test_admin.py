"""The admin: an owner sees the organization's things, a team mate without the role sees none, a stranger sees other things."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.keys import key_hash
from accounts.models import Agent, ApiKey, Group, Member, Organization, Role, User
from ledger.models import Effect, Entry
from tests.server.callers import new_token
from tests.server.cast import Api, Company, member, signed_in

LISTS = (
    "ledger/effect",
    "ledger/entry",
    "ledger/approval",
    "accounts/organization",
    "accounts/member",
    "accounts/group",
    "accounts/agent",
    "accounts/serviceaccount",
    "accounts/apikey",
)
FORMS = ("accounts/member", "accounts/group", "accounts/agent", "accounts/serviceaccount", "accounts/apikey")


@pytest.fixture
def owner(acme: Company) -> Client:
    """Acme's operator and admin."""
    return signed_in(acme.owner)


@pytest.fixture
def mate(acme: Company) -> Client:
    """A member of Acme without a role that opens the admin."""
    return signed_in(member(acme.organization, "mate@acme.example", Role.REVIEWER, Role.AUDITOR))


@pytest.fixture
def stranger(other: Company) -> Client:
    """The operator and admin of another organization."""
    return signed_in(other.owner)


@pytest.fixture
def superuser(db: None) -> Client:
    """Sees every organization."""
    return signed_in(User.objects.create_superuser("root@c4a.example", "x" * 20))


@pytest.fixture
def doubt(agent: Api) -> Effect:
    """An action of Acme in doubt."""
    return Effect.objects.get(key=agent.doubt("run-of-acme", tool="pay_acme"))


@pytest.mark.parametrize("page", LISTS)
def test_an_owner_sees_every_list(owner: Client, doubt: Effect, page: str) -> None:
    reply = owner.get(f"/admin/{page}/")
    assert reply.status_code == 200
    assert "'unsafe-eval'" in reply.headers["Content-Security-Policy"]


@pytest.mark.parametrize("page", ["", *(f"{page}/" for page in LISTS), *(f"{page}/add/" for page in FORMS)])
def test_a_team_mate_without_the_role_is_refused(mate: Client, page: str) -> None:
    reply = mate.get(f"/admin/{page}", follow=True)
    assert reply.status_code in (403, 404), page
    assert "pay_acme" not in reply.content.decode()


@pytest.mark.parametrize("page", LISTS)
def test_a_stranger_sees_nothing_of_it(stranger: Client, acme: Company, doubt: Effect, page: str) -> None:
    text = stranger.get(f"/admin/{page}/").content.decode()
    for mine in ("pay_acme", "run-of-acme", "owner@acme.example", acme.organization.id, acme.agent.id, f"c4a_{acme.key.split('_')[1]}"):
        assert mine not in text, (page, mine)


def test_a_stranger_finds_no_row_by_its_address(stranger: Client, owner: Client, acme: Company, doubt: Effect) -> None:
    entry = Entry.objects.filter(key=doubt.key).latest("id")
    key = ApiKey.objects.get(token_hash=key_hash(acme.key))
    group = Group.objects.create(organization=acme.organization, slug="g", name="G")
    rows = {
        f"ledger/effect/{doubt.pk}": ("change", "resolve"),
        f"ledger/entry/{entry.pk}": ("change",),
        f"accounts/member/{quote(acme.owner.pk)}": ("change", "end"),
        f"accounts/agent/{quote(acme.agent.pk)}": ("change",),
        f"accounts/group/{group.pk}": ("change",),
        f"accounts/apikey/{key.pk}": ("change", "revoke"),
        f"accounts/organization/{quote(acme.organization.pk)}": ("change",),
    }
    for row, pages in rows.items():
        for page in pages:
            assert owner.get(f"/admin/{row}/{page}/").status_code == 200, (row, page)
            reply = stranger.get(f"/admin/{row}/{page}/", follow=True)
            assert "Acme" not in reply.content.decode(), (row, page)
            assert "pay_acme" not in reply.content.decode(), (row, page)
            stranger.post(f"/admin/{row}/{page}/", {"verdict": "done", "attempt": 1, "note": "x"})
    doubt.refresh_from_db()
    key.refresh_from_db()
    acme.owner.refresh_from_db()
    assert (doubt.state, key.revoked_at, acme.owner.is_active) == ("in_doubt", None, True)


def test_nothing_of_the_record_can_be_added_changed_or_deleted(owner: Client, superuser: Client, doubt: Effect) -> None:
    for client in (owner, superuser):
        for model in ("effect", "entry", "approval"):
            assert client.get(f"/admin/ledger/{model}/add/").status_code == 403
        assert client.post(f"/admin/ledger/effect/{doubt.pk}/change/", {"tool": "x"}).status_code == 403
        assert client.post(f"/admin/ledger/effect/{doubt.pk}/delete/", {"post": "yes"}).status_code == 403
    doubt.refresh_from_db()
    assert doubt.tool == "pay_acme"


def test_an_operator_resolves_a_doubt(owner: Client, acme: Company, agent: Api, doubt: Effect) -> None:
    page = owner.get(f"/admin/ledger/effect/{doubt.pk}/change/").content.decode()
    assert f"/admin/ledger/effect/{doubt.pk}/resolve/" in page
    shown = owner.get(f"/admin/ledger/effect/{doubt.pk}/resolve/").content.decode()
    assert "&quot;amount&quot;:10" in shown
    assert "boom" in shown
    body = {"verdict": "done", "attempt": 1, "note": "seen at the bank", "result": '{"id": 1.50}'}
    assert owner.post(f"/admin/ledger/effect/{doubt.pk}/resolve/", body).status_code == 302
    assert agent.claim("run-of-acme", "pay_acme").json["result"] == {"id": 1.5}
    entry = Entry.objects.filter(key=doubt.key).latest("seq")
    assert (entry.kind, entry.actor) == ("effect.done", f"member:{acme.owner.id}")
    assert json.loads(entry.payload or "")["note"] == "seen at the bank"
    assert "/resolve/" not in owner.get(f"/admin/ledger/effect/{doubt.pk}/change/").content.decode()


def test_a_stale_or_hasty_verdict_is_refused(owner: Client, agent: Api, doubt: Effect) -> None:
    address = f"/admin/ledger/effect/{doubt.pk}/resolve/"
    for body in (
        {"verdict": "done", "attempt": 1, "note": ""},
        {"verdict": "done", "attempt": 1, "note": "   "},
        {"verdict": "maybe", "attempt": 1, "note": "x"},
        {"verdict": "done", "attempt": 2, "note": "x"},
        {"verdict": "done", "attempt": 1, "note": "x", "result": "not json"},
        {"verdict": "done", "attempt": 1, "note": "x", "result": "NaN"},
    ):
        assert owner.post(address, body).status_code == 422, body
    doubt.refresh_from_db()
    assert doubt.state == "in_doubt"


def test_not_done_on_a_lapsed_claim_needs_a_confirmation(owner: Client, agent: Api) -> None:
    token = new_token()
    key = agent.claim("r7", token=token).json["key"]
    agent.post(f"effects/{key}/fail", {"run": "r7", "token": token, "error": "timeout", "reason": "cancelled"})
    effect = Effect.objects.get(key=key)
    address = f"/admin/ledger/effect/{effect.pk}/resolve/"
    body = {"verdict": "not_done", "attempt": 1, "note": "asked the provider"}
    assert owner.post(address, body).status_code == 422
    assert owner.post(address, {**body, "confirm_lapsed": "on", "new_outside_key": "on"}).status_code == 302
    effect.refresh_from_db()
    assert (effect.state, effect.epoch) == ("not_done", 1)


def test_a_running_action_has_no_resolve(owner: Client, agent: Api) -> None:
    effect = Effect.objects.get(key=agent.claim("r8").json["key"])
    assert "/resolve/" not in owner.get(f"/admin/ledger/effect/{effect.pk}/change/").content.decode()
    reply = owner.post(f"/admin/ledger/effect/{effect.pk}/resolve/", {"verdict": "done", "attempt": 1, "note": "x"})
    assert reply.status_code == 422


def test_search_finds_by_run_and_by_the_beginning_of_a_key(owner: Client, agent: Api, doubt: Effect) -> None:
    agent.claim("elsewhere", "ship")
    for page in ("effect", "entry"):
        for term in ("run-of-acme", doubt.key[:10], doubt.key):
            text = owner.get(f"/admin/ledger/{page}/?q={term}").content.decode()
            assert "run-of-acme" in text, (page, term)
            assert "elsewhere" not in text
        assert "run-of-acme" not in owner.get(f"/admin/ledger/{page}/?q=nothing").content.decode().replace('value="run-of-acme"', "")


def test_filters_narrow_by_state(owner: Client, agent: Api, doubt: Effect) -> None:
    agent.claim("elsewhere", "ship")
    text = owner.get("/admin/ledger/effect/?state=in_doubt").content.decode()
    assert "run-of-acme" in text
    assert "elsewhere" not in text


def test_a_list_takes_few_queries_and_never_counts_the_table(owner: Client, agent: Api) -> None:
    for number in range(60):
        agent.claim(f"r{number}")
    with CaptureQueriesContext(connection) as queries:
        assert owner.get("/admin/ledger/effect/").status_code == 200
    texts = [query["sql"] for query in queries]
    assert len(texts) <= 6, texts
    counts = [text for text in texts if "COUNT(" in text]
    assert all("LIMIT 5000" in text for text in counts)
    assert "?p=2" in owner.get("/admin/ledger/effect/").content.decode()


def test_a_key_is_shown_once_and_revoked_by_a_post(owner: Client, acme: Company) -> None:
    body = {"name": "ci", "agent": acme.agent.pk, "can_act": "on", "environment": "test"}
    page = owner.post("/admin/accounts/apikey/add/", body, follow=True).content.decode()
    found = re.search(r"c4a_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", page)
    assert found
    assert Api(found[0]).get("me").json["environment"] == "test"
    assert found[0] not in owner.get("/admin/accounts/apikey/").content.decode()
    key = ApiKey.objects.get(name="ci")
    assert owner.get(f"/admin/accounts/apikey/{key.pk}/revoke/").status_code == 200
    assert Api(found[0]).get("me").status == 200
    assert owner.post(f"/admin/accounts/apikey/{key.pk}/revoke/").status_code == 302
    assert Api(found[0]).get("me").status == 401


def test_a_key_form_refuses_what_the_database_would(owner: Client, acme: Company, other: Company) -> None:
    before = ApiKey.objects.count()
    for body in (
        {"agent": acme.agent.pk, "can_act": "on", "can_decide": "on"},
        {"agent": acme.agent.pk, "member": acme.owner.pk, "can_read": "on"},
        {"service_account": acme.service.pk, "can_act": "on"},
        {"agent": acme.agent.pk},
        {"can_read": "on"},
        {"agent": other.agent.pk, "can_read": "on"},
    ):
        assert owner.post("/admin/accounts/apikey/add/", {"name": "x", "environment": "live", **body}).status_code == 200, body
    assert ApiKey.objects.count() == before


def test_a_persons_key_is_made_by_that_person_alone(owner: Client, superuser: Client, acme: Company) -> None:
    mate = member(acme.organization, "mate@acme.example", Role.REVIEWER)

    def make(client: Client, whose: Member) -> int:
        body = {"name": "x", "environment": "live", "member": whose.pk, "can_decide": "on"}
        return client.post("/admin/accounts/apikey/add/", body).status_code

    assert (make(owner, mate), make(superuser, mate), make(superuser, acme.owner)) == (200, 200, 200)
    assert make(owner, acme.owner) == 302
    assert list(ApiKey.objects.exclude(member=None).values_list("member", flat=True)) == [acme.owner.pk]


def test_members_and_groups_change_through_the_verbs(owner: Client, acme: Company) -> None:
    body = {"organization": acme.organization.pk, "email": "New@Acme.example", "roles": ["reviewer"]}
    assert owner.post("/admin/accounts/member/add/", body).status_code == 302
    new = Member.objects.get(user__email="new@acme.example")
    assert new.roles == ["reviewer"]
    assert owner.post(f"/admin/accounts/member/{new.pk}/change/", {"roles": ["reviewer", "auditor"]}).status_code == 302
    new.refresh_from_db()
    assert new.roles == ["auditor", "reviewer"]
    group = {"organization": acme.organization.pk, "slug": "finance", "name": "Finance", "members": [new.pk]}
    assert owner.post("/admin/accounts/group/add/", group).status_code == 302
    assert list(Group.objects.get(slug="finance").members.all()) == [new]
    assert owner.post(f"/admin/accounts/member/{new.pk}/end/").status_code == 302
    new.refresh_from_db()
    assert not new.is_active
    assert not Group.objects.get(slug="finance").members.exists()
    noted = [json.loads(entry.payload or "")["what"] for entry in Entry.objects.filter(key=new.subject).order_by("seq")]
    assert noted == ["member.added", "member.roles_changed", "member.removed"]
    assert {entry.actor for entry in Entry.objects.filter(key=new.subject)} == {acme.owner.subject}


def test_an_owner_adds_nobody_to_another_organization(owner: Client, other: Company) -> None:
    body = {"organization": other.organization.pk, "email": "spy@acme.example", "roles": ["admin"]}
    assert owner.post("/admin/accounts/member/add/", body).status_code == 200
    assert not Member.objects.filter(user__email="spy@acme.example").exists()
    owner.post("/admin/accounts/agent/add/", {"organization": other.organization.pk, "name": "spy"})
    assert not Agent.objects.filter(name="spy").exists()


def test_an_operator_alone_changes_no_people(acme: Company) -> None:
    operator = signed_in(member(acme.organization, "op@acme.example", Role.OPERATOR))
    assert operator.get("/admin/ledger/effect/").status_code == 200
    assert operator.get("/admin/accounts/member/").status_code == 403
    assert operator.get("/admin/accounts/apikey/add/").status_code == 403


def test_a_superuser_sees_and_makes_organizations(superuser: Client, acme: Company, doubt: Effect) -> None:
    assert "run-of-acme" in superuser.get("/admin/ledger/effect/").content.decode()
    assert superuser.post("/admin/accounts/organization/add/", {"slug": "new", "name": "New"}).status_code == 302
    assert Organization.objects.filter(slug="new").exists()
    assert superuser.post("/admin/accounts/user/add/", {"email": "A@new.example", "name": "A", "is_active": "on"}).status_code == 302
    assert not User.objects.get(email="a@new.example").has_usable_password()


def test_a_member_who_has_left_is_out(owner: Client, acme: Company) -> None:
    Member.objects.filter(pk=acme.owner.pk).update(is_active=False)
    assert owner.get("/admin/ledger/effect/").status_code in (302, 403)


def test_a_membership_is_ended_by_following_the_links_whatever_its_id(owner: Client, acme: Company) -> None:
    gone = member(acme.organization, "gone@acme.example", "reviewer")
    Member.objects.filter(pk=gone.pk).update(id="mem_222fd567b4da9c2891b8b3f0")  # `_22` is a quotation mark in the admin's addresses
    listed = owner.get("/admin/accounts/member/").content.decode()
    address = next(iter(re.findall(r'href="(/admin/accounts/member/mem[^"]*222fd567b4da9c2891b8b3f0/change/)', listed)))

    page = owner.get(address).content.decode()
    end = next(iter(re.findall(r'href="(/admin/accounts/member/[^"]*/end/)', page)))
    shown = owner.get(end).content.decode()
    assert "No such member" not in shown
    assert owner.post(end).status_code == 302

    assert not Member.objects.get(pk="mem_222fd567b4da9c2891b8b3f0").is_active
