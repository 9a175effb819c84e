"""Bad handlers: connections, transactions and hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import IntegrityError, connections, transaction

from reliable_messaging import Message
from tests.testapp.models import Effect, Line

from .forks import fork_and_return
from .kinds import DONE, OTHER, OWN, TRANSIENT, bad

# Connections and transactions


@bad(tells="closed the connection")
def close(message: Message) -> None:
    connections[message.using].close()


@bad(tells="closed the connection")
def close_all(message: Message) -> None:
    connections.close_all()


@bad(tells="by hand")
def reconnect(message: Message) -> None:
    connections[message.using].close()
    connections[message.using].connect()


@bad(differently={"postgresql": TRANSIENT, "mysql": TRANSIENT})
def close_the_driver(message: Message) -> None:
    connections[message.using].connection.close()


@bad(tells="HandlerRolledBack")
def set_rollback(message: Message) -> None:
    transaction.set_rollback(True, using=message.using)


@bad(tells="HandlerRolledBack")
def swallowed_integrity_error(message: Message) -> None:
    taken = Effect.objects.using(message.using).get(message_id=message.id)
    try:
        Effect(pk=taken.pk, name="twice").save(using=message.using, force_insert=True)
    except IntegrityError:
        pass


@bad(ends=DONE, differently={"postgresql": OWN})
def swallowed_raw_integrity_error(message: Message) -> None:
    """A transaction of PostgreSQL is over then; the others undo the statement alone."""
    taken = Effect.objects.using(message.using).get(message_id=message.id)
    try:
        with connections[message.using].cursor() as cursor:
            cursor.execute("INSERT INTO testapp_effect (id, name) VALUES (%s, 'twice')", [taken.pk])
    except IntegrityError:
        pass


@bad(tells="IntegrityError")
def deferred_violation(message: Message) -> None:
    Line.objects.using(message.using).create(order_id=4711)


@bad(tells="TransactionManagementError")
def autocommit_off(message: Message) -> None:
    transaction.set_autocommit(False, using=message.using)


@bad(tells="by hand")
def block_never_left(message: Message) -> None:
    transaction.atomic(using=message.using).__enter__()


@bad(tells="by hand")
def block_left_by_hand(message: Message) -> None:
    transaction.atomic(using=message.using).__exit__(None, None, None)


@bad(ends=DONE)
def autocommit_off_elsewhere(message: Message) -> None:
    transaction.set_autocommit(False, using=OTHER)


@bad(tells="left a transaction open on 'other'")
def uncommitted_elsewhere(message: Message) -> None:
    transaction.set_autocommit(False, using=OTHER)
    Effect.objects.using(OTHER).create(name="never committed")


@bad(tells="left a transaction open on 'other'")
def open_transaction_elsewhere(message: Message) -> None:
    transaction.atomic(using=OTHER).__enter__()
    Effect.objects.using(OTHER).create(name="never committed")


@bad(ends=DONE)
def thread_sharing_left_on(message: Message) -> None:
    connections[message.using].inc_thread_sharing()


# Hooks


def _hook(message: Message, hook: Callable[[], Any]) -> None:
    transaction.on_commit(hook, using=message.using)


@bad(ends=DONE)
def failing_hook(message: Message) -> None:
    _hook(message, lambda: 1 / 0)


@bad(ends=DONE)
def exiting_hook(message: Message) -> None:
    def leave() -> None:
        raise SystemExit(3)

    _hook(message, leave)


@bad(ends=DONE)
def hook_that_turns_autocommit_off(message: Message) -> None:
    _hook(message, lambda: transaction.set_autocommit(False, using=message.using))


@bad(ends=DONE)
def forking_hook(message: Message) -> None:
    _hook(message, lambda: fork_and_return(lambda: None))
