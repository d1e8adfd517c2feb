"""The life of an effect over REST: each view is a thin face of one verb of the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from c4a import keys
from c4a.errors import EffectUnknown, InvalidArguments, RequestRefused, ResultNotRecordable
from c4a.record import claim, doubt, reads, settle
from c4a.record.types import DEFAULT_GRACE_SECONDS, DEFAULT_LEASE_SECONDS, Grant, Recorded
from gateway.api import Answer, ApiView, Incoming, Operation, effect_answer
from gateway.calls import call_from_body, claimant_from_body, result_from_body, result_unkept
from gateway.fields import (
    Fields,
    any_json,
    boolean,
    choice,
    codec,
    explicit_key,
    free_text,
    hexadecimal,
    identifier,
    integer,
    json_object,
    list_of,
    names,
    seconds,
    text,
)
from ledger.executor import executor_default, keyring_default

ACT: Final = frozenset({"act"})
READ: Final = frozenset({"read"})
ACT_OR_READ: Final = ACT | READ
ADMIN: Final = frozenset({"admin"})
STATES: Final = ("running", "done", "in_doubt", "not_done", "undoing", "undone")
KEY_PATH: Final = {"key": "The effect key: 64 hexadecimal digits, as claim answered it."}
MAX_LEASE_SECONDS: Final = 3600.0
MAX_HEARTBEATS: Final = 1000
MAX_SECONDS: Final = 31_536_000.0

_RUN: Final = identifier("The run: one conversation, thread or job, named by the agent.", required=True)
_TOKEN: Final = hexadecimal("The fence of the claim: at least 128 random bits, made by the caller.", least=32, most=128, required=True)
_LEASE: Final = seconds(
    "How long the claim is believed alive without a heartbeat.", least=1, most=MAX_LEASE_SECONDS, default=DEFAULT_LEASE_SECONDS
)
_ATTEMPT: Final = integer("The attempt that this is about.", least=1, required=True)
_GRACE: Final = seconds("How long after its lease it may still run.", least=0, most=MAX_SECONDS, default=DEFAULT_GRACE_SECONDS)
_RESULT: Final = {
    "result": any_json("The result as plain JSON."),
    "result_codec": codec("The result as typed codec text, instead of `result`."),
}

CLAIM: Final = Fields(
    {
        "run": _RUN,
        "tool": identifier("The tool's name.", required=True),
        "token": _TOKEN,
        "arguments": json_object("The arguments as plain JSON, by parameter name."),
        "arguments_codec": codec("The arguments as typed codec text, instead of `arguments`."),
        "explicit_key": explicit_key("Names the action itself, such as an order id; else its arguments do."),
        "exclude": names("Parameters that do not tell two actions apart."),
        "gated": boolean("True if the action needs a yes for exactly these arguments."),
        "has_undo": boolean("True if the agent can reverse the action."),
        "parent": hexadecimal("Key of the effect inside which this one is called.", least=64, most=64),
        "holder": text("Liveness text of the claiming process.", most=1024, default=""),
        "lease_seconds": _LEASE,
        "key": hexadecimal("The effect key as the client computed it; must match.", least=64, most=64),
        "call_digest": hexadecimal("The call digest as the client computed it; must match.", least=64, most=64),
        "args_digest": hexadecimal("The digest without excluded parameters as the client computed it; must match.", least=64, most=64),
    }
)
RECLAIM: Final = Fields(
    {
        **CLAIM.fields,
        "attempt": _ATTEMPT,
        "window_seconds": seconds(
            "How long the provider honours the outside key, less a margin.", least=0, most=MAX_SECONDS, required=True
        ),
        "grace_seconds": _GRACE,
    }
)
GRANTED: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "outcome": {"type": "string", "enum": ["granted", "recorded"], "description": "granted: run the action now. recorded: do not."},
        "run": {"type": "string"},
        "key": {"type": "string"},
        "attempt": {"type": "integer"},
        "epoch": {"type": "integer", "description": "Part of the outside key."},
        "outside_key": {"type": "string", "description": "Send it to the service as the idempotency key."},
        "approval": {"type": ["string", "null"]},
        "done_at": {"type": "integer", "description": "µs since 1970, by the database's clock."},
        "note": {"type": ["string", "null"], "description": "Why there is no result."},
        "result": {"description": "The recorded result; beside a note, what was kept of it."},
        "result_codec": {"type": ["string", "null"]},
    },
    "required": ["outcome", "run", "key", "attempt"],
}
EFFECT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "run": {"type": "string"},
        "key": {"type": "string"},
        "tool": {"type": "string"},
        "state": {"type": "string", "enum": list(STATES)},
        "attempt": {"type": "integer"},
        "epoch": {"type": "integer"},
        "explicit_key": {"type": ["string", "null"]},
        "call_digest": {"type": "string"},
        "parent": {"type": ["string", "null"]},
        "approval": {"type": ["string", "null"]},
        "reason": {"type": ["string", "null"]},
        "error": {"type": ["string", "null"]},
        "actor": {"type": "string"},
        "holder": {"type": "string"},
        "lease_until": {"type": "integer"},
        "first_at": {"type": "integer"},
        "last_at": {"type": "integer"},
        "done_at": {"type": ["integer", "null"]},
        "happened_twice": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "arguments": {"type": ["object", "null"], "description": "Canonical JSON."},
        "arguments_codec": {"type": ["string", "null"]},
        "result": {"description": "JSON of the result; what is not plain JSON is a tagged object."},
        "result_codec": {"type": ["string", "null"]},
    },
}
OUTCOME: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "outcome": {"type": "string", "enum": ["done", "late", "repeated", "happened_twice", "in_doubt", "not_done"]},
    },
    "required": ["key", "outcome"],
}
NO_CONTENT: Final[Mapping[str, Any]] = {"type": "object", "properties": {"key": {"type": "string"}}}
LOST: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"lost": {"type": "array", "items": {"type": "string"}, "description": "Keys that are no longer held."}},
}


class EffectClaim(ApiView):
    """`POST effects/claim`."""

    operations = {"post": Operation("effect_claim", ACT, GRANTED, CLAIM)}

    def post(self, given: Incoming) -> Answer:
        """Claim the right to run an action once.

        Answers `granted` (run it, then complete, fail or release) or `recorded` (it was done before: here is its result).
        The same token claiming again gets the same grant, so a lost answer is asked again.
        """
        call = call_from_body(given.body, given.caller.organization)
        claimant = claimant_from_body(given.body, given.caller.actor)
        return grant_answer(claim.claim(executor_default(), given.caller.organization, call, claimant, keyring_default()))


class EffectReclaim(ApiView):
    """`POST effects/{key}/reclaim`."""

    operations = {"post": Operation("effect_reclaim", ACT, GRANTED, RECLAIM, paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """Try an action in doubt again under the same outside key.

        Only of an attempt that has ended, and only within the window in which the provider honours the key.
        """
        organization, body = given.caller.organization, given.body
        call = call_from_body(body, organization)
        if call.key != key:
            raise RequestRefused(
                "The address names another effect than the call.", errors=[{"field": "key", "problem": f"the call's is {call.key}"}]
            )
        grant = claim.reclaim(
            executor_default(),
            organization,
            call,
            claimant_from_body(body, given.caller.actor),
            keyring_default(),
            attempt=body["attempt"],
            window_seconds=body["window_seconds"],
            grace_seconds=body["grace_seconds"],
        )
        return grant_answer(grant)


class EffectComplete(ApiView):
    """`POST effects/{key}/complete`."""

    _body = Fields({"run": _RUN, "token": _TOKEN, **_RESULT, "note": choice("Why there is no result.", "oversize", "unrecordable")})
    operations = {"post": Operation("effect_complete", ACT, OUTCOME, _body, paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """Settle as done, with the result every repeat will get. May be repeated.

        A result that cannot be kept is refused with `result-not-recordable`, and the action is done all the same.
        """
        body, refused = given.body, None
        result, note = None, body["note"]
        try:
            result = result_from_body(body)
        except InvalidArguments as error:
            # It happened all the same: what must not be lost is that, not the result.
            result, note = result_unkept(body)
            refused = error
        if result is None and note is None:
            result = "null"
        outcome = settle.complete(executor_default(), given.caller.organization, body["run"], key, body["token"], result=result, note=note)
        if refused is not None:
            raise ResultNotRecordable(
                f"The action is recorded as done, its result could not be kept ({refused.message}): a repeat gets no result.",
                key=key,
                note=note,
            )
        return Answer({"key": key, "outcome": outcome})


class EffectFail(ApiView):
    """`POST effects/{key}/fail`."""

    _body = Fields(
        {
            "run": _RUN,
            "token": _TOKEN,
            "error": free_text("What went wrong.", required=True),
            "nothing_happened": boolean("True only if it is proved that nothing happened: the action may then be tried again."),
            "reason": choice("Why.", "raised", "cancelled", default="raised"),
        }
    )
    operations = {"post": Operation("effect_fail", ACT, OUTCOME, _body, paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """The action raised: it is in doubt, unless nothing happened is proved. May be repeated."""
        body = given.body
        outcome = settle.fail(
            executor_default(),
            given.caller.organization,
            body["run"],
            key,
            body["token"],
            error=body["error"],
            nothing_happened=body["nothing_happened"],
            reason=body["reason"],
        )
        return Answer({"key": key, "outcome": outcome})


class EffectRelease(ApiView):
    """`POST effects/{key}/release`."""

    operations = {"post": Operation("effect_release", ACT, OUTCOME, Fields({"run": _RUN, "token": _TOKEN}), paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """Give a claim back: the action never began. A yes is kept. May be repeated."""
        body = given.body
        outcome = settle.release(executor_default(), given.caller.organization, body["run"], key, body["token"])
        return Answer({"key": key, "outcome": outcome})


class EffectHeartbeat(ApiView):
    """`POST effects/{key}/heartbeat`."""

    _body = Fields({"run": _RUN, "token": _TOKEN, "lease_seconds": _LEASE})
    operations = {"post": Operation("effect_heartbeat", ACT, LOST, _body, paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """Extend the lease of a claim."""
        body = given.body
        claims = [(body["run"], key, body["token"])]
        return Answer({"lost": settle.heartbeat(executor_default(), given.caller.organization, claims, body["lease_seconds"])})


class EffectsHeartbeat(ApiView):
    """`POST effects/heartbeat`."""

    _claim = Fields({"run": _RUN, "key": hexadecimal("The effect key.", least=64, most=64, required=True), "token": _TOKEN})
    _body = Fields({"claims": list_of(_claim, "The claims to keep alive.", most=MAX_HEARTBEATS), "lease_seconds": _LEASE})
    operations = {"post": Operation("effects_heartbeat", ACT, LOST, _body)}

    def post(self, given: Incoming) -> Answer:
        """Extend the leases of many claims in one trip."""
        claims = [(one["run"], one["key"], one["token"]) for one in given.body["claims"]]
        return Answer({"lost": settle.heartbeat(executor_default(), given.caller.organization, claims, given.body["lease_seconds"])})


class EffectDeclareDead(ApiView):
    """`POST effects/{key}/declare-dead`."""

    _body = Fields({"run": _RUN, "attempt": _ATTEMPT, "holder": text("The holder that was proved gone.", required=True, most=1024)})
    operations = {"post": Operation("effect_declare_dead", ACT, NO_CONTENT, _body, paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """The process that ran it is proved gone (same machine): in doubt at once."""
        body, caller = given.body, given.caller
        doubt.declare_dead(
            executor_default(), caller.organization, body["run"], key, attempt=body["attempt"], holder=body["holder"], actor=caller.actor
        )
        return Answer({"key": key})


class EffectAsk(ApiView):
    """`POST effects/{key}/ask`."""

    _body = Fields(
        {
            "run": _RUN,
            "attempt": _ATTEMPT,
            "token": _TOKEN,
            "after_seconds": seconds("The provider's read lag: not asked sooner.", least=0, most=MAX_SECONDS, default=0.0),
            "lease_seconds": _LEASE,
            "grace_seconds": _GRACE,
        }
    )
    operations = {"post": Operation("effect_ask", ACT, NO_CONTENT, _body, paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """Take the sole right to look up outside whether an action in doubt happened."""
        body, caller = given.body, given.caller
        doubt.ask(
            executor_default(),
            caller.organization,
            body["run"],
            key,
            attempt=body["attempt"],
            token=body["token"],
            actor=caller.actor,
            after_seconds=body["after_seconds"],
            lease_seconds=body["lease_seconds"],
            grace_seconds=body["grace_seconds"],
        )
        return Answer({"key": key})


class EffectAnswer(ApiView):
    """`POST effects/{key}/answer`."""

    _body = Fields(
        {"run": _RUN, "token": _TOKEN, "verdict": choice("What was found.", "done", "not_done", "unknown", required=True), **_RESULT}
    )
    operations = {"post": Operation("effect_answer", ACT, NO_CONTENT, _body, paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """Record what the look-up outside found."""
        body, caller = given.body, given.caller
        doubt.answer(
            executor_default(),
            caller.organization,
            body["run"],
            key,
            body["token"],
            verdict=body["verdict"],
            result=result_from_body(body),
            actor=caller.actor,
        )
        return Answer({"key": key})


class EffectResolve(ApiView):
    """`POST effects/{key}/resolve`."""

    _body = Fields(
        {
            "run": identifier("The run, if the key alone is not enough."),
            "verdict": choice("Did it happen?", "done", "not_done", required=True),
            "attempt": _ATTEMPT,
            "note": free_text("How it was found out.", required=True),
            **_RESULT,
            "confirm_lapsed": boolean("Needed for not_done on a claim that merely lapsed: it may still be running."),
            "new_outside_key": boolean("Use a new idempotency key outside (when the provider replays a stored failure)."),
        }
    )
    operations = {"post": Operation("effect_resolve", ADMIN, EFFECT, _body, paths=KEY_PATH)}

    def post(self, given: Incoming, key: str) -> Answer:
        """A person's verdict on an action in doubt."""
        body, caller = given.body, given.caller
        effect = doubt.resolve(
            executor_default(),
            caller.organization,
            key,
            body["verdict"],
            attempt=body["attempt"],
            note=body["note"],
            actor=caller.actor,
            run=body["run"],
            result=result_from_body(body),
            confirm_lapsed=body["confirm_lapsed"],
            new_outside_key=body["new_outside_key"],
        )
        return Answer(*effect_answer(effect))


