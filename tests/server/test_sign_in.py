"""Signing in: password, one-time link, throttle."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from accounts.models import SignInLink
from accounts.verbs import sign_in_link_create
from tests.server.cast import PASSWORD, Company, signed_in

OWNER = "owner@acme.example"


def is_signed_in(client: Client) -> bool:
    """True if the session names a person."""
    return "_auth_user_id" in client.session


def test_a_person_signs_in_with_a_password(acme: Company) -> None:
    client = Client()
    assert client.get("/sign-in").status_code == 200
    reply = client.post("/sign-in", {"email": OWNER.upper(), "password": PASSWORD})
    assert (reply.status_code, reply.headers["Location"]) == (302, "/admin/")
    assert is_signed_in(client)


def test_the_session_gets_a_new_name_when_somebody_signs_in(acme: Company) -> None:
    client = Client()
    client.get("/sign-in")
    session = client.session
    session["x"] = 1
    session.save()
    client.cookies["sessionid"] = session.session_key or ""
    before = session.session_key
    client.post("/sign-in", {"email": OWNER, "password": PASSWORD})
    assert client.session.session_key != before


@pytest.mark.parametrize(
    ("email", "password"), [(OWNER, "wrong"), ("nobody@acme.example", PASSWORD), ("", ""), ("a\x00b@x.example", "x"), (OWNER, "")]
)
def test_a_wrong_pair_is_refused_without_saying_which(acme: Company, email: str, password: str) -> None:
    client = Client()
    reply = client.post("/sign-in", {"email": email, "password": password})
    assert reply.status_code == 422
    assert not is_signed_in(client)
    if email and password and "\x00" not in email:
        assert "That address and password do not match" in reply.content.decode()


def test_an_inactive_person_is_refused(acme: Company) -> None:
    acme.owner.user.is_active = False
    acme.owner.user.save()
    assert Client().post("/sign-in", {"email": OWNER, "password": PASSWORD}).status_code == 422


def test_guessing_is_throttled_for_the_pair_only(acme: Company, other: Company) -> None:
    for _ in range(5):
        assert Client().post("/sign-in", {"email": OWNER, "password": "wrong"}).status_code == 422
    reply = Client().post("/sign-in", {"email": OWNER, "password": PASSWORD})
    assert reply.status_code == 429
    assert reply.headers["Retry-After"] == "300"
    assert Client().post("/sign-in", {"email": "owner@other.example", "password": PASSWORD}).status_code == 302
    elsewhere = Client(REMOTE_ADDR="203.0.113.9").post("/sign-in", {"email": OWNER, "password": PASSWORD})
    assert elsewhere.status_code == 302


def test_a_forged_forwarding_header_evades_no_throttle(acme: Company) -> None:
    for number in range(5):
        Client().post("/sign-in", {"email": OWNER, "password": "wrong"}, headers={"X-Forwarded-For": f"198.51.100.{number}"})
    assert (
        Client().post("/sign-in", {"email": OWNER, "password": PASSWORD}, headers={"X-Forwarded-For": "198.51.100.99"}).status_code == 429
    )


def test_a_form_without_its_csrf_token_is_refused(acme: Company) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post("/sign-in", {"email": OWNER, "password": PASSWORD}).status_code == 403


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "/\\evil.example"])
def test_it_sends_nobody_to_another_site(acme: Company, target: str) -> None:
    reply = Client().post("/sign-in", {"email": OWNER, "password": PASSWORD, "next": target})
    assert reply.headers["Location"] == "/admin/"


def test_it_goes_on_to_the_page_that_was_wanted(acme: Company) -> None:
    client = Client()
    wanted = client.get("/admin/ledger/effect/?q=x").headers["Location"]
    assert wanted.startswith("/sign-in?next=")
    page = client.get(wanted).content.decode()
    assert 'name="next" value="/admin/ledger/effect/?q=x"' in page
    reply = client.post("/sign-in", {"email": OWNER, "password": PASSWORD, "next": "/admin/ledger/effect/?q=x"})
    assert reply.headers["Location"] == "/admin/ledger/effect/?q=x"


def test_a_link_signs_in_once(acme: Company) -> None:
    path = sign_in_link_create(acme.owner.user)
    first, second = Client(), Client()
    assert first.post(path).headers["Location"] == "/admin/"
    assert is_signed_in(first)
    assert second.post(path).status_code == 410
    assert not is_signed_in(second)
    assert second.get(path).status_code == 410


def test_looking_at_a_link_uses_nothing_up(acme: Company) -> None:
    path = sign_in_link_create(acme.owner.user)
    client = Client()
    for _ in range(3):
        page = client.get(path)
        assert (page.status_code, page.headers["Cache-Control"].count("no-store")) == (200, 1)
        assert 'method="post"' in page.content.decode()
    assert not is_signed_in(client)
    assert client.head(path).status_code == 200
    assert client.post(path).status_code == 302


def test_a_link_ends_after_ten_minutes(acme: Company) -> None:
    path = sign_in_link_create(acme.owner.user)
    link = SignInLink.objects.get()
    assert timedelta(seconds=595) < link.expires_at - timezone.now() <= timedelta(seconds=600)
    SignInLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert Client().post(path).status_code == 410


def test_a_new_link_ends_the_older_one(acme: Company) -> None:
    older = sign_in_link_create(acme.owner.user)
    newer = sign_in_link_create(acme.owner.user)
    assert Client().post(older).status_code == 410
    assert Client().post(newer).status_code == 302


def test_a_link_is_stored_as_a_hash(acme: Company) -> None:
    token = sign_in_link_create(acme.owner.user).rsplit("/", 1)[1]
    assert not SignInLink.objects.filter(token_hash__contains=token).exists()


def test_a_link_of_an_inactive_person_is_refused(acme: Company) -> None:
    path = sign_in_link_create(acme.owner.user)
    acme.owner.user.is_active = False
    acme.owner.user.save()
    assert Client().post(path).status_code == 410


def test_the_command_prints_a_link_that_works(acme: Company) -> None:
    out = StringIO()
    call_command("sign_in_link", OWNER, "--base-url", "http://127.0.0.1:9/", stdout=out)
    found = re.fullmatch(r"http://127\.0\.0\.1:9(/sign-in/link/\S+)\n", out.getvalue())
    assert found
    assert Client().post(found[1]).status_code == 302
    with pytest.raises(CommandError, match="No active user"):
        call_command("sign_in_link", "nobody@acme.example")


def test_signing_out_takes_a_post(acme: Company) -> None:
    client = signed_in(acme.owner)
    assert client.get("/sign-out").status_code == 405
    assert is_signed_in(client)
    assert client.post("/sign-out").status_code == 302
    assert not is_signed_in(client)


def test_the_page_runs_no_foreign_code(acme: Company) -> None:
    reply = Client().get("/sign-in")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in reply.content.decode()
    assert reply.headers["X-Frame-Options"] == "DENY"


def test_every_page_wants_somebody_signed_in(acme: Company) -> None:
    for path in ("/admin/", "/admin/ledger/effect/", "/admin/accounts/apikey/add/"):
        assert Client().get(path).status_code == 302, path


def test_a_person_without_a_password_sets_one(acme: Company) -> None:
    acme.owner.user.set_unusable_password()
    acme.owner.user.save()
    client = Client()
    client.post(sign_in_link_create(acme.owner.user))
    assert client.get("/password").status_code == 200
    new = "a long new phrase 7"
    assert client.post("/password", {"new_password1": new, "new_password2": "another"}).status_code == 422
    assert client.post("/password", {"new_password1": "12345678", "new_password2": "12345678"}).status_code == 422
    assert client.post("/password", {"new_password1": new, "new_password2": new}).status_code == 200
    assert client.get("/password").status_code == 200
    assert Client().post("/sign-in", {"email": OWNER, "password": new}).status_code == 302


def test_a_password_is_changed_by_whoever_knows_it_and_other_sessions_end(acme: Company) -> None:
    here, elsewhere = signed_in(acme.owner), signed_in(acme.owner)
    new = "a long new phrase 7"
    wrong = {"old_password": "wrong", "new_password1": new, "new_password2": new}
    assert here.post("/password", wrong).status_code == 422
    assert here.post("/password", {**wrong, "old_password": PASSWORD}).status_code == 200
    assert here.get("/password").status_code == 200
    assert elsewhere.get("/password").status_code == 302
