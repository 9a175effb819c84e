"""Run at the end of README.md, in its namespace: what the page defines and does not itself call."""

from django.core.management import call_command
from django.test import Client
from shop.models import Alert, Order, StockMove

from reliable_messaging import enqueue
from reliable_messaging.models import OutboxMessage, Worker

assert StockMove.objects.get().quantity == -2

nowhere = enqueue("payment.collect", {"order": 0})
unpaid = enqueue("payment.collect", {"order": Order.objects.get().pk})
call_command("run_outbox_worker", "--burst", verbosity=0)
statuses = [OutboxMessage.objects.get(pk=row.pk).get_status_display() for row in (nowhere, unpaid)]
assert statuses == ["dead", "ready"]
assert "there is no such order" in Alert.objects.get().text

client = Client(headers={"host": "localhost"})
assert client.get("/health/").status_code == 500
Worker.objects.create(host="here", pid=1, version="1")
assert client.get("/health/").status_code == 200
