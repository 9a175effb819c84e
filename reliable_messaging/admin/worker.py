from __future__ import annotations

from django.contrib import admin

from ..models import Worker
from .read_only import ReadOnlyAdmin


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("host", "pid", "version", "queues", "in_flight", "started_at", "heartbeat_at")
    ordering = ("-heartbeat_at",)
