"""`manage.py record_rebuild`: fold the heads anew from the entries."""

from __future__ import annotations

from argparse import ArgumentParser

from django.core.management.base import BaseCommand

from c4a.record import verify
from ledger.executor import executor_default
from ledger.queries import organizations_recorded


class Command(BaseCommand):
    """Fold all heads anew; entries are never touched."""

    help = "Fold all heads anew from the entries, one transaction an organization. Live claims keep their token and get a fresh lease."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which organization."""
        parser.add_argument("--organization", help="the id of one organization (default: all)")

    def handle(self, *args: object, **options: str | None) -> None:
        """Rebuild and say how many heads were written."""
        named = options["organization"]
        for organization in [named] if named else organizations_recorded():
            self.stdout.write(f"{organization}: {verify.rebuild(executor_default(), organization)} heads")
