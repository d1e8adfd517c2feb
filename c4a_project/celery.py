"""The Celery app: `celery -A c4a_project worker` and `celery -A c4a_project beat`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "c4a_project.settings")

app = Celery("c4a")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
