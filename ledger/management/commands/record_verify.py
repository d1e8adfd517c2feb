"""`manage.py record_verify`: check every chain and every head, of one organization or of all."""

from __future__ import annotations

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError

from c4a.record import verify
from ledger.executor import executor_default
from ledger.queries import organizations_recorded


class Command(BaseCommand):
    """Print what is not as it was written; exit 1 if anything is."""

    help = "Check the record: each chain is whole, each head is what its entries fold to. Exits 1 and says where if not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which organization."""
        parser.add_argument("--organization", help="the id of one organization (default: all)")

    def handle(self, *args: object, **options: str | None) -> None:
        """Check and report."""
        named = options["organization"]
        found = 0
        for organization in [named] if named else organizations_recorded():
            for finding in verify.verify(executor_default(), organization):
                found += 1
                self.stdout.write(f"{organization} {finding.run!r} {finding.key} entry {finding.seq}: {finding.problem}")
        if found:
            raise CommandError(
                f"{found} findings. Restore what was changed from a backup, or fold heads anew with `manage.py record_rebuild`."
            )
        self.stdout.write("The record is as it was written.")
