"""Stopping a run or an agent, and letting it go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from accounts.models import Agent
from c4a.record import freeze
from gateway.api import Answer, ApiView, Incoming, Operation
from gateway.effects import ADMIN
from gateway.errors import AgentUnknown
from gateway.fields import Fields, free_text
from ledger.executor import executor_default

_BODY: Final = Fields({"note": free_text("Why.", default="")})
_ANSWER: Final[Mapping[str, Any]] = {"type": "object", "properties": {"subject": {"type": "string"}, "frozen": {"type": "boolean"}}}
_RUN: Final = {"run": "The run."}
_AGENT: Final = {"agent": "The agent's id, `agt_…`."}


class RunFreeze(ApiView):
    """`POST runs/{run}/freeze`."""

    operations = {"post": Operation("run_freeze", ADMIN, _ANSWER, _BODY, paths=_RUN)}

    def post(self, given: Incoming, run: str) -> Answer:
        """Stop a run: every later claim in it is refused until it is thawed."""
        freeze.freeze(executor_default(), given.caller.organization, run=run, by=given.caller.actor, note=given.body["note"])
        return Answer({"subject": f"run:{run}", "frozen": True})


class RunThaw(ApiView):
    """`POST runs/{run}/thaw`."""

    operations = {"post": Operation("run_thaw", ADMIN, _ANSWER, _BODY, paths=_RUN)}

    def post(self, given: Incoming, run: str) -> Answer:
        """Let a stopped run go on."""
        freeze.thaw(executor_default(), given.caller.organization, run=run, by=given.caller.actor, note=given.body["note"])
        return Answer({"subject": f"run:{run}", "frozen": False})


class AgentFreeze(ApiView):
    """`POST agents/{agent}/freeze`."""

    operations = {"post": Operation("agent_freeze", ADMIN, _ANSWER, _BODY, paths=_AGENT)}

    def post(self, given: Incoming, agent: str) -> Answer:
        """Stop an agent in all its runs."""
        actor = _actor(given, agent)
        freeze.freeze(executor_default(), given.caller.organization, agent=actor, by=given.caller.actor, note=given.body["note"])
        return Answer({"subject": actor, "frozen": True})


class AgentThaw(ApiView):
    """`POST agents/{agent}/thaw`."""

    operations = {"post": Operation("agent_thaw", ADMIN, _ANSWER, _BODY, paths=_AGENT)}

    def post(self, given: Incoming, agent: str) -> Answer:
        """Let a stopped agent go on."""
        actor = _actor(given, agent)
        freeze.thaw(executor_default(), given.caller.organization, agent=actor, by=given.caller.actor, note=given.body["note"])
        return Answer({"subject": actor, "frozen": False})


def _actor(given: Incoming, agent: str) -> str:
    """The name the agent's claims are made under.

    Raises:
        AgentUnknown: this organization has no such agent.
    """
    if not Agent.objects.filter(organization_id=given.caller.organization, id=agent).exists():
        raise AgentUnknown(f"No agent {agent[:64]!r} in this organization.")
    return f"agent:{agent}"
