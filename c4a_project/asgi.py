"""Everything under ASGI: the embedded default, and in production the process of long waits."""

import os
from concurrent.futures import ThreadPoolExecutor

# Under ASGI each request may meet another thread: connections come from a pool, not from the thread.
os.environ.setdefault("C4A_CONN_MAX_AGE", "0")
os.environ.setdefault("C4A_DATABASE_POOL", "true")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "c4a_project.settings")

from django.core.asgi import get_asgi_application

from c4a_project.body_limit import BodyLimit
from gateway.asgi import ApiApplication

application = BodyLimit(ApiApplication(get_asgi_application()))  # type: ignore[arg-type]  # Django's own types of ASGI are narrower

from c4a_project.checks import refuse_unsafe_start  # noqa: E402  (the settings must be read first)

# uvicorn imports this inside its event loop, where Django refuses to ask a database.
with ThreadPoolExecutor(max_workers=1) as outside_the_loop:
    outside_the_loop.submit(refuse_unsafe_start).result()
