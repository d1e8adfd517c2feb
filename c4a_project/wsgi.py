"""The pages and the API under WSGI, with connections kept between requests."""

import os

# A WSGI thread serves one request after another, so its connection is worth keeping. Read by the settings.
os.environ.setdefault("C4A_CONN_MAX_AGE", "600")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "c4a_project.settings")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()

from c4a_project.checks import refuse_unsafe_start  # noqa: E402  (the settings must be read first)

refuse_unsafe_start()
