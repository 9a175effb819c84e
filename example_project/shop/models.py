"""The shop's own tables: orders, and what the handlers did for them."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    reference = models.CharField(max_length=40, unique=True)
    email = models.EmailField(default="customer@example.com")
    address = models.CharField(max_length=200, blank=True, default="1 Harbour Street")
    quantity = models.PositiveIntegerField(default=1)
    placed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.reference


class Effect(models.Model):
    """What one run of a handler did. No unique key, so that a second time would show."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    message_id = models.UUIDField()
    worker_pid = models.PositiveIntegerField()
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} of message {self.message_id}"


class StockMove(Effect):
    quantity = models.IntegerField()


class Receipt(Effect):
    email = models.EmailField()


class Parcel(Effect):
    address = models.CharField(max_length=200)


class Invoice(Effect):
    pass


class Alert(Effect):
    """For the people of the shop: something needs a hand."""

    text = models.TextField()
