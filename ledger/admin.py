"""The record in the admin: to look at, and one deed, settling a doubt."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, ClassVar, get_args

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import action  # type: ignore[import-untyped]

from c4a.errors import C4AError
from c4a.record import doubt, reads
from c4a.record.entries import ENTRY_KINDS
from c4a.record.types import DOUBT_REASONS, State
from ledger.executor import executor_default
from ledger.forms import ResolveForm
from ledger.models import Approval, Effect, Entry
from ledger.scoped_admin import ScopedAdmin, WordFilter

KEY = re.compile(r"\A[0-9a-f]{8,64}\Z")


def moment(micros: int | None) -> datetime | None:
    """A record's time as Django shows times."""
    return None if micros is None else datetime.fromtimestamp(micros / 1_000_000, UTC)


def in_full(text: str) -> str:
    """A text of any length, every character reachable without scrolling sideways."""
    return format_html('<code style="white-space: pre-wrap; overflow-wrap: anywhere">{}</code>', text)


class StateFilter(WordFilter):
    """By the state of an action."""

    title = "state"
    parameter_name = "state"
    words = get_args(State)


class KindFilter(WordFilter):
    """By the kind of an entry."""

    title = "kind"
    parameter_name = "kind"
    words = tuple(ENTRY_KINDS)


class ApprovalStateFilter(WordFilter):
    """By what became of a yes."""

    title = "state"
    parameter_name = "state"
    words = ("unspent", "spent", "cancelled")


class RecordAdmin(ScopedAdmin):
    """Nothing of the record can be added, changed or deleted here. Search takes a key (or its beginning) or a whole run, by index."""

    search_fields: ClassVar[tuple[str, ...]] = ("run", "key")
    search_help_text = "A key or its first characters, or a whole run"
    ordering = ("-id",)
    sortable_by = ()

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> tuple[QuerySet[Any], bool]:
        """Rows of a run, or of the keys that begin with the term; both by an index of the record."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if KEY.match(term):
            found = Effect.objects.filter(key__gte=term, key__lt=term + "g")
            if not request.user.is_superuser:
                found = found.filter(organization=getattr(request, "organization", ""))
            places = list(found.values_list("run", "key")[:20])
            if places:
                return queryset.filter(run__in={run for run, _ in places}, key__in={key for _, key in places}), False
        return queryset.filter(run=term), False


@admin.register(Effect)
class EffectAdmin(RecordAdmin):
    """Actions, newest first; one in doubt can be settled."""

    list_display = ("tool", "state_shown", "run", "key_short", "attempt", "actor", "last_time")
    list_filter = (StateFilter,)
    actions_detail: ClassVar[list[str]] = ["resolve"]
    fields = (
        "organization",
        "run",
        "tool",
        "arguments_shown",
        "state_shown",
        "reason",
        "error",
        "result_shown",
        "note",
        "attempt",
        "actor",
        "holder",
        "explicit_key",
        "parent",
        "approval",
        "happened_twice",
        "first_time",
        "lease_time",
        "last_time",
        "done_time",
        "key",
        "call_digest",
    )
    readonly_fields = fields

    @admin.display(description="state")
    def state_shown(self, effect: Effect) -> str:
        """The state in words."""
        return effect.state.replace("_", " ")

    @admin.display(description="key")
    def key_short(self, effect: Effect) -> str:
        """Enough of the key to search by."""
        return effect.key[:12]

    @admin.display(description="last change")
    def last_time(self, effect: Effect) -> datetime | None:
        """When the last entry was written."""
        return moment(effect.last_at)

    @admin.display(description="first claimed")
    def first_time(self, effect: Effect) -> datetime | None:
        """When the first attempt began."""
        return moment(effect.first_at)

    @admin.display(description="lease until")
    def lease_time(self, effect: Effect) -> datetime | None:
        """Until when the claim was believed alive."""
        return moment(effect.lease_until)

    @admin.display(description="done")
    def done_time(self, effect: Effect) -> datetime | None:
        """When it was settled as done."""
        return moment(effect.done_at)

    @admin.display(description="arguments")
    def arguments_shown(self, effect: Effect) -> str:
        """The canonical text, digit for digit."""
        found = reads.effect(executor_default(), effect.organization, effect.key, effect.run)
        return in_full((found and found.arguments) or "erased")

    @admin.display(description="result")
    def result_shown(self, effect: Effect) -> str:
        """The recorded result as it stands."""
        found = reads.effect(executor_default(), effect.organization, effect.key, effect.run)
        return in_full((found and found.result) or "none")

    def has_resolve_permission(self, request: HttpRequest, object_id: str | int | None = None) -> bool:
        """Operators, and only of an action in doubt."""
        if not self.is_allowed(request) or object_id is None:
            return False
        effect = self.get_object(request, str(object_id))
        return effect is not None and effect.state == "in_doubt"

    @action(description="Resolve", url_path="resolve")  # type: ignore[untyped-decorator]
    def resolve(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Settle a doubt: done, with an optional result, or not done."""
        effect: Effect | None = self.get_object(request, object_id)
        if effect is None or not self.is_allowed(request):
            raise Http404("No such action in this organization.")
        shown = reads.effect(executor_default(), effect.organization, effect.key, effect.run)
        form = ResolveForm(request.POST or None, initial={"attempt": effect.attempt})
        page = reverse("admin:ledger_effect_change", args=[effect.pk])
        if request.method == "POST" and form.is_valid() and self._resolved(request, effect, form):
            return HttpResponseRedirect(page)
        context = {
            **self.admin_site.each_context(request),
            "title": f"Resolve {effect.tool}",
            "opts": self.opts,
            "effect": shown,
            "reason": doubt_reason(effect.reason),
            "form": form,
            "page": page,
            "since": moment(effect.last_at),
        }
        return render(request, "ledger/resolve.html", context, status=422 if form.errors else 200)

    def get_actions_detail(self, request: HttpRequest, object_id: int | str) -> list[Any]:
        """The button stands only where there is something to settle."""
        return list(super().get_actions_detail(request, object_id)) if self.has_resolve_permission(request, object_id) else []

    def _resolved(self, request: HttpRequest, effect: Effect, form: ResolveForm) -> bool:
        data = form.cleaned_data
        try:
            doubt.resolve(
                executor_default(),
                effect.organization,
                effect.key,
                data["verdict"],
                attempt=data["attempt"],
                note=data["note"],
                actor=getattr(request, "actor", ""),
                run=effect.run,
                result=data["result"] if data["verdict"] == "done" else None,
                confirm_lapsed=data["confirm_lapsed"],
                new_outside_key=data["new_outside_key"],
            )
        except C4AError as error:
            form.add_error(None, error.message)
            return False
        messages.success(request, f"{effect.tool} is settled: {data['verdict'].replace('_', ' ')}.")
        return True


