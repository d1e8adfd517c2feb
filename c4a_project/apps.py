"""The project's own place in Django, and the admin site it shows."""

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig as DjangoAdminConfig


class ProjectConfig(AppConfig):
    """Registers the start-up checks."""

    name = "c4a_project"
    verbose_name = "C4A"

    def ready(self) -> None:
        """Import the checks, which registers them."""
        from c4a_project import checks  # noqa: F401  (imported for its registrations)


class AdminConfig(DjangoAdminConfig):
    """The admin, on this project's site."""

    default_site = "c4a_project.admin_site.AdminSite"
