"""API keys: made once and shown once, then known by their hash alone; the hot path's one indexed read."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from c4a.errors import NotAuthenticated
from c4a.record.dialects import Statement
from ledger.executor import executor_default

SCOPES: Final = ("act", "read", "decide", "admin")
_TOKEN: Final = re.compile(r"\Ac4a_[a-z0-9]{8}_[A-Za-z0-9_-]{43}\Z")
_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"

# One read by the unique index on token_hash; the rest are joins on primary keys. Only integers and texts come back, which the
# record's executor reads alike from both databases (a raw PostgreSQL boolean is the text 'f', which Python takes for true).
_FIND: Final = """
SELECT k.organization_id, k.prefix, k.environment, k.agent_id, k.member_id, k.service_account_id,
    CASE WHEN k.can_act THEN 1 ELSE 0 END, CASE WHEN k.can_read THEN 1 ELSE 0 END,
    CASE WHEN k.can_decide THEN 1 ELSE 0 END, CASE WHEN k.can_admin THEN 1 ELSE 0 END,
    CAST(k.expires_at AS TEXT), CAST(k.revoked_at AS TEXT),
    CASE WHEN m.is_active AND u.is_active THEN 1 ELSE 0 END, CAST(m.roles AS TEXT)
FROM accounts_apikey AS k
LEFT JOIN accounts_member AS m ON m.id = k.member_id
LEFT JOIN accounts_user AS u ON u.id = m.user_id
WHERE k.token_hash = :token_hash
"""

# A person's key does what the person's roles allow at this moment, whatever it was made with.
_ROLES_FOR: Final = {"decide": {"reviewer"}, "admin": {"operator", "admin"}, "read": {"reviewer", "operator", "auditor", "admin"}}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request comes from, as its key says."""

    organization: str
    actor: str
    """`agent:<id>`, `member:<id>` or `service:<id>`."""
    scopes: frozenset[str]
    environment: str
    prefix: str

    @property
    def is_agent(self) -> bool:
        """True for an agent's key, which can never decide."""
        return self.actor.startswith("agent:")


@dataclass(frozen=True, slots=True)
class NewToken:
    """A key as it is shown once: `token` whole, `prefix` to find it by, `token_hash` to store."""

    token: str = field(repr=False)
    prefix: str
    token_hash: str


def key_new_token() -> NewToken:
    """A random key: `c4a_<8 public characters>_<256 random bits>`."""
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(8))
    token = f"c4a_{prefix}_{secrets.token_urlsafe(32)}"
    return NewToken(token, prefix, key_hash(token))


def key_hash(token: str) -> str:
    """SHA-256 of the whole key as 64 hex characters."""
    return hashlib.sha256(token.encode()).hexdigest()


def caller_of_token(token: str, *, now: datetime) -> Caller:
    """The caller a key stands for. One SQL read, no ORM.

    Raises:
        NotAuthenticated: no such key, or it is revoked, past `expires_at`, or its person has left.
    """
    if not _TOKEN.match(token):
        raise NotAuthenticated("The key has not the form c4a_…: send the key you were given, in `Authorization: Bearer c4a_…`.")
    rows = executor_default().read([Statement(_FIND, {"token_hash": key_hash(token)})])[0].rows
    if not rows:
        raise NotAuthenticated("No such key: it was never made here, or belongs to another server.")
    return _caller(rows[0], now)


def _caller(row: tuple[Any, ...], now: datetime) -> Caller:
    (organization, prefix, environment, agent, member, service, act, read, decide, admin, expires_at, revoked_at, is_member, roles) = row
    if revoked_at is not None:
        raise NotAuthenticated(f"The key c4a_{prefix}_… was revoked at {_moment(revoked_at).isoformat()}: ask for a new one.")
    if expires_at is not None and _moment(expires_at) <= now:
        raise NotAuthenticated(f"The key c4a_{prefix}_… expired at {_moment(expires_at).isoformat()}: ask for a new one.")
    scopes = {scope for scope, has in zip(SCOPES, (act, read, decide, admin), strict=True) if has == 1}
    if member is not None:
        if is_member != 1:
            raise NotAuthenticated(f"The key c4a_{prefix}_… belongs to a person who is no longer a member.")
        scopes = {scope for scope in scopes if _ROLES_FOR[scope] & set(json.loads(roles))}
    actor = f"agent:{agent}" if agent is not None else f"member:{member}" if member is not None else f"service:{service}"
    return Caller(organization, actor, frozenset(scopes), environment, prefix)


def _moment(text: str) -> datetime:
    """Both databases keep UTC; SQLite's text says no zone."""
    value = datetime.fromisoformat(text)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
