"""Bad handlers: exceptions, results, forks and what they leave in the thread."""

from __future__ import annotations

import decimal
import sys
from collections.abc import Iterator
from contextvars import ContextVar

from django.db import connections, transaction
from django.utils import timezone, translation
from django.utils.functional import lazystr

from reliable_messaging import Message
from tests.testapp.models import Effect

from .forks import fork_and_return
from .kinds import DONE, OWN, bad

leaked: ContextVar[str] = ContextVar("leaked", default="")


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
    fork_and_return(lambda: None)


@bad(ends=DONE)
def fork_that_exits(message: Message) -> None:
    def leave() -> None:
        raise SystemExit(5)

    fork_and_return(leave, code=5)


@bad(ends=DONE)
def fork_that_uses_the_database(message: Message) -> None:
    """The child has a session of its own: it sees nothing of what is not committed."""

    def look() -> None:
        assert not Effect.objects.using(message.using).filter(message_id=message.id).exists()
        connections.close_all()

    if fork_and_return(look):
        assert Effect.objects.using(message.using).filter(message_id=message.id).exists()


@bad(ends=DONE)
def leaked_context(message: Message) -> None:
    leaked.set("leaked")
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    decimal.getcontext().prec = 3
