from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth import get_permission_codename
from django.http import HttpRequest
from django.utils.translation import ngettext

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

    def tell(self, request: HttpRequest, words: str, *, changed: int, skipped: int) -> None:
        """What an action has done."""
        if changed:
            told = ngettext("%(words)s: %(n)d %(what)s.", "%(words)s: %(n)d %(whats)s.", changed)
            names = {"what": self.opts.verbose_name, "whats": self.opts.verbose_name_plural}
            self.message_user(request, told % {"words": words, "n": changed, **names}, messages.SUCCESS)
        if skipped:
            told = ngettext(
                "%(n)d was left alone: it is so already, or its status does not allow it.",
                "%(n)d were left alone: they are so already, or their status does not allow it.",
                skipped,
            )
            self.message_user(request, told % {"n": skipped}, messages.WARNING)


class ReadOnlyAdmin(LeanAdmin):
    """Rows are written by workers only; people look, and use the actions."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
