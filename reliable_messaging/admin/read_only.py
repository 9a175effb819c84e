from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth import get_permission_codename
from django.http import HttpRequest

from .paginator import BoundedPaginator

if TYPE_CHECKING:
    AnyModelAdmin = admin.ModelAdmin[Any]
else:
    AnyModelAdmin = admin.ModelAdmin


class LeanAdmin(AnyModelAdmin):
    """Its pages stay quick when a table is big."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # each facet is a COUNT
    list_per_page = 50

    def may(self, request: HttpRequest, action: str) -> bool:
        """Each action has a permission of its own."""
        codename = get_permission_codename(action, self.opts)
        return bool(request.user.has_perm(f"{self.opts.app_label}.{codename}"))


class ReadOnlyAdmin(LeanAdmin):
    """Rows are written by workers only; people look, and use the actions."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
