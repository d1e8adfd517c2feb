"""Every setting of the server, read once from the environment.

Two shapes. *Embedded* (nothing set): SQLite, a broker made of files and secrets of this machine, all under `var/`.
*Production* (`C4A_DATABASE_URL` set, or `C4A_PRODUCTION=true`): PostgreSQL and Redis, and no secret has a default.
A secret may come as `C4A_NAME` or, from a mounted file, as `C4A_NAME_FILE`. Start-up checks: `c4a_project/checks.py`.
"""

from __future__ import annotations

import os
import secrets
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static
from django.utils.csp import CSP

BASE_DIR = Path(__file__).resolve().parent.parent

INSECURE_DEFAULT = "insecure-default-set-a-secret-of-your-own-before-production-0000"
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"", "0", "false", "no", "off"})


# Typed readers of the environment: each says which name is wrong, what was expected and what was got.


def env_text(name: str, default: str = "") -> str:
    """The text of `name`, or of the file that `name_FILE` names, without the line end of a file."""
    path = os.environ.get(f"{name}_FILE", "")
    if not path:
        return os.environ.get(name, default)
    if name in os.environ:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set: set one of them.")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"{name}_FILE names {path!r}, which cannot be read as text: {error}") from error


def env_bool(name: str, default: bool) -> bool:
    """A yes or no; anything that is neither is an error, since a misspelt `flase` must not mean yes."""
    word = os.environ.get(name)
    if word is None:
        return default
    lowered = word.strip().lower()
    if lowered in TRUE_WORDS:
        return True
    if lowered in FALSE_WORDS:
        return False
    raise ImproperlyConfigured(f"{name} is {word!r}: expected one of true, false.")


def env_int(name: str, default: int, *, least: int = 0) -> int:
    """A whole number of at least `least`."""
    word = os.environ.get(name)
    if word is None or not word.strip():
        return default
    try:
        number = int(word)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {word!r}: expected a whole number.") from None
    if number < least:
        raise ImproperlyConfigured(f"{name} is {number}: expected at least {least}.")
    return number


def env_list(name: str, default: str) -> list[str]:
    """Words parted by commas, blanks around them dropped."""
    return [word.strip() for word in os.environ.get(name, default).split(",") if word.strip()]


def embedded_secret(name: str, file_name: str) -> str:
    """The secret `name`; embedded, one made once for this machine in `var/`; in production, a default that a check refuses."""
    given = env_text(name)
    if given:
        return given
    if PRODUCTION:
        return INSECURE_DEFAULT
    path = VAR_DIR / file_name
    try:
        # Linked into place whole, so that two processes starting at once read the same secret and none reads half of one.
        draft = VAR_DIR / f".{file_name}.{os.getpid()}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)
        finally:
            draft.unlink()
    except FileExistsError:
        pass
    return path.read_text(encoding="utf-8").strip()


# Where things are

VAR_DIR = Path(env_text("C4A_VAR_DIR", str(BASE_DIR / "var"))).resolve()
VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
PUBLIC_URL = env_text("C4A_PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/")

DATABASE_URL = env_text("C4A_DATABASE_URL")
DATABASE_DIRECT_URL = env_text("C4A_DATABASE_DIRECT_URL", DATABASE_URL)
"""For LISTEN only: a pooler such as PgBouncer drops notifications silently."""
REDIS_URL = env_text("C4A_REDIS_URL")
PRODUCTION = env_bool("C4A_PRODUCTION", bool(DATABASE_URL))
BEHIND_PROXY = env_bool("C4A_BEHIND_PROXY", False)
"""True: a reverse proxy in front sets X-Forwarded-Proto and appends to X-Forwarded-For; False: those headers are ignored."""

# Secrets

