"""Operations: who am I, is the process alive, is it ready, how is it going."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from accounts.models import Organization
from c4a.errors import C4AError, RecordUnreachable
from c4a.record import reads, schema
from c4a.record.dialects import Statement
from c4a.record.types import DEFAULT_LEASE_SECONDS, HEARTBEAT_SECONDS
from gateway.api import ANYBODY, Answer, ApiView, Incoming, Operation, caller_of_request
from gateway.problems import problem_response, unexpected_response
from ledger.digest_key import digest_key_refuse_other
from ledger.executor import executor_default

ANY_KEY: Final = frozenset({"act", "read", "decide", "admin"})
_STATUS: Final[Mapping[str, Any]] = {"type": "object", "properties": {"status": {"type": "string"}}}
_ME: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "organization": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "slug": {"type": "string"}, "name": {"type": "string"}},
        },
        "actor": {"type": "string"},
        "scopes": {"type": "array", "items": {"type": "string"}},
        "environment": {"type": "string", "enum": ["test", "live"]},
        "lease_seconds": {"type": "number"},
        "heartbeat_seconds": {"type": "number"},
        "digest_key": {"type": "string", "description": "For agents: keys the digests of secret arguments, 64 hexadecimal digits."},
    },
}
_METRICS: Final = (
    ("c4a_effects_running", "Actions running now.", "gauge"),
    ("c4a_effects_in_doubt", "Actions in doubt, waiting for a person.", "gauge"),
    ("c4a_lease_lapsed_seconds", "Age of the oldest lapsed lease that the sweep has not seen.", "gauge"),
)


class Me(ApiView):
    """`GET me`."""

    operations = {"get": Operation("me", ANY_KEY, _ME)}

    def get(self, given: Incoming) -> Answer:
        """Who this key stands for, and what an agent needs to know."""
        caller = given.caller
        organization = Organization.objects.get(pk=caller.organization)
        document: dict[str, Any] = {
            "organization": {"id": organization.id, "slug": organization.slug, "name": organization.name},
            "actor": caller.actor,
            "scopes": sorted(caller.scopes),
            "environment": caller.environment,
            "lease_seconds": DEFAULT_LEASE_SECONDS,
            "heartbeat_seconds": HEARTBEAT_SECONDS,
        }
        if "act" in caller.scopes:
            document["digest_key"] = organization_digest_key(organization.id)
        return Answer(document)


class Healthz(ApiView):
    """`GET healthz`."""

    operations = {"get": Operation("healthz", ANYBODY, _STATUS)}

    def get(self, given: Incoming) -> Answer:
        """The process answers."""
        return Answer({"status": "ok"})


class Readyz(ApiView):
    """`GET readyz`."""

    operations = {"get": Operation("readyz", ANYBODY, _STATUS)}

    def get(self, given: Incoming) -> Answer:
        """The process can serve: the record answers in the version this code knows, and Redis answers where there is one.

        Raises RecordUnreachable (503) otherwise.
        """
        version = executor_default().read([Statement("SELECT value FROM c4a_meta WHERE name = 'schema_version'", {})])[0].rows
        if not version or int(version[0][0]) != schema.SCHEMA_VERSION:
            found = version[0][0] if version else "none"
            raise RecordUnreachable(f"The record has version {found}, expected {schema.SCHEMA_VERSION}: run `manage.py migrate`.")
        if settings.REDIS_URL:
            from django.core.cache import cache

            try:
                cache.get("readyz")
            except Exception as error:
                raise RecordUnreachable("Redis does not answer.") from error
        return Answer({"status": "ok"})


class Metrics(ApiView):
    """`GET metrics`."""

    operations = {"get": Operation("metrics", frozenset({"read", "admin"}), {"type": "string"})}

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """As any address, but the answer is Prometheus text."""
        try:
            operation, _ = self.operation_of(request)
            caller = caller_of_request(request, operation.scopes)
            return HttpResponse(metrics_text(caller.organization), content_type="text/plain; version=0.0.4; charset=utf-8")
        except C4AError as error:
            return problem_response(error)
        except Exception as error:  # noqa: BLE001  (whatever it is, the client gets a problem document)
            return unexpected_response(error)

    def get(self, given: Incoming) -> Answer:
        """Figures of the organization as Prometheus text."""
        raise AssertionError("unreachable: dispatch answers")


def metrics_text(organization: str) -> str:
    """The organization's figures in Prometheus' text format. Two trips, by index."""
    executor = executor_default()
    counts = reads.counts(executor, organization)
    rows = executor.read([Statement(_OLDEST_LAPSED, {"organization": organization})])[0].rows
    lapsed = max(0, rows[0][0] or 0) / 1_000_000
    values = (counts["running"], counts["in_doubt"], lapsed)
    lines: list[str] = []
    for (name, about, kind), value in zip(_METRICS, values, strict=True):
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f'{name}{{organization="{organization}"}} {value:g}']
    return "\n".join(lines) + "\n"


def organization_digest_key(organization: str) -> str:
    """The organization's own key for secret arguments, 64 hex: HMAC-SHA256 of its id under `C4A_DIGEST_KEY`.

    Raises:
        LedgerError: agents of this record were given another key before.
    """
    digest_key_refuse_other()
    return hmac.new(settings.DIGEST_KEY.encode(), f"c4a/digest-key/v1\n{organization}".encode(), hashlib.sha256).hexdigest()


_OLDEST_LAPSED: Final = """
SELECT {now} - MIN(lease_until) FROM c4a_effect WHERE state = 'running' AND organization = :organization"""