class Effects(ApiView):
    """`GET effects`."""

    _query = Fields(
        {
            "run": identifier("Only of this run."),
            "state": choice("Only in this state.", *STATES),
            "after": integer("The cursor that the page before gave as `next`.", least=0, default=0),
            "limit": integer("How many at most.", least=1, most=500, default=100),
        }
    )
    operations = {
        "get": Operation(
            "effects_list",
            READ,
            {"type": "object", "properties": {"effects": {"type": "array", "items": EFFECT}, "next": {"type": ["integer", "null"]}}},
            query=_query,
        )
    }

    def get(self, given: Incoming) -> Answer:
        """List effects in the order of their first claim."""
        query = given.query
        rows = reads.effect_rows(
            executor_default(),
            given.caller.organization,
            run=query["run"],
            state=query["state"],
            after=query["after"],
            limit=query["limit"],
        )
        listed = ", ".join(Answer(*effect_answer(effect)).text() for _, effect in rows)
        return Answer({"next": rows[-1][0] if len(rows) == query["limit"] else None}, {"effects": f"[{listed}]"})


class EffectOne(ApiView):
    """`GET effects/{key}`."""

    operations = {
        "get": Operation(
            "effect_get", ACT_OR_READ, EFFECT, query=Fields({"run": identifier("The run, if the key alone is not enough.")}), paths=KEY_PATH
        )
    }

    def get(self, given: Incoming, key: str) -> Answer:
        """One effect by its key.

        An agent that may only act needs it too: before it looks up outside it must know which outside key was sent.
        """
        effect = reads.effect(executor_default(), given.caller.organization, key, given.query["run"])
        if effect is None:
            raise EffectUnknown(f"No action with key {key} in this organization.", key=key)
        return Answer(*effect_answer(effect))


