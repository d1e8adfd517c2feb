"""Every change to who may do what (members, roles, groups, keys): one deed each, in one transaction with its entry in the record."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts.keys import SCOPES, key_new_token
from accounts.models import Agent, ApiKey, Group, Member, Organization, Role, ServiceAccount, SignInLink, User
from c4a.errors import RequestRefused
from ledger.hosting import direct_organization
from ledger.subjects import subject_entry

type KeyHolder = Agent | Member | ServiceAccount


@dataclass(frozen=True)
class KeyMade:
    """A new key: the row, and the token that is shown this once."""

    key: ApiKey
    token: str = field(repr=False)


def organization_create(slug: str, name: str, *, actor: str) -> Organization:
    """Make an organization.

    In a database that agents open directly there can be one only: it takes over the id that the database was made with.

    Raises:
        RequestRefused: agents open this database directly and it has its organization.
    """
    with transaction.atomic(durable=_outermost()):
        owner = direct_organization()
        if owner is not None and Organization.objects.exists():
            raise RequestRefused(
                "Agents open this database directly, so it holds one organization: give the other one a database of its own.",
                errors=[{"field": "slug", "problem": "one organization only"}],
            )
        organization = Organization(slug=slug, name=name) if owner is None else Organization(id=owner, slug=slug, name=name)
        organization.save(force_insert=True)
        subject_entry(organization.id, f"organization:{organization.id}", "organization.created", {"slug": slug, "name": name}, actor=actor)
    return organization


def member_add(organization: Organization, user: User, *, roles: Iterable[str], actor: str) -> Member:
    """Make a person a member, or give back membership to one who had left.

    Raises:
        RequestRefused: a role that does not exist.
    """
    wanted = _roles(roles)
    with transaction.atomic(durable=_outermost()):
        member, _ = Member.objects.update_or_create(organization=organization, user=user, defaults={"roles": wanted, "is_active": True})
        subject_entry(organization.id, member.subject, "member.added", {"email": user.email, "roles": wanted}, actor=actor)
    return member


def member_set_roles(member: Member, roles: Iterable[str], *, actor: str) -> Member:
    """Give a member exactly these roles; the same roles again write nothing.

    Raises:
        RequestRefused: a role that does not exist.
    """
    wanted = _roles(roles)
    with transaction.atomic(durable=_outermost()):
        locked = Member.objects.select_for_update().get(pk=member.pk)
        before = sorted(locked.roles)
        if before != wanted:
            locked.roles = wanted
            locked.save(update_fields=["roles"])
            subject_entry(locked.organization_id, locked.subject, "member.roles_changed", {"before": before, "after": wanted}, actor=actor)
    member.roles = wanted
    return member


def member_remove(member: Member, *, actor: str) -> None:
    """End a membership: the person's keys stop working and the groups lose them; the row stays, since entries name it."""
    with transaction.atomic(durable=_outermost()):
        if not Member.objects.filter(pk=member.pk, is_active=True).update(is_active=False):
            return
        ApiKey.objects.filter(member=member, revoked_at=None).update(revoked_at=timezone.now())
        for group in member.groups.all():
            group_remove_member(group, member, actor=actor)
        subject_entry(member.organization_id, member.subject, "member.removed", {}, actor=actor)
    member.is_active = False


def group_create(organization: Organization, slug: str, name: str, *, actor: str) -> Group:
    """Make an empty group."""
    with transaction.atomic(durable=_outermost()):
        group = Group.objects.create(organization=organization, slug=slug, name=name)
        subject_entry(organization.id, group.subject, "group.created", {"slug": slug, "name": name}, actor=actor)
    return group


def group_add_member(group: Group, member: Member, *, actor: str) -> None:
    """Put a member of the same organization into a group; there already, nothing is written.

    Raises:
        RequestRefused: the member belongs to another organization.
    """
    if group.organization_id != member.organization_id:
        raise RequestRefused(
            "The member belongs to another organization than the group.", errors=[{"field": "member", "problem": "other organization"}]
        )
    with transaction.atomic(durable=_outermost()):
        Group.objects.select_for_update().get(pk=group.pk)
        if not group.members.filter(pk=member.pk).exists():
            group.members.add(member)
            subject_entry(group.organization_id, group.subject, "group.member_added", {"member": member.id}, actor=actor)


