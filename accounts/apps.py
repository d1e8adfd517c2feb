"""The app's place in Django."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """Organizations, people, agents and keys."""

    name = "accounts"
    verbose_name = "People, agents and keys"