class RunEntries(ApiView):
    """`GET runs/{run}/entries`."""

    _query = Fields(
        {
            "key": text("Only of this effect or gate.", most=256),
            "after": integer("The cursor that the page before gave as `next`.", least=0, default=0),
            "limit": integer("How many at most.", least=1, most=1000, default=1000),
        }
    )
    operations = {
        "get": Operation(
            "run_entries",
            READ,
            {
                "type": "object",
                "properties": {
                    "entries": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
                    "next": {"type": ["integer", "null"]},
                },
            },
            query=_query,
            paths={"run": "The run."},
        )
    }

    def get(self, given: Incoming, run: str) -> Answer:
        """The entries of a run, oldest first."""
        query = given.query
        found = reads.entries(
            executor_default(), given.caller.organization, run=run, key=query["key"], after=query["after"], limit=query["limit"]
        )
        entries = [{name: getattr(entry, name) for name in entry.__dataclass_fields__} for entry in found]
        return Answer({"entries": entries, "next": found[-1].id if len(found) == query["limit"] else None})


def grant_answer(outcome: Grant | Recorded) -> Answer:
    """A grant, or the recorded result."""
    document: dict[str, Any] = {"run": outcome.run, "key": outcome.key, "attempt": outcome.attempt}
    if isinstance(outcome, Grant):
        return Answer(
            {
                "outcome": "granted",
                **document,
                "epoch": outcome.epoch,
                "approval": outcome.approval,
                "outside_key": keys.outside_key(outcome.key, outcome.epoch),
            }
        )
    document |= {"outcome": "recorded", "done_at": outcome.done_at, "note": outcome.note, "result_codec": outcome.result}
    return Answer(document, {"result": outcome.result})
