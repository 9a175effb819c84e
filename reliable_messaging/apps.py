from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ReliableMessagingConfig(AppConfig):
    name = "reliable_messaging"
    verbose_name = _("Reliable messaging")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401  (registers the system checks)
        from .registry import discover_handlers

        discover_handlers()
