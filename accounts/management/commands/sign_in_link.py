"""`manage.py sign_in_link`: print a link that signs a person in once."""

from __future__ import annotations

from argparse import ArgumentParser

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from accounts.models import User
from accounts.verbs import sign_in_link_create


class Command(BaseCommand):
    """Print a one-time sign-in link, good for ten minutes."""

    help = "Print a link that signs a person in once, within ten minutes. Older links of that person stop working."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The e-mail address, and where the server is reached."""
        parser.add_argument("email", nargs="?", default="operator@demo.example", help="whom to sign in (default: %(default)s)")
        parser.add_argument("--base-url", default=settings.PUBLIC_URL, help="where the server is reached (default: %(default)s)")

    def handle(self, *args: object, **options: str) -> None:
        """Print the link alone, so that a script can use it."""
        email = options["email"].strip().lower()
        user = User.objects.filter(email=email, is_active=True).first()
        if user is None:
            raise CommandError(f"No active user {email!r}: make one with `manage.py createsuperuser` or `manage.py demo_organization`.")
        self.stdout.write(options["base_url"].rstrip("/") + sign_in_link_create(user))
