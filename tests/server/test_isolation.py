"""Every address: nobody without a key or a session gets anything but what is meant for everybody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver

from accounts import verbs
from accounts.models import Agent, ServiceAccount
from tests.server.cast import ACTOR, Api, Company, member, signed_in

PUBLIC = {"home", "accounts-sign-in", "accounts-sign-in-link", "accounts-sign-out", "admin:login", "admin:jsi18n"}
PUBLIC |= {"gateway-healthz", "gateway-readyz", "gateway-healthz-root", "gateway-readyz-root", "gateway-openapi", "gateway-api-reference"}
SAMPLES = {
    "<effect_key:key>": "a" * 64,
    "<path:run>": "r1",
    "<slug:agent>": "agt_1",
    "<path:object_id>": "1",
    "<str:token>": "t",
    "<str:ticket>": "tkt_" + "a" * 24,
    "<int:content_type_id>": "1",
    "<path:url>": "x",
}


def addresses(patterns: list[URLPattern | URLResolver], prefix: str = "", namespace: str = "") -> Iterator[tuple[str, str]]:
    """Every address with its name, its parts filled in."""
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns, route, f"{pattern.namespace}:" if pattern.namespace else namespace)
            continue
        for part, sample in SAMPLES.items():
            route = route.replace(part, sample)
        yield namespace + (pattern.name or ""), "/" + route.replace("^", "").replace("$", "")


ADDRESSES = sorted(
    {(name, address) for name, address in addresses(get_resolver().url_patterns) if name not in PUBLIC and "(" not in address}
)


@pytest.mark.parametrize(("name", "address"), ADDRESSES, ids=[address for _, address in ADDRESSES])
def test_nobody_gets_in_without_a_key_or_a_session(db: None, name: str, address: str) -> None:
    for method in ("get", "post"):
        reply = getattr(Client(), method)(address)
        if address.startswith("/api/"):
            assert reply.status_code in (401, 405), (method, reply.status_code)
        else:
            assert reply.status_code == 302, (method, reply.status_code)
            assert reply.headers["Location"].startswith(("/sign-in?next=", "/admin/login/?next=")), reply.headers["Location"]


def test_the_list_of_addresses_is_not_empty() -> None:
    assert len(ADDRESSES) > 60


@pytest.mark.parametrize("run", ["%00", "%20", "x" * 300])
def test_a_run_that_is_no_name_is_refused(acme: Company, run: str) -> None:
    reply = Api(acme.reader).get(f"runs/{run}/entries")
    assert reply.status in (400, 422), reply.text
    assert reply.code in ("invalid-arguments", "request-refused")


@pytest.mark.parametrize(
    "page",
    [
        "accounts/member",
        "accounts/group",
        "accounts/agent",
        "accounts/serviceaccount",
        "accounts/apikey",
        "ledger/entry",
        "ledger/approval",
    ],
)
def test_a_list_asks_as_often_for_many_rows_as_for_few(acme: Company, page: str) -> None:
    client = signed_in(acme.owner)

    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"/admin/{page}/").status_code == 200
        return len(queries)

    asked()
    few = asked()
    for number in range(5):
        member(acme.organization, f"m{number}@acme.example")
        verbs.group_create(acme.organization, f"g{number}", "G", actor=ACTOR)
        agent = Agent.objects.create(organization=acme.organization, name=f"a{number}", owner=acme.owner)
        service = ServiceAccount.objects.create(organization=acme.organization, name=f"s{number}")
        verbs.key_create(agent, {"act"}, actor=ACTOR)
        verbs.key_create(service, {"read"}, actor=ACTOR)
        verbs.key_create(acme.owner, {"read"}, actor=ACTOR)
    assert asked() == few <= 8
