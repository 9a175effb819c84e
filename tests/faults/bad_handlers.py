"""Handlers that do what no handler should. What each of them must come to, on each database."""

from __future__ import annotations

import decimal
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, connections, transaction
from django.utils import timezone, translation
from django.utils.functional import lazystr

from reliable_messaging import Message, handler
from tests.testapp.models import Effect, Line

DONE, OWN, TRANSIENT = "done", "own", "transient"
"""Acknowledged, or charged to the one or the other budget at its first attempt."""
EVERYWHERE = ("sqlite", "postgresql", "mysql")
ROW_LOCKING = EVERYWHERE[1:]
OTHER = "other"

leaked: ContextVar[str] = ContextVar("leaked", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    work: Callable[[Message], Any]
    ends: str = OWN
    differently: Mapping[str, str] = field(default_factory=dict)
    """How it ends on a database where it ends in another way."""
    databases: tuple[str, ...] = EVERYWHERE
    keeps: int = 0
    """Effects that stay when it fails: it committed them past everything, and nothing can undo that."""
    tells: str = ""
    """Words of the error."""

    def end(self, vendor: str) -> str:
        return self.differently.get(vendor, self.ends)

    @property
    def topic(self) -> str:
        return f"bad.{self.name}"

    def __call__(self, message: Message) -> Any:
        Effect.objects.using(message.using).create(name=self.name, message_id=message.id)
        # What is charged to the infrastructure is tried again for a day: it behaves then.
        once = self.end(connections[message.using].vendor) == TRANSIENT
        return None if once and message.attempts > 1 else self.work(message)


KINDS: dict[str, Kind] = {}


def bad(**options: Any) -> Callable[[Callable[[Message], Any]], Kind]:
    """Declare one; its topic is known to worker processes too, and dies at its first own failure."""

    def declare(work: Callable[[Message], Any]) -> Kind:
        kind = Kind(name=work.__name__, work=work, **options)
        KINDS[kind.name] = kind
        handler(kind.topic, max_attempts=1)(kind)
        return kind

    return declare


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
    _hook(message, lambda: _fork(lambda: None))


# Python


@bad(tells="SystemExit")
def system_exit(message: Message) -> None:
    raise SystemExit(3)


@bad(tells="KeyboardInterrupt")
def keyboard_interrupt(message: Message) -> None:
    raise KeyboardInterrupt


@bad(tells="GeneratorExit")
def generator_exit(message: Message) -> None:
    raise GeneratorExit


@bad(tells="StopIteration")
def stop_iteration(message: Message) -> None:
    next(iter(()))


@bad(tells="RecursionError")
def recursion(message: Message) -> None:
    recursion.work(message)


@bad(tells="RecursionError")
def recursion_in_blocks(message: Message) -> None:
    """Django's own book-keeping is interrupted anywhere."""

    def deeper(depth: int) -> None:
        if depth:
            deeper(depth - 1)
        with transaction.atomic(using=message.using):
            deeper(0)

    deeper(sys.getrecursionlimit() - 200)


@bad(ends=DONE)
def huge_result(message: Message) -> str:
    return "x" * 20_000_000


@bad(ends=DONE)
def unencodable_result(message: Message) -> object:
    return {"self": object()}


@bad(ends=DONE)
def exiting_result(message: Message) -> object:
    class Leaving:
        def __str__(self) -> str:
            raise SystemExit(3)

    return lazystr(Leaving())


@bad(ends=DONE, differently={"postgresql": OWN})
def result_that_breaks_the_transaction(message: Message) -> object:
    class Asking:
        def __str__(self) -> str:
            with connections[message.using].cursor() as cursor:
                cursor.execute("SELECT nothing FROM nowhere")
            return ""

    return lazystr(Asking())


@bad(tells="none of its lines has run")
def generator(message: Message) -> Iterator[None]:
    yield


@bad(tells="none of its lines has run")
async def coroutine(message: Message) -> None:
    pass


@bad(ends=DONE)
def fork(message: Message) -> None:
    _fork(lambda: None)


@bad(ends=DONE)
def fork_that_exits(message: Message) -> None:
    def leave() -> None:
        raise SystemExit(5)

    _fork(leave, code=5)


@bad(ends=DONE)
def fork_that_uses_the_database(message: Message) -> None:
    """The child has a session of its own: it sees nothing of what is not committed."""

    def look() -> None:
        assert not Effect.objects.using(message.using).filter(message_id=message.id).exists()
        connections.close_all()

    if _fork(look):
        assert Effect.objects.using(message.using).filter(message_id=message.id).exists()


def _fork(child: Callable[[], None], *, code: int = 0) -> bool:
    """Whether this is the parent. The child comes back too, or leaves with an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads
        pid = os.fork()
    if not pid:
        child()
        return False
    assert _exit_code(pid) == code, "the child went on"
    return True


def _exit_code(pid: int) -> int:
    """Bounded: a child that inherited another thread's lock may never end."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@bad(ends=DONE)
def leaked_context(message: Message) -> None:
    leaked.set("leaked")
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    decimal.getcontext().prec = 3