SECRET_KEY = embedded_secret("C4A_SECRET_KEY", "secret-key")
SECRET_KEY_FALLBACKS = [key for key in [env_text("C4A_OLD_SECRET_KEY")] if key]
RECORD_SECRET = embedded_secret("C4A_RECORD_SECRET", "record-secret")
"""Signs approvals (keyed MACs). Old ones stay readable: `C4A_OLD_RECORD_SECRETS`, parted by commas."""
OLD_RECORD_SECRETS = [secret for secret in env_text("C4A_OLD_RECORD_SECRETS").split(",") if secret]
DIGEST_KEY = embedded_secret("C4A_DIGEST_KEY", "digest-key")
"""Keys the digests of secret arguments; each organization gets its own key derived from it. Made once, never changed."""

# Django

DEBUG = env_bool("C4A_DEBUG", False)
ALLOWED_HOSTS = env_list("C4A_ALLOWED_HOSTS", "" if PRODUCTION else "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env_list("C4A_CSRF_TRUSTED_ORIGINS", PUBLIC_URL if PRODUCTION else "")
ROOT_URLCONF = "c4a_project.urls"
WSGI_APPLICATION = "c4a_project.wsgi.application"
ASGI_APPLICATION = "c4a_project.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True

INSTALLED_APPS = [
    "c4a_project.apps.ProjectConfig",
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "c4a_project.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "ledger.apps.LedgerConfig",
    "accounts.apps.AccountsConfig",
    "tickets.apps.TicketsConfig",
    "approvals.apps.ApprovalsConfig",
    "gateway.apps.GatewayConfig",
]

MIDDLEWARE = [
    # First, and the last that an API request meets: agents have keys, no session, no form and no page to protect.
    "gateway.middleware.ApiMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "c4a_project.static_files.StaticFilesMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "accounts.middleware.OrganizationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.csp",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# Database. ATOMIC_REQUESTS stays off: the outermost verb opens the one transaction.

CONN_MAX_AGE = env_int("C4A_CONN_MAX_AGE", 0)
"""Seconds a connection is kept; `wsgi.py` raises it, under ASGI it must stay 0 (each request may meet another thread)."""


def sqlite_database(path: Path) -> dict[str, Any]:
    """A durable SQLite file, readable by its owner alone."""
    if not path.exists():
        # Made before SQLite makes it: the -wal and -shm files beside it take over its mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "CONN_MAX_AGE": CONN_MAX_AGE,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # Pages of 2 KB: a commit writes whole pages, and an entry is small. Only a new file heeds it.
            "init_command": "PRAGMA page_size=2048; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON",
        },
    }


