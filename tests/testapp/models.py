from django.db import models


class Effect(models.Model):
    """What a handler did. No unique key, so that a second time would show."""

    name = models.CharField(max_length=200)
    message_id = models.UUIDField(null=True)


class Order(models.Model):
    """A business row whose message must exist exactly when it does."""

    number = models.IntegerField()


class Line(models.Model):
    """Points to an order; the database checks that it exists, some only at COMMIT."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
