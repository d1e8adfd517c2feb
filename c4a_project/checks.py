"""Start-up checks. Each has an id that stays the same; `manage.py check --deploy --database default` runs them all.

| id | refuses |
|---|---|
| c4a.E001 | a default, missing or short secret in production |
| c4a.E002 | a database that may lose a committed entry |
| c4a.E003 | production without Redis |
| c4a.E004 | production without PostgreSQL |
| c4a.E005 | production that answers to any host, or to none |
| c4a.E006 | DEBUG in production |
| c4a.E007 | a record newer than this code |
| c4a.E008 | one secret used for two purposes |
| c4a.E009 | a digest key other than the one that agents were given before |
| c4a.W001 | production without HTTPS |
| c4a.W002 | a database role that may change or delete entries |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register, run_checks
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from c4a_project.settings import INSECURE_DEFAULT

SECRETS: Final = {"C4A_SECRET_KEY": "SECRET_KEY", "C4A_RECORD_SECRET": "RECORD_SECRET", "C4A_DIGEST_KEY": "DIGEST_KEY"}
LEAST_SECRET_CHARACTERS: Final = 32
TAG: Final = "c4a"


@register(TAG)
def check_secrets(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """c4a.E001, c4a.E008."""
    if not settings.PRODUCTION:
        return []
    found: list[CheckMessage] = []
    values = {name: getattr(settings, setting) for name, setting in SECRETS.items()}
    for name, value in values.items():
        if value == INSECURE_DEFAULT:
            found.append(Error(f"{name} is not set.", hint=f"Set {name} or {name}_FILE to a random secret.", id="c4a.E001"))
        elif len(value) < LEAST_SECRET_CHARACTERS:
            found.append(Error(f"{name} has {len(value)} characters, expected at least {LEAST_SECRET_CHARACTERS}.", id="c4a.E001"))
    given = [value for value in values.values() if value != INSECURE_DEFAULT]
    if len(set(given)) < len(given):
        found.append(Error(f"Two of {', '.join(values)} are the same.", hint="Give each its own secret.", id="c4a.E008"))
    return found


@register(TAG)
def check_services(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """c4a.E003, c4a.E004."""
    if not settings.PRODUCTION:
        return []
    found: list[CheckMessage] = []
    if not settings.REDIS_URL:
        found.append(Error("C4A_REDIS_URL is not set.", hint="Production needs Redis: broker, cache and fan-out.", id="c4a.E003"))
    if not settings.DATABASE_URL:
        found.append(Error("C4A_DATABASE_URL is not set.", hint="Production needs PostgreSQL: postgresql://…", id="c4a.E004"))
    return found


@register(TAG)
def check_web(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """c4a.E005, c4a.E006, c4a.W001."""
    if not settings.PRODUCTION:
        return []
    found: list[CheckMessage] = []
    if not settings.ALLOWED_HOSTS or "*" in settings.ALLOWED_HOSTS:
        problem = "names no host" if not settings.ALLOWED_HOSTS else "allows any host"
        found.append(Error(f"C4A_ALLOWED_HOSTS {problem}.", hint="Name the hosts this server is reached by.", id="c4a.E005"))
    if settings.DEBUG:
        found.append(Error("C4A_DEBUG is on in production: it shows settings and code to anybody.", id="c4a.E006"))
    if not settings.HTTPS:
        found.append(CheckWarning("C4A_HTTPS is off: keys and sessions travel in the clear.", id="c4a.W001"))
    return found


@register(TAG, Tags.database)
def check_durability(app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """c4a.E002: what the database says of itself, not what the settings asked for."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        with connection.cursor() as cursor:
            for setting, expected in _durable(connection.vendor).items():
                cursor.execute(f"PRAGMA {setting}" if connection.vendor == "sqlite" else f"SHOW {setting}")
                row = cursor.fetchone()
                got = str(row[0]) if row else "nothing"
                if got not in expected:
                    hint = "A committed entry could be lost, and the action would run twice."
                    problem = f"Database {alias!r}: {setting} is {got!r}, expected one of {', '.join(sorted(expected))}."
                    found.append(Error(problem, hint=hint, id="c4a.E002"))
    return found


@register(TAG, Tags.database)
def check_record_version(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """c4a.E007."""
    from c4a.errors import LedgerError
    from c4a.record import schema

    found: list[CheckMessage] = []
    for alias in databases or ():
        connections[alias].ensure_connection()
        try:
            schema.refuse_newer(schema.version_of(connections[alias].connection))
        except LedgerError as newer:
            found.append(Error(str(newer), id="c4a.E007"))
    return found


@register(TAG, Tags.database)
def check_digest_key(app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """c4a.E009."""
    from c4a.record import schema
    from ledger.digest_key import digest_key_id, digest_key_recorded

    connection = connections["default"]
    if "default" not in (databases or ()):
        return []
    connection.ensure_connection()
    if not schema.version_of(connection.connection) or digest_key_recorded() in (None, digest_key_id()):
        return []
    hint = "Set it to the former one: under another key actions with secret arguments would run again."
    return [Error("C4A_DIGEST_KEY is not the key that agents of this record were given before.", hint=hint, id="c4a.E009")]


@register(TAG, Tags.database)
def check_role(app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """c4a.W002: what the triggers refuse, a role should not even be able to try."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        if connection.vendor != "postgresql" or not settings.PRODUCTION:
            continue
        with connection.cursor() as cursor:
            cursor.execute(_EXCESS)
            rights = [str(row[0]) for row in cursor.fetchall()]
        if rights:
            problem = f"Database {alias!r}: the server's role may {', '.join(rights)} entries, expected SELECT and INSERT only."
            hint = "Migrate as the owner; sign in as a role made by docs/deploy/postgresql-roles.sql."
            found.append(CheckWarning(problem, hint=hint, id="c4a.W002"))
    return found


_EXCESS: Final = """
SELECT named.privilege FROM (VALUES ('UPDATE'), ('DELETE'), ('TRUNCATE')) AS named (privilege)
WHERE to_regclass('c4a_entry') IS NOT NULL AND has_table_privilege(to_regclass('c4a_entry'), named.privilege)"""


def refuse_unsafe_start() -> None:
    """Run this project's checks as a server process starts, since only `manage.py` runs them by itself.

    Raises:
        ImproperlyConfigured: a check found an error; the message lists them.
    """
    errors = [message for message in run_checks(tags=[TAG], databases=["default"]) if message.is_serious()]
    connections.close_all()
    if errors:
        raise ImproperlyConfigured("The server does not start:\n" + "\n".join(str(error) for error in errors))


def _durable(vendor: str) -> dict[str, frozenset[str]]:
    if vendor == "sqlite":
        # 2 is FULL, 3 is EXTRA.
        return {"synchronous": frozenset({"2", "3"}), "journal_mode": frozenset({"wal"})}
    return {
        "fsync": frozenset({"on"}),
        "full_page_writes": frozenset({"on"}),
        "synchronous_commit": frozenset({"on", "local", "remote_write", "remote_apply"}),
    }