def postgresql_database(url: str) -> dict[str, Any]:
    """The PostgreSQL database of `url` (`postgresql://user:password@host:port/name?option=value`).

    Raises:
        ImproperlyConfigured: another scheme, or no database name.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ImproperlyConfigured(f"C4A_DATABASE_URL has scheme {parts.scheme!r}: expected postgresql://user:password@host:port/name.")
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise ImproperlyConfigured("C4A_DATABASE_URL names no database: expected postgresql://user:password@host:port/name.")
    from psycopg import IsolationLevel

    options: dict[str, Any] = dict(parse_qsl(parts.query))
    options["isolation_level"] = IsolationLevel.READ_COMMITTED
    if CONN_MAX_AGE == 0 and env_bool("C4A_DATABASE_POOL", False):
        options["pool"] = {"min_size": 0, "max_size": env_int("C4A_DATABASE_POOL_SIZE", 8, least=1), "timeout": 20}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": CONN_MAX_AGE,
        # No SELECT 1 before each request: the executor opens a lost connection anew and repeats what is safe to repeat.
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": options,
    }


DATABASES = {"default": postgresql_database(DATABASE_URL) if DATABASE_URL else sqlite_database(VAR_DIR / "c4a.sqlite")}

CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL, "KEY_PREFIX": "c4a"}
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}

# People

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
LOGIN_URL = "accounts-sign-in"
LOGIN_REDIRECT_URL = "admin:index"
LOGOUT_REDIRECT_URL = "accounts-sign-in"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
SESSION_COOKIE_AGE = int(timedelta(hours=12).total_seconds())
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
SIGN_IN_LINK_SECONDS = 600

# Security

HTTPS = env_bool("C4A_HTTPS", PRODUCTION)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
FILE_UPLOAD_MAX_MEMORY_SIZE = DATA_UPLOAD_MAX_MEMORY_SIZE

SECURE_CSP: dict[str, list[str]] = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF, CSP.NONCE],
    "style-src": [CSP.SELF, CSP.NONCE],
    "img-src": [CSP.SELF, "data:"],
    "font-src": [CSP.SELF],
    "connect-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
    "object-src": [CSP.NONE],
}
ADMIN_CSP: dict[str, list[str]] = {
    **SECURE_CSP,
    # django-unfold's Alpine evaluates expressions and its templates carry style attributes and inline scripts.
    "script-src": [CSP.SELF, CSP.UNSAFE_INLINE, CSP.UNSAFE_EVAL],
    "style-src": [CSP.SELF, CSP.UNSAFE_INLINE],
}

# Static files: hashed names once `collectstatic` has run (`make run` and the image do), else straight from the apps.

STATIC_URL = "/static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_COLLECTED = PRODUCTION or "collectstatic" in sys.argv[1:2] or (STATIC_ROOT / "staticfiles.json").exists()
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = not STATIC_COLLECTED
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_COLLECTED
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# REST API

REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "C4A",
    "VERSION": "1",
    "DESCRIPTION": "An agent's action runs once, with a human yes bound to exactly the action shown.",
    "OAS_VERSION": "3.1.1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "APPEND_COMPONENTS": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "c4a_…"}}},
    "SECURITY": [{"key": []}],
}
WAIT_SECONDS_MAX = 60

# Background work. The broker only wakes; what must happen stands in a row and a sweep finds it.

QUEUE_DIR = VAR_DIR / "queue"
CELERY_BROKER_URL = REDIS_URL or "filesystem://localhost//"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = (
    # A task not acknowledged for this long is given out again: longer than any task runs. Restored every few seconds.
    {"visibility_timeout": 3600, "unacked_restore_limit": 100}
    if REDIS_URL
    else {
        "data_folder_in": str(QUEUE_DIR / "messages"),
        "data_folder_out": str(QUEUE_DIR / "messages"),
        "control_folder": str(QUEUE_DIR / "control"),
        "polling_interval": 0.05,
    }
)
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_TIME_LIMIT = 1800
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
SWEEP_SECONDS = 5
CELERY_BEAT_SCHEDULE = {
    # Expires before the next one is due: a worker that was away must not find a heap of sweeps.
    "lease-sweep": {"task": "ledger.lease_sweep", "schedule": SWEEP_SECONDS, "options": {"expires": SWEEP_SECONDS}},
    "ticket-sweep": {"task": "tickets.ticket_sweep", "schedule": SWEEP_SECONDS, "options": {"expires": SWEEP_SECONDS}},
}
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / "beat-schedule")
if not REDIS_URL:
    for folder in ("messages", "control"):
        (QUEUE_DIR / folder).mkdir(mode=0o700, parents=True, exist_ok=True)

# Logs: one line an event, on standard error; JSON in production. Keys, tokens and links are masked.

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"mask": {"()": "c4a_project.logs.MaskSecrets"}},
    "formatters": {
        "json": {"()": "c4a_project.logs.JsonLine"},
        "text": {"format": "{asctime} {levelname} {name} {message}", "style": "{"},
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "filters": ["mask"], "formatter": "json" if PRODUCTION else "text"},
    },
    "root": {"handlers": ["stderr"], "level": env_text("C4A_LOG_LEVEL", "INFO")},
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        # Refused requests are answers, not events; unexpected errors are logged by the API itself.
        "django.request": {"level": "ERROR"},
        "httpx": {"level": "WARNING"},
    },
}

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "C4A",
    "SITE_HEADER": "C4A",
    "SITE_ICON": lambda request: static("icon.svg"),
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("icon.svg")}],
    "SHOW_BACK_BUTTON": True,
}
