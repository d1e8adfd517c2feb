"""The app's place in Django."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created


class LedgerConfig(AppConfig):
    """The record, seen by Django."""

    name = "ledger"
    verbose_name = "Record"

    def ready(self) -> None:
        """Give every new connection what the record's statements need of it."""
        from ledger.executor import connection_prepare

        connection_created.connect(connection_prepare, dispatch_uid="ledger.connection_prepare")
