"""Addresses of the API. No trailing slashes."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.urls import path, register_converter
from django.urls.converters import StringConverter

from gateway import effects, operations, reference, stops, tickets, waiting

V1 = "api/v1/"


class EffectKeyConverter(StringConverter):
    """64 lower-case hexadecimal digits; anything else is no address."""

    regex = "[0-9a-f]{64}"


register_converter(EffectKeyConverter, "effect_key")


def _free[View: Callable[..., Any]](view: View) -> View:
    """Mark a view that has its own keys, not a session."""
    return login_not_required(view)


urlpatterns = [
    path(f"{V1}effects/claim", _free(effects.EffectClaim.as_view()), name="gateway-effect-claim"),
    path(f"{V1}effects/<effect_key:key>/complete", _free(effects.EffectComplete.as_view()), name="gateway-effect-complete"),
    path(f"{V1}effects", _free(effects.Effects.as_view()), name="gateway-effects"),
    path(f"{V1}effects/heartbeat", _free(effects.EffectsHeartbeat.as_view()), name="gateway-effects-heartbeat"),
    path(f"{V1}effects/<effect_key:key>", _free(effects.EffectOne.as_view()), name="gateway-effect"),
    path(f"{V1}effects/<effect_key:key>/fail", _free(effects.EffectFail.as_view()), name="gateway-effect-fail"),
    path(f"{V1}effects/<effect_key:key>/heartbeat", _free(effects.EffectHeartbeat.as_view()), name="gateway-effect-heartbeat"),
    path(f"{V1}effects/<effect_key:key>/release", _free(effects.EffectRelease.as_view()), name="gateway-effect-release"),
    path(f"{V1}effects/<effect_key:key>/reclaim", _free(effects.EffectReclaim.as_view()), name="gateway-effect-reclaim"),
    path(f"{V1}effects/<effect_key:key>/declare-dead", _free(effects.EffectDeclareDead.as_view()), name="gateway-effect-declare-dead"),
    path(f"{V1}effects/<effect_key:key>/ask", _free(effects.EffectAsk.as_view()), name="gateway-effect-ask"),
    path(f"{V1}effects/<effect_key:key>/answer", _free(effects.EffectAnswer.as_view()), name="gateway-effect-answer"),
    path(f"{V1}effects/<effect_key:key>/resolve", _free(effects.EffectResolve.as_view()), name="gateway-effect-resolve"),
    path(f"{V1}wait/effects/<effect_key:key>", _free(waiting.WaitEffect.as_view()), name="gateway-wait-effect"),
    path(f"{V1}tickets", _free(tickets.Tickets.as_view()), name="gateway-tickets"),
    path(f"{V1}tickets/<str:ticket>", _free(tickets.TicketOne.as_view()), name="gateway-ticket"),
    path(f"{V1}tickets/<str:ticket>/cancel", _free(tickets.TicketCancel.as_view()), name="gateway-ticket-cancel"),
    path(f"{V1}wait/tickets/<str:ticket>", _free(waiting.WaitTicket.as_view()), name="gateway-wait-ticket"),
    path(f"{V1}approvals", _free(tickets.Approvals.as_view()), name="gateway-approvals"),
    path(f"{V1}denials", _free(tickets.Denials.as_view()), name="gateway-denials"),
    path(f"{V1}runs/<path:run>/entries", _free(effects.RunEntries.as_view()), name="gateway-run-entries"),
    path(f"{V1}runs/<path:run>/freeze", _free(stops.RunFreeze.as_view()), name="gateway-run-freeze"),
    path(f"{V1}runs/<path:run>/thaw", _free(stops.RunThaw.as_view()), name="gateway-run-thaw"),
    path(f"{V1}agents/<slug:agent>/freeze", _free(stops.AgentFreeze.as_view()), name="gateway-agent-freeze"),
    path(f"{V1}agents/<slug:agent>/thaw", _free(stops.AgentThaw.as_view()), name="gateway-agent-thaw"),
    path(f"{V1}me", _free(operations.Me.as_view()), name="gateway-me"),
    path(f"{V1}healthz", _free(operations.Healthz.as_view()), name="gateway-healthz"),
    path(f"{V1}readyz", _free(operations.Readyz.as_view()), name="gateway-readyz"),
    path(f"{V1}metrics", _free(operations.Metrics.as_view()), name="gateway-metrics"),
    path(f"{V1}openapi.json", reference.openapi, name="gateway-openapi"),
    # The same probes where load balancers look for them by custom.
    path("healthz", _free(operations.Healthz.as_view(schema=None)), name="gateway-healthz-root"),
    path("readyz", _free(operations.Readyz.as_view(schema=None)), name="gateway-readyz-root"),
    path("api-reference", reference.api_reference, name="gateway-api-reference"),
]
