"""Enqueue: what a message costs its producer.

One: a business transaction (one INSERT) alone, with one more ``create()`` of a bare model with the
same columns, and with ``enqueue`` instead, in turn. The cost is the whole transaction's time less
that of the transaction alone, hooks after the commit included. The session does not wait for the
disk: that wait belongs to the business transaction, which pays it anyway, and its noise is greater
than the difference that is looked for.

Many: ``enqueue_many`` of 1,000 and ``bulk_create`` of 1,000 bare rows, each in a transaction of its
own that does wait for the disk; the model instances are made inside the measured time on both sides.
And where there is COPY, the driver's own COPY of the same rows: the least that can be.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from uuid import uuid4

from django.db import connection, transaction

from reliable_messaging import OutgoingMessage, enqueue, enqueue_many
from tests.benchmarks.backlog import BULK, sample_payload
from tests.benchmarks.benchapp.handlers import NOOP
from tests.benchmarks.benchapp.models import BareRow, Order
from tests.benchmarks.databases import current
from tests.benchmarks.figures import Figure, Target
from tests.benchmarks.rounds import alternate
from tests.benchmarks.scale import Scale

WARM_UP = 20


def measure(scale: Scale) -> Iterator[Figure]:
    costs = [_costs_of_one(scale.transactions) for _ in range(scale.rounds)]
    yield Figure(
        measure="enqueue in a business transaction",
        unit="µs",
        ours=[ours for ours, _ in costs],
        reference=[reference for _, reference in costs],
        reference_name="one more create()",
        target=Target(must=1.3, aim=1.0, at_least=False),
    )
    yield from _many(scale)


def _many(scale: Scale) -> Iterator[Figure]:
    stores = {"ours": _enqueue_many, "bulk_create": _bulk_create}
    targets = {"bulk_create": Target(must=1, aim=2)}
    if current().copies:
        stores["COPY"] = _copy
    rates = alternate(
        {name: partial(_bulk_rate, store, scale.bulks) for name, store in stores.items()}, scale.rounds
    )
    for name in list(stores)[1:]:
        yield Figure(
            measure=f"enqueue_many of {BULK:,}",
            unit="msg/s",
            ours=rates["ours"],
            reference=rates[name],
            reference_name=name,
            target=targets.get(name),
        )


def _costs_of_one(transactions: int) -> tuple[float, float]:
    """Microseconds that ``enqueue`` and ``create()`` add to a transaction."""
    kinds: dict[str, Callable[[int], object]] = {
        "alone": lambda number: None,
        "create": _create,
        "enqueue": lambda number: enqueue(NOOP, sample_payload(number)),
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    current().empty()
    current().settle()
    current().execute("default", *current().not_waiting_for_disk)
    try:
        for number in range(WARM_UP + transactions):
            for name, extra in kinds.items():
                times[name].append(_business_transaction(extra, number))
    finally:
        connection.close()
    typical = {name: median(values[WARM_UP:]) for name, values in times.items()}
    return typical["enqueue"] - typical["alone"], typical["create"] - typical["alone"]


def _business_transaction(extra: Callable[[int], object], number: int) -> float:
    began = time.perf_counter()
    with transaction.atomic():
        Order.objects.create(number=number)
        extra(number)
    return (time.perf_counter() - began) * 1e6


def _create(number: int) -> None:
    BareRow.objects.create(topic=NOOP, payload=json.dumps(sample_payload(number)))


def _bulk_rate(store: Callable[[], object], bulks: int) -> float:
    current().empty()
    current().settle()
    store()
    began = time.perf_counter()
    for _ in range(bulks):
        store()
    return BULK * bulks / (time.perf_counter() - began)


def _enqueue_many() -> None:
    with transaction.atomic():
        enqueue_many([OutgoingMessage(topic=NOOP, payload=sample_payload(n)) for n in range(BULK)])


def _bulk_create() -> None:
    with transaction.atomic():
        BareRow.objects.bulk_create(_bare_rows())


def _bare_rows() -> list[BareRow]:
    return [BareRow(topic=NOOP, payload=json.dumps(sample_payload(n))) for n in range(BULK)]


def _copy() -> None:
    row = {
        field.column: getattr(BareRow(topic=NOOP), field.attname) for field in BareRow._meta.concrete_fields
    }
    row["headers"] = "{}"
    with transaction.atomic(), connection.cursor() as cursor:
        with cursor.copy(f"COPY {BareRow._meta.db_table} ({', '.join(row)}) FROM STDIN") as copy:
            for number in range(BULK):
                row |= {"id": uuid4(), "payload": json.dumps(sample_payload(number))}
                copy.write_row(list(row.values()))
