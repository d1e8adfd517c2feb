"""The people, agents and keys of the server's tests: an owner, a team mate and a stranger, who works elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from accounts import verbs
from accounts.models import Agent, Member, Organization, Role, ServiceAccount, User
from tests.server.callers import new_token

PASSWORD = "correct horse battery staple"
ACTOR = "system:tests"


@dataclass(frozen=True)
class Company:
    """One organization with an operator, an agent and keys."""

    organization: Organization
    owner: Member
    agent: Agent
    service: ServiceAccount
    key: str
    """The agent's: act, read."""
    actor: str
    """The agent's: act alone."""
    reader: str
    """A service's: read."""
    admin: str
    """A service's: admin, read."""
    decider: str
    """A service's: decide, read."""


def company(slug: str) -> Company:
    """Make an organization with everything in it."""
    organization = verbs.organization_create(slug, slug.title(), actor=ACTOR)
    owner = member(organization, f"owner@{slug}.example", Role.OPERATOR, Role.ADMIN)
    agent = Agent.objects.create(organization=organization, name="billing", owner=owner)
    service = ServiceAccount.objects.create(organization=organization, name="ops")
    return Company(
        organization=organization,
        owner=owner,
        agent=agent,
        service=service,
        key=verbs.key_create(agent, {"act", "read"}, actor=ACTOR).token,
        actor=verbs.key_create(agent, {"act"}, actor=ACTOR).token,
        reader=verbs.key_create(service, {"read"}, actor=ACTOR).token,
        admin=verbs.key_create(service, {"admin", "read"}, actor=ACTOR).token,
        decider=verbs.key_create(service, {"decide", "read"}, actor=ACTOR).token,
    )


def member(organization: Organization, email: str, *roles: str) -> Member:
    """A person with a password in an organization."""
    user = User.objects.create_user(email, PASSWORD, name=email.split("@", maxsplit=1)[0])
    return verbs.member_add(organization, user, roles=roles, actor=ACTOR)


def signed_in(one: Member | User) -> Client:
    """A browser in which this person is signed in."""
    client = Client()
    client.force_login(one.user if isinstance(one, Member) else one)
    return client


@dataclass
class Api:
    """The REST API as one key sees it."""

    key: str | None
    client: Client = field(default_factory=Client)

    def post(self, path: str, body: Any = None, **extra: Any) -> Reply:
        """POST JSON; `body` may be raw bytes."""
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body)
        content_type = extra.pop("content_type", "application/json")
        return Reply(self.client.post(f"/api/v1/{path}", data, content_type=content_type, **self._headers(extra)))

    def get(self, path: str, **extra: Any) -> Reply:
        """GET."""
        return Reply(self.client.get(f"/api/v1/{path}", **self._headers(extra)))

    def claim(self, run: str = "r1", tool: str = "pay", token: str | None = None, **more: Any) -> Reply:
        """Claim `pay(amount=10)` unless something else is said."""
        body: dict[str, Any] = {"run": run, "tool": tool, "token": token or new_token(), "arguments": {"amount": 10}}
        body.update(more)
        return self.post("effects/claim", {name: value for name, value in body.items() if value is not None})

    def doubt(self, run: str = "r1", **more: Any) -> str:
        """The key of an action in doubt."""
        token = new_token()
        key: str = self.claim(run, token=token, **more).json["key"]
        assert self.post(f"effects/{key}/fail", {"run": run, "token": token, "error": "boom"}).status == 200
        return key

    def _headers(self, extra: dict[str, Any]) -> dict[str, Any]:
        headers = {**({"Authorization": f"Bearer {self.key}"} if self.key is not None else {}), **extra.pop("headers", {})}
        return {"headers": headers, **extra}


class Reply:
    """An answer, with the problem's code at hand."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.status: int = response.status_code
        self.text: str = response.content.decode()
        self.type: str = response.headers["Content-Type"].partition(";")[0]

    @property
    def json(self) -> Any:
        """The document."""
        return json.loads(self.text)

    @property
    def code(self) -> str:
        """The stable code of a problem; it has the whole shape of RFC 9457."""
        assert self.type == "application/problem+json", (self.status, self.text)
        problem = self.json
        assert set(problem) == {"type", "title", "status", "detail", "code", "fields"}, problem
        assert problem["status"] == self.status
        assert problem["type"] == f"urn:c4a:problem:{problem['code']}"
        return str(problem["code"])
