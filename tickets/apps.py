"""The app's place in Django."""

from django.apps import AppConfig


class TicketsConfig(AppConfig):
    """Tickets: see the package's docstring."""

    name = "tickets"
    verbose_name = "Tickets"