@admin.register(Entry)
class EntryAdmin(RecordAdmin):
    """Entries, newest first."""

    list_display = ("kind", "run", "key_short", "seq", "attempt", "actor", "recorded_time")
    list_filter = (KindFilter,)
    fields = (
        "organization",
        "run",
        "key",
        "seq",
        "kind",
        "attempt",
        "approval",
        "payload",
        "actor",
        "recorded_time",
        "payload_digest",
        "prev",
        "digest",
    )
    readonly_fields = fields

    @admin.display(description="key")
    def key_short(self, entry: Entry) -> str:
        """Enough of the key to search by."""
        return entry.key[:24]

    @admin.display(description="recorded")
    def recorded_time(self, entry: Entry) -> datetime | None:
        """The database's time."""
        return moment(entry.recorded_at)


@admin.register(Approval)
class ApprovalAdmin(RecordAdmin):
    """Approvals, newest first."""

    list_display = ("tool", "state", "run", "approved_by", "approved_time", "expires_time")
    list_filter = (ApprovalStateFilter,)
    fields = (
        "organization",
        "run",
        "tool",
        "approval",
        "explicit_key",
        "state",
        "approved_by",
        "approved_time",
        "expires_time",
        "spent_by",
        "key",
        "key_id",
    )
    readonly_fields = fields

    @admin.display(description="approved")
    def approved_time(self, approval: Approval) -> datetime | None:
        """When the yes was recorded."""
        return moment(approval.approved_at)

    @admin.display(description="expires")
    def expires_time(self, approval: Approval) -> datetime | None:
        """When the yes runs out, if ever."""
        return moment(approval.expires_at)


def doubt_reason(reason: str | None) -> str:
    """Why it is in doubt, in a sentence."""
    return DOUBT_REASONS.get(reason or "", "nobody knows whether it happened")
