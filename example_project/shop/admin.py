from django.contrib import admin

from .models import Alert, Invoice, Order, Parcel, Receipt, StockMove


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["reference", "email", "address", "quantity", "placed_at"]
    search_fields = ["reference", "email"]


@admin.register(StockMove, Receipt, Parcel, Invoice, Alert)
class EffectAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["order", "message_id", "worker_pid", "made_at"]
    list_select_related = ["order"]