def group_remove_member(group: Group, member: Member, *, actor: str) -> None:
    """Take a member out of a group; not in it, nothing is written."""
    with transaction.atomic(durable=_outermost()):
        Group.objects.select_for_update().get(pk=group.pk)
        if group.members.filter(pk=member.pk).exists():
            group.members.remove(member)
            subject_entry(group.organization_id, group.subject, "group.member_removed", {"member": member.id}, actor=actor)


def key_create(
    holder: KeyHolder,
    scopes: Iterable[str],
    *,
    actor: str,
    name: str = "",
    environment: str = ApiKey.Environment.LIVE,
    expires_at: datetime | None = None,
) -> KeyMade:
    """Make a key for an agent (`act`, `read`), a member or a service account (`decide`, `read`, `admin`).

    Raises:
        RequestRefused: no scope, one that does not exist, or one that this holder's keys cannot have.
    """
    wanted = frozenset(scopes)
    possible = frozenset({"act", "read"}) if isinstance(holder, Agent) else frozenset({"decide", "read", "admin"})
    if not wanted or not wanted <= possible:
        problem = f"expected some of {sorted(possible)}, got {sorted(wanted)}"
        raise RequestRefused(f"Scopes of this key: {problem}.", errors=[{"field": "scopes", "problem": problem}])
    made = key_new_token()
    with transaction.atomic(durable=_outermost()):
        key = ApiKey.objects.create(
            organization_id=holder.organization_id,
            prefix=made.prefix,
            token_hash=made.token_hash,
            name=name,
            environment=environment,
            expires_at=expires_at,
            agent=holder if isinstance(holder, Agent) else None,
            member=holder if isinstance(holder, Member) else None,
            service_account=holder if isinstance(holder, ServiceAccount) else None,
            **{f"can_{scope}": scope in wanted for scope in SCOPES},
        )
        payload = {"holder": holder.id, "scopes": sorted(wanted), "environment": environment}
        subject_entry(holder.organization_id, f"key:{made.prefix}", "key.created", payload, actor=actor)
    return KeyMade(key, made.token)


def key_revoke(key: ApiKey, *, actor: str) -> ApiKey:
    """Stop a key at once and for good; revoked already, nothing changes."""
    now = timezone.now()
    with transaction.atomic(durable=_outermost()):
        if ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=now):
            subject_entry(key.organization_id, f"key:{key.prefix}", "key.revoked", {}, actor=actor)
            key.revoked_at = now
    return key


def sign_in_link_create(user: User) -> str:
    """A path that signs `user` in once, within `SIGN_IN_LINK_SECONDS`. Older links of the user stop working."""
    token = secrets.token_urlsafe(32)
    now = timezone.now()
    with transaction.atomic(durable=_outermost()):
        SignInLink.objects.filter(user=user).delete()
        SignInLink.objects.create(
            user=user, token_hash=_link_hash(token), created_at=now, expires_at=now + timedelta(seconds=settings.SIGN_IN_LINK_SECONDS)
        )
    return f"/sign-in/link/{token}"


def sign_in_link_is_usable(token: str, *, now: datetime) -> bool:
    """True if the link would sign somebody in; looking uses nothing up."""
    return SignInLink.objects.filter(token_hash=_link_hash(token), used_at=None, expires_at__gt=now, user__is_active=True).exists()


def sign_in_link_use(token: str, *, now: datetime) -> User | None:
    """Use a link up. One filtered UPDATE decides: of two clicks at once, one signs in. None if it was used or has expired."""
    digest = _link_hash(token)
    with transaction.atomic(durable=_outermost()):
        used = SignInLink.objects.filter(token_hash=digest, used_at=None, expires_at__gt=now, user__is_active=True).update(used_at=now)
        return SignInLink.objects.select_related("user").get(token_hash=digest).user if used else None


def _link_hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _roles(roles: Iterable[str]) -> list[str]:
    wanted = sorted(set(roles))
    if unknown := [role for role in wanted if role not in Role.values]:
        problem = f"expected some of {Role.values}, got {unknown}"
        raise RequestRefused(f"Roles: {problem}.", errors=[{"field": "roles", "problem": problem}])
    return wanted


def _outermost() -> bool:
    """Durable unless a transaction is open already: a verb within a verb, or an admin view's own block."""
    return not transaction.get_connection().in_atomic_block
