"""People, agents and keys in the admin. Who may do what (members, roles, groups, keys) changes by verbs, so that it is an entry in the
record too; names, agents, service accounts and users themselves are rows alone, noted in Django's own log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import Group as DjangoGroup
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from unfold.decorators import action  # type: ignore[import-untyped]

from accounts import verbs
from accounts.keys import SCOPES
from accounts.models import Agent, ApiKey, Group, Member, Organization, Role, ServiceAccount, User
from ledger.scoped_admin import ScopedAdmin

if TYPE_CHECKING:
    UserModelForm = forms.ModelForm[User]
    MemberModelForm = forms.ModelForm[Member]
    ApiKeyModelForm = forms.ModelForm[ApiKey]
else:
    # Django's form has type parameters for the type checker only.
    UserModelForm = MemberModelForm = ApiKeyModelForm = forms.ModelForm

# Django's own groups and permissions decide nothing here; roles do.
admin.site.unregister(DjangoGroup)


class OwnedAdmin(ScopedAdmin):
    """Rows that belong to an organization and that its admins may change; the organization of a new row is the request's."""

    roles: ClassVar[frozenset[str]] = frozenset({"admin"})

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Admins."""
        return self.is_allowed(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Admins."""
        return self.is_allowed(request)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Only rows of the person's own organization can be chosen."""
        if not request.user.is_superuser:
            organization = getattr(request, "organization", "")
            model = db_field.remote_field.model
            if model is Organization:
                kwargs["queryset"] = Organization.objects.filter(pk=organization)
            elif model is not User:
                kwargs["queryset"] = model.objects.filter(organization=organization)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@admin.register(Organization)
class OrganizationAdmin(ScopedAdmin):
    """Organizations; superusers make them and name them."""

    organization_field = "pk"
    list_display = ("name", "slug", "id", "created_at")
    search_fields = ("name", "slug")
    readonly_fields = ("id", "created_at")

    def save_model(self, request: HttpRequest, obj: Organization, form: Any, change: bool) -> None:
        """By the verb, when it is new."""
        if change:
            super().save_model(request, obj, form, change)
            return
        obj.pk = verbs.organization_create(obj.slug, obj.name, actor=request_actor(request)).pk
        obj._state.adding = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Superusers."""
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Superusers."""
        return bool(request.user.is_superuser)


class UserForm(UserModelForm):
    """A person; the password is set by the person, signed in by a link."""

    class Meta:
        model = User
        fields = ("email", "name", "is_active", "is_superuser")

    def clean_email(self) -> str:
        """Lower case, as it is compared."""
        return str(self.cleaned_data["email"]).lower()


@admin.register(User)
class UserAdmin(ScopedAdmin):
    """People across organizations: for superusers."""

    roles: ClassVar[frozenset[str]] = frozenset()
    form = UserForm
    list_display = ("email", "name", "is_active", "is_superuser")
    search_fields = ("email", "name")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Superusers."""
        return self.is_allowed(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Superusers."""
        return self.is_allowed(request)

    def save_model(self, request: HttpRequest, obj: User, form: UserForm, change: bool) -> None:
        """A new person has no password and signs in by a link."""
        if not change:
            obj.set_unusable_password()
        super().save_model(request, obj, form, change)


class MemberForm(MemberModelForm):
    """A membership with its roles."""

    email = forms.EmailField(label="E-mail address", required=False, help_text="Of the person to add; made if there is none yet.")
    roles = forms.MultipleChoiceField(choices=Role.choices, required=False, widget=forms.CheckboxSelectMultiple)

    class Meta:
        model = Member
        fields = ("organization", "roles")

    def clean(self) -> dict[str, Any] | None:
        """A new member needs an address."""
        cleaned = super().clean()
        if self.instance._state.adding and not self.cleaned_data.get("email"):
            raise ValidationError({"email": "Name the person to add."})
        return cleaned


