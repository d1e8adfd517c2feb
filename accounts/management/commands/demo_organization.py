"""`manage.py demo_organization`: an organization, an operator, an agent and its key to try things with."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from accounts.keys import key_hash
from accounts.models import Agent, ApiKey, Member, Organization, Role, User
from accounts.verbs import key_create, key_revoke, member_add, organization_create

ACTOR = "system:demo_organization"
EMAIL = "operator@demo.example"


class Command(BaseCommand):
    """Make the demo organization; run again, it changes nothing."""

    help = "Make the demo organization, its operator, agent and key (in var/demo-agent-key); print them as JSON. Again, it changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whether to make it in production too."""
        parser.add_argument("--in-production", action="store_true", help="make it in a production database too")

    def handle(self, *args: object, **options: bool) -> None:
        """Print organization, agent and key file as one JSON object."""
        if settings.PRODUCTION and not options["in_production"]:
            raise CommandError("This is a production server: pass --in-production if you do want a demo organization in it.")
        organization = Organization.objects.filter(slug="demo").first() or organization_create("demo", "Demo", actor=ACTOR)
        user = User.objects.filter(email=EMAIL).first() or User.objects.create_user(EMAIL, name="Demo operator")
        owner = Member.objects.filter(organization=organization, user=user, is_active=True).first()
        owner = owner or member_add(organization, user, roles=Role.values, actor=ACTOR)
        agent, _ = Agent.objects.get_or_create(organization=organization, name="demo-agent", defaults={"owner": owner})
        key_file = settings.VAR_DIR / "demo-agent-key"
        if not _is_usable(key_file, agent):
            _new_key(key_file, agent)
        answer = {
            "organization": organization.id,
            "slug": organization.slug,
            "operator": user.email,
            "agent": agent.id,
            "key_file": str(key_file),
        }
        self.stdout.write(json.dumps(answer))


def _is_usable(path: Path, agent: Agent) -> bool:
    if not path.exists():
        return False
    token = path.read_text(encoding="utf-8").strip()
    return ApiKey.objects.filter(token_hash=key_hash(token), agent=agent, revoked_at=None).exists()


def _new_key(path: Path, agent: Agent) -> None:
    """A new key in `path`, readable by its owner alone; keys whose text is lost are revoked."""
    for lost in ApiKey.objects.filter(agent=agent, name="demo", revoked_at=None):
        key_revoke(lost, actor=ACTOR)
    made = key_create(agent, {"act", "read"}, actor=ACTOR, name="demo", environment=ApiKey.Environment.TEST)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(made.token + "\n")
