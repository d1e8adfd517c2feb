"""The C4A server: settings, start-up checks, and what joins the apps together."""

from c4a_project.celery import app as celery_app

__all__ = ["celery_app"]
