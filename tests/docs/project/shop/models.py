"""The reader's own tables, as far as the pages speak of them."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=50)
    quantity = models.PositiveIntegerField(default=1)
    email = models.EmailField(default="customer@example.com")
    paid = models.BooleanField(default=False)


class StockMove(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    quantity = models.IntegerField()


class Alert(models.Model):
    text = models.TextField()
