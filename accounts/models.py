"""Who there is: organizations, their members and groups, agents, service accounts, and keys.

Ids that appear in the record (`Organization.id`, `Agent.id`, `ServiceAccount.id`, `Member.id`) are random text, never change and
are never given out again.
"""

from __future__ import annotations

import secrets
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone

from c4a.record import schema

SLUG = RegexValidator(r"\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", "Lower-case letters, digits and inner hyphens, at most 63.")


def new_id(prefix: str) -> str:
    """A random text id of 96 bits: `org_…`, `agt_…`, `svc_…`, `mem_…`."""
    return f"{prefix}_{secrets.token_hex(12)}"


def new_organization_id() -> str:
    """Default of `Organization.id`, in the form that a record file's own organization has."""
    return schema.new_organization_id()


def new_member_id() -> str:
    """Default of `Member.id`."""
    return new_id("mem")


def new_agent_id() -> str:
    """Default of `Agent.id`."""
    return new_id("agt")


def new_service_account_id() -> str:
    """Default of `ServiceAccount.id`."""
    return new_id("svc")


class Role(models.TextChoices):
    """What a member may do; a member may have several."""

    REVIEWER = "reviewer", "Reviewer: answers tickets"
    OPERATOR = "operator", "Operator: settles doubts, freezes, sets up"
    AUDITOR = "auditor", "Auditor: reads everything"
    ADMIN = "admin", "Admin: members, groups and keys"


class UserManager(BaseUserManager["User"]):
    """Users by e-mail address, compared without regard to case."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A user; without a password one who signs in by a link only."""
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """A user who sees every organization."""
        return self.create_user(email, password, **{**fields, "is_superuser": True})

    def get_by_natural_key(self, username: str | None) -> User:
        """The user who signs in with this address."""
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """One person, in any number of organizations."""

    email = models.EmailField("e-mail", max_length=254)
    name = models.CharField(max_length=200, blank=True)
    is_active = models.BooleanField("active", default=True)
    joined_at = models.DateTimeField(default=timezone.now, editable=False)

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    objects: ClassVar[UserManager] = UserManager()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["email"], name="accounts_user_email"),
            models.CheckConstraint(condition=Q(email=Lower("email")), name="accounts_user_email_lower"),
        )

    @property
    def is_staff(self) -> bool:
        """Superusers; whom else the admin lets in, the admin site decides by role."""
        return self.is_superuser

    def __str__(self) -> str:
        return self.name or self.email


class Organization(models.Model):
    """Whose agents share effects. The id is part of every effect key; slug and name are only names."""

    id = models.CharField(primary_key=True, max_length=64, default=new_organization_id, editable=False)
    slug = models.CharField(max_length=63, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Member(models.Model):
    """A person in an organization, with roles. Its id is the person's stable name in the record (`member:<id>`)."""

    id = models.CharField(primary_key=True, max_length=64, default=new_member_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="members")
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="memberships")
    roles = models.JSONField(default=list, blank=True)
    is_active = models.BooleanField("active", default=True)
    joined_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("organization", "user")
        constraints = (models.UniqueConstraint(fields=["organization", "user"], name="accounts_member_once"),)

    def __str__(self) -> str:
        return f"{self.user} in {self.organization}"

    @property
    def subject(self) -> str:
        """The name this member's entries are chained by, and the actor of what they do."""
        return f"member:{self.id}"


class Group(models.Model):
    """Members who answer together, as policies name them."""

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="groups")
    slug = models.CharField(max_length=63, validators=[SLUG])
    name = models.CharField(max_length=200)
    members = models.ManyToManyField(Member, related_name="groups", blank=True)

    class Meta:
        ordering = ("organization", "slug")
        constraints = (models.UniqueConstraint(fields=["organization", "slug"], name="accounts_group_slug"),)

    def __str__(self) -> str:
        return self.name

    @property
    def subject(self) -> str:
        """The name this group's entries are chained by."""
        return f"group:{self.pk}"


class Agent(models.Model):
    """A program that acts for an organization; its id is the actor of its entries (`agent:<id>`)."""

    id = models.CharField(primary_key=True, max_length=64, default=new_agent_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="agents")
    name = models.CharField(max_length=200)
    owner = models.ForeignKey(Member, on_delete=models.PROTECT, related_name="agents", null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("organization", "name")
        constraints = (models.UniqueConstraint(fields=["organization", "name"], name="accounts_agent_name"),)

    def __str__(self) -> str:
        return self.name


class ServiceAccount(models.Model):
    """A program that decides, reads or administers for an organization without being one of its agents."""

    id = models.CharField(primary_key=True, max_length=64, default=new_service_account_id, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="service_accounts")
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("organization", "name")
        constraints = (models.UniqueConstraint(fields=["organization", "name"], name="accounts_service_account_name"),)

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """A key to the REST API: an agent's (`act`, `read`) or a service's (`decide`, `read`, `admin`), never both.

    Only the SHA-256 of the key is stored: with 256 random bits a slow hash would add cost and no safety.
    """

    class Environment(models.TextChoices):
        """Which of an agent's deployments uses the key."""

        TEST = "test", "Test"
        LIVE = "live", "Live"

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="keys")
    prefix = models.CharField(max_length=16, unique=True, editable=False)
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    name = models.CharField(max_length=200, blank=True)
    environment = models.CharField(max_length=4, choices=Environment, default=Environment.LIVE)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="keys", null=True, blank=True)
    member = models.ForeignKey(Member, on_delete=models.PROTECT, related_name="keys", null=True, blank=True)
    service_account = models.ForeignKey(ServiceAccount, on_delete=models.PROTECT, related_name="keys", null=True, blank=True)
    can_act = models.BooleanField("act", default=False)
    can_read = models.BooleanField("read", default=False)
    can_decide = models.BooleanField("decide", default=False)
    can_admin = models.BooleanField("admin", default=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-created_at",)
        verbose_name = "API key"
        constraints = (
            models.CheckConstraint(condition=~Q(can_act=True, can_decide=True), name="accounts_key_act_or_decide"),
            models.CheckConstraint(
                condition=Q(agent__isnull=False, member__isnull=True, service_account__isnull=True, can_decide=False, can_admin=False)
                | Q(agent__isnull=True, member__isnull=False, service_account__isnull=True, can_act=False)
                | Q(agent__isnull=True, member__isnull=True, service_account__isnull=False, can_act=False),
                name="accounts_key_one_holder",
            ),
        )

    def __str__(self) -> str:
        return f"c4a_{self.prefix}_…"

    @property
    def scopes(self) -> list[str]:
        """The scopes it was made with, in a fixed order."""
        return [scope for scope in ("act", "read", "decide", "admin") if getattr(self, f"can_{scope}")]


class SignInLink(models.Model):
    """One link that signs one person in once; only its hash is stored."""

    token_hash = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_in_links")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"link for {self.user}"
