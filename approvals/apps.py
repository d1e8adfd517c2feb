"""The app's place in Django."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Approvals: see the package's docstring."""

    name = "approvals"
    verbose_name = "Approvals"
