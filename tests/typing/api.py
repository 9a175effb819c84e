"""Public API usage, checked by mypy and never run: what people write must type-check."""

from __future__ import annotations

from datetime import datetime, timedelta

from typing_extensions import assert_type

from reliable_messaging import (
    DeadLetter,
    HeldLease,
    Message,
    OutgoingMessage,
    PermanentError,
    Retry,
    TransientError,
    aenqueue,
    enqueue,
    enqueue_many,
    handler,
    jobs,
    lease,
    leases,
    on_dead,
    outbox,
    periodic,
    timers,
    with_lease,
)
from reliable_messaging.models import Job, JobRun, OutboxMessage, Timer


@handler("order.created")
def reserve_stock(message: Message) -> dict[str, int]:
    assert_type(message.id.hex, str)
    if message.should_stop:
        raise Retry(after=timedelta(seconds=5), charge=False)
    return {"reserved": 1}


@handler("receipt.send", atomic=False, timeout=30, max_attempts=8, backoff=lambda n: timedelta(seconds=n))
def send_receipt(message: Message) -> None:
    if message.attempts > 3:
        raise PermanentError("no such address")
    raise TransientError("mail server down")


@handler("warehouse.ask", timeout=60)
async def ask_warehouse(message: Message) -> dict[str, bool]:
    await aenqueue("order.created", message.payload)
    return {"in_stock": True}


@on_dead("warehouse.ask", atomic=False)
async def tell_warehouse(dead: DeadLetter) -> None:
    assert_type(dead.message, Message)


@on_dead("receipt.send", atomic=False)
def alert(dead: DeadLetter) -> None:
    assert_type(dead.message, Message)
    assert_type(dead.error, str)


def produce() -> None:
    assert_type(enqueue("order.created", {"id": 1}, delay=5, priority=1), OutboxMessage)
    assert_type(enqueue_many([OutgoingMessage(topic="a", payload=[1])]), list[OutboxMessage])
    assert_type(outbox.cancel("0198c0de-0000-7000-8000-000000000000"), bool)


async def produce_async() -> None:
    assert_type(await aenqueue("order.created"), OutboxMessage)
    message = (await aenqueue("warehouse.ask")).as_message()
    assert_type(await ask_warehouse(message), dict[str, bool])


def process() -> None:
    items = outbox.queue.claim(limit=10, lease=30)
    assert_type(items, list[Message])
    assert_type(outbox.queue.ack(items), list[Message])
    assert_type(outbox.queue.abandon(items, ValueError("x"), delay=3), list[Message])
    assert_type(outbox.queue.using("other").reap(), int)


@with_lease("nightly-report", duration=timedelta(minutes=5), wait=10)
def report(year: int) -> str:
    held = leases.current("nightly-report")
    return "" if held is None else f"{year} {held.token}"


assert_type(report(2026), str)


def hold() -> None:
    with lease("a", duration=60, renew_at=0.5, wait=0) as held:
        assert_type(held, HeldLease)
        assert_type(held.lost.is_set(), bool)
    assert_type(leases.acquire("a"), HeldLease | None)


async def hold_async() -> None:
    async with lease("a") as held:
        assert_type((await held.arenew()).server_time.year, int)


def schedule() -> None:
    timer = timers.schedule("a", {"b": 1}, delay=timedelta(days=1), name="c")
    assert_type(timer, Timer)
    assert_type(timers.schedule_many([OutgoingMessage(topic="a", delay=1)], spread=60), list[Timer])
    assert_type(timers.cancel(timer.pk) or timers.reschedule("c", delay=5), bool)


@periodic("0 3 * * *", timezone="Europe/Berlin", overlap="skip")
@handler("report.nightly")
def nightly(message: Message) -> dict[str, str]:
    assert_type(message.scheduled_for, datetime | None)
    return {"built": "yes"}


def recur() -> None:
    job = jobs.create_or_update("often", topic="a", cron="*/5 * * * *", misfire="all", misfire_grace=30)
    assert_type(job, Job)
    assert_type(job.last_run, JobRun | None)
    assert_type(jobs.trigger("often", payload={"b": 1}), JobRun)
    assert_type(jobs.next_times("often", count=3), list[datetime])
    assert_type(jobs.enable("often"), Job)
    assert_type(jobs.delete("often") or jobs.cancel("0198c0de-0000-7000-8000-000000000000"), bool)
