"""What every page of the admin shares: operators see their organization, superusers all of them, and lists never count a whole table."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.contrib.admin import SimpleListFilter
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin  # type: ignore[import-untyped]

COUNTED_ROWS: Final = 5_000
PAGE_ROWS: Final = 50


class QuickPaginator(Paginator):  # type: ignore[type-arg]  # has type parameters for the type checker only
    """Pages of the first rows alone: COUNT(*) over a million rows takes longer than anybody pages. Older rows are found by search."""

    @cached_property
    def count(self) -> int:
        """How many rows there are, but never more than `COUNTED_ROWS`."""
        rows = self.object_list
        return rows.order_by()[:COUNTED_ROWS].count() if isinstance(rows, QuerySet) else len(rows)


class ScopedAdmin(ModelAdmin):  # type: ignore[misc]
    """Rows of the request's organization, for members with one of `roles`; all rows for superusers.

    Roles and organization were put on the request by middleware, so that this app needs no import of accounts.
    """

    roles: ClassVar[frozenset[str]] = frozenset({"operator", "admin"})
    organization_field: ClassVar[str] = "organization"
    show_full_result_count = False
    paginator = QuickPaginator
    list_per_page = PAGE_ROWS
    list_max_show_all = PAGE_ROWS
    actions = None
    list_fullwidth = True

    def is_allowed(self, request: HttpRequest) -> bool:
        """True for a superuser, and for a member with one of `roles`."""
        user = request.user
        return bool(user.is_active and (user.is_superuser or self.roles & getattr(request, "roles", frozenset())))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows this person may see."""
        rows: QuerySet[Any] = super().get_queryset(request)
        if request.user.is_superuser:
            return rows
        return rows.filter(**{self.organization_field: getattr(request, "organization", "")})

    def has_module_permission(self, request: HttpRequest) -> bool:
        """As `is_allowed`."""
        return self.is_allowed(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """As `is_allowed`; that a row belongs to the organization, the queryset sees to."""
        return self.is_allowed(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody, unless a subclass says so."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody, unless a subclass says so."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody: rows that entries name stay."""
        return False


class WordFilter(SimpleListFilter):
    """A filter whose words are known; Django's own would look for them in the whole table."""

    words: ClassVar[tuple[str, ...]] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Each word, with blanks for underlines."""
        return [(word, word.replace("_", " ")) for word in self.words]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Only rows with the chosen word."""
        return queryset.filter(**{str(self.parameter_name): self.value()}) if self.value() in self.words else queryset
