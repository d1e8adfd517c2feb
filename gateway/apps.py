"""The app's place in Django."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """Agents' REST for effects."""

    name = "gateway"
    verbose_name = "Gateway"