@admin.register(Member)
class MemberAdmin(OwnedAdmin):
    """Members; a membership is ended, never deleted, since entries name it."""

    form = MemberForm
    list_display = ("user", "organization", "roles_shown", "is_active", "joined_at")
    list_filter = ("is_active",)
    search_fields = ("user__email", "user__name")
    list_select_related = ("user", "organization")
    actions_detail: ClassVar[list[str]] = ["end"]

    @admin.display(description="roles")
    def roles_shown(self, member: Member) -> str:
        """The roles in words."""
        return ", ".join(member.roles) or "none"

    def get_fields(self, request: HttpRequest, obj: Member | None = None) -> tuple[str, ...]:
        """The person is chosen once."""
        return ("organization", "email", "roles") if obj is None else ("organization", "user", "roles", "is_active")

    def get_readonly_fields(self, request: HttpRequest, obj: Member | None = None) -> tuple[str, ...]:
        """Who it is does not change."""
        return () if obj is None else ("organization", "user", "is_active")

    def save_model(self, request: HttpRequest, obj: Member, form: MemberForm, change: bool) -> None:
        """By the verbs."""
        roles, actor = form.cleaned_data["roles"], request_actor(request)
        if change:
            verbs.member_set_roles(obj, roles, actor=actor)
            return
        email = form.cleaned_data["email"].lower()
        user = User.objects.filter(email=email).first() or User.objects.create_user(email)
        obj.pk = verbs.member_add(obj.organization, user, roles=roles, actor=actor).pk
        obj.user = user

    @action(description="End membership", url_path="end", permissions=["change"])  # type: ignore[untyped-decorator]
    def end(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a membership; the person's keys stop working."""
        member = self.get_object(request, unquote(object_id))
        if member is not None and request.method == "POST":
            verbs.member_remove(member, actor=request_actor(request))
            messages.success(request, f"{member} has ended.")
            return HttpResponseRedirect(reverse("admin:accounts_member_changelist"))
        return confirm_page(self, request, f"End {member}?" if member else "No such member")


@admin.register(Group)
class GroupAdmin(OwnedAdmin):
    """Groups and who is in them."""

    list_display = ("name", "slug", "organization")
    list_select_related = ("organization",)
    search_fields = ("name", "slug")
    fields = ("organization", "slug", "name", "members")

    def get_readonly_fields(self, request: HttpRequest, obj: Group | None = None) -> tuple[str, ...]:
        """Policies name a group by its slug, so only who is in it changes."""
        return () if obj is None else ("organization", "slug")

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Only members of the person's own organization can be chosen."""
        members: QuerySet[Member] = Member.objects.filter(is_active=True).select_related("user", "organization")
        if not request.user.is_superuser:
            members = members.filter(organization=getattr(request, "organization", ""))
        return super().formfield_for_manytomany(db_field, request, **{**kwargs, "queryset": members})

    def save_model(self, request: HttpRequest, obj: Group, form: Any, change: bool) -> None:
        """By the verb, when it is new."""
        if change:
            super().save_model(request, obj, form, change)
            return
        obj.pk = verbs.group_create(obj.organization, obj.slug, obj.name, actor=request_actor(request)).pk
        obj._state.adding = False

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Each coming and going is a verb of its own."""
        group: Group = form.instance
        wanted, present = set(form.cleaned_data["members"]), set(group.members.all())
        for member in wanted - present:
            verbs.group_add_member(group, member, actor=request_actor(request))
        for member in present - wanted:
            verbs.group_remove_member(group, member, actor=request_actor(request))


@admin.register(Agent)
class AgentAdmin(OwnedAdmin):
    """Agents; keys are made under API keys."""

    list_display = ("name", "id", "organization", "owner", "created_at")
    list_select_related = ("organization", "owner__user", "owner__organization")
    search_fields = ("name", "=id")
    readonly_fields = ("id",)


@admin.register(ServiceAccount)
class ServiceAccountAdmin(OwnedAdmin):
    """Service accounts; keys are made under API keys."""

    list_display = ("name", "id", "organization", "created_at")
    list_select_related = ("organization",)
    search_fields = ("name", "=id")
    readonly_fields = ("id",)


class ApiKeyForm(ApiKeyModelForm):
    """A new key: one holder, and scopes that such a holder may have."""

    class Meta:
        model = ApiKey
        fields = (
            "name",
            "agent",
            "member",
            "service_account",
            "can_act",
            "can_read",
            "can_decide",
            "can_admin",
            "environment",
            "expires_at",
        )

    def clean(self) -> dict[str, Any]:
        """One holder, and scopes that go together."""
        cleaned = self.cleaned_data
        holders = [cleaned[name] for name in ("agent", "member", "service_account") if cleaned.get(name)]
        if len(holders) != 1:
            raise ValidationError("Name one holder: an agent, a member or a service account.")
        scopes = [scope for scope in SCOPES if cleaned.get(f"can_{scope}")]
        possible = ("act", "read") if isinstance(holders[0], Agent) else ("decide", "read", "admin")
        if not scopes or not set(scopes) <= set(possible):
            raise ValidationError(f"A key of this holder has some of: {', '.join(possible)}.")
        return {**cleaned, "holder": holders[0], "scopes": scopes}


@admin.register(ApiKey)
class ApiKeyAdmin(OwnedAdmin):
    """Keys; shown whole once, when they are made."""

    form = ApiKeyForm
    list_display = ("__str__", "name", "holder", "scopes_shown", "environment", "expires_at", "revoked_at")
    list_filter = ("environment", "can_act", "can_decide")
    list_select_related = ("agent", "member__user", "member__organization", "service_account")
    search_fields = ("=prefix", "name")
    actions_detail: ClassVar[list[str]] = ["revoke"]

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """A person's key is made by that person alone: what is done with it stands in the record under the person's name."""
        field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        if db_field.name == "member":
            field.queryset = field.queryset.filter(user=request.user.pk, is_active=True)
        return field

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """A key is made and revoked, not changed; without an object the list's own pages ask."""
        return obj is None and self.is_allowed(request)

    @admin.display(description="holder")
    def holder(self, key: ApiKey) -> str:
        """Whom it stands for."""
        return str(key.agent or key.member or key.service_account)

    @admin.display(description="scopes")
    def scopes_shown(self, key: ApiKey) -> str:
        """What it may do."""
        return ", ".join(key.scopes)

    def save_model(self, request: HttpRequest, obj: ApiKey, form: ApiKeyForm, change: bool) -> None:
        """By the verb; the key itself is shown in the message, this once."""
        data = form.cleaned_data
        made = verbs.key_create(
            data["holder"],
            data["scopes"],
            actor=request_actor(request),
            name=data["name"],
            environment=data["environment"],
            expires_at=data["expires_at"],
        )
        obj.pk, obj.prefix = made.key.pk, made.key.prefix
        messages.warning(request, f"Copy the key now, it is not shown again: {made.token}")

    @action(description="Revoke", url_path="revoke")  # type: ignore[untyped-decorator]
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Stop a key at once."""
        key = self.get_object(request, object_id) if self.is_allowed(request) else None
        if key is not None and request.method == "POST":
            verbs.key_revoke(key, actor=request_actor(request))
            messages.success(request, f"{key} no longer works.")
            return HttpResponseRedirect(reverse("admin:accounts_apikey_changelist"))
        return confirm_page(self, request, f"Revoke {key}? Whoever uses it is refused at once." if key else "No such key")


def request_actor(request: HttpRequest) -> str:
    """Who did it, for the record."""
    return str(getattr(request, "actor", ""))


def confirm_page(model_admin: ScopedAdmin, request: HttpRequest, question: str) -> HttpResponse:
    """A page with one button: what changes something is never done by a GET."""
    context = {**model_admin.admin_site.each_context(request), "title": question, "opts": model_admin.opts}
    return render(request, "accounts/confirm.html", context)
