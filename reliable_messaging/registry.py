"""Which callable handles which topic."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.apps import apps
from django.utils.module_loading import module_has_submodule

from .conf import LONGEST_DURATION, MOST_ATTEMPTS
from .exceptions import HandlerImportError, InvalidName, RegistrationError
from .message import DeadLetter, Message
from .names import TOPIC_LENGTH, check_name, check_queue
from .retry import BackoffPolicy

DEAD_LETTER_PREFIX = "reliable_messaging.dead:"

HandlerFunction = Callable[[Message], Any]
DeadLetterFunction = Callable[[DeadLetter], Any]
F = TypeVar("F", bound=HandlerFunction)
D = TypeVar("D", bound=DeadLetterFunction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    topic: str
    function: Callable[[Any], Any]
    queue: str = "default"
    atomic: bool = True
    timeout: timedelta | None = None
    max_attempts: int | None = None
    backoff: BackoffPolicy | None = None
    is_async: bool = field(init=False)
    """Kept, because it is asked for at every message: it is awaited on the event loop."""
    lease: Any = field(init=False)
    """The terms of the lease under which it runs, or None."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", is_async(self.function))
        object.__setattr__(self, "lease", getattr(self.function, "lease_terms", None))

    @property
    def name(self) -> str:
        """Where it is, for people: callable objects and partials go by their type."""
        named = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return f"{named.__module__}.{named.__qualname__}"

    @property
    def key(self) -> tuple[str, object]:
        """What tells it from another of the topic: two functions of one name stand on two lines,
        while a module that is imported a second time has the same one there again."""
        code = getattr(self.function, "__code__", None)
        return self.name, code.co_firstlineno if code is not None else id(self.function)

    @property
    def is_for_dead_letters(self) -> bool:
        return self.topic.startswith(DEAD_LETTER_PREFIX)


class Registry:
    def __init__(self) -> None:
        self._handlers: dict[str, dict[tuple[str, object], Handler]] = {}
        self.has_async = False
        """Whether there was ever an async one: where there was none, nobody need look for them."""

    def add(self, handler: Handler) -> None:
        self.has_async = self.has_async or handler.is_async
        self._handlers.setdefault(handler.topic, {})[handler.key] = handler

    def remove(self, handler: Handler) -> None:
        self._handlers.get(handler.topic, {}).pop(handler.key, None)

    def find(self, topic: str) -> Handler | None:
        handlers = self._handlers.get(topic)
        return next(iter(handlers.values()), None) if handlers else None

    def find_for_dead_letters(self, topic: str) -> Handler | None:
        return self.find(DEAD_LETTER_PREFIX + topic)

    def rivals(self) -> list[tuple[str, list[Handler]]]:
        """Topics that more than one handler claims."""
        return [
            (topic, list(handlers.values()))
            for topic, handlers in sorted(self._handlers.items())
            if len(handlers) > 1
        ]

    def __iter__(self) -> Any:
        return (handler for handlers in self._handlers.values() for handler in handlers.values())


registry = Registry()


def handler(
    topic: str,
    *,
    queue: str = "default",
    atomic: bool | None = None,
    timeout: float | timedelta | None = None,
    max_attempts: int | None = None,
    backoff: BackoffPolicy | None = None,
) -> Callable[[F], F]:
    """Declare the handler of a topic.

    ``atomic=True``: what it writes through ``message.using`` and the acknowledgement commit
    together, exactly once; several messages may share one transaction, each in a savepoint.
    ``atomic=False``: no transaction is held open; for network work, which may happen again
    after a crash.

    ``async def`` handlers run on an event loop, and are never atomic. All others are, unless you say so.
    """
    _check_topic(topic, "handler")
    options = _options(topic, queue, timeout, max_attempts, backoff)

    def register(function: F) -> F:
        chosen = _check_function(topic, function, atomic)
        registry.add(Handler(topic=topic, function=function, atomic=chosen, **options))
        return function

    return register


def on_dead(
    topic: str,
    *,
    queue: str = "default",
    atomic: bool | None = None,
    timeout: float | timedelta | None = None,
    max_attempts: int | None = None,
    backoff: BackoffPolicy | None = None,
) -> Callable[[D], D]:
    """Declare what happens when a message of the topic goes dead or expires.

    The callback is itself a message, written in the transaction that ends the first one: it is
    not lost when the worker dies, and is retried when it fails. It gets a DeadLetter.
    """
    _check_topic(topic, "on_dead")
    options = _options(topic, queue, timeout, max_attempts, backoff)

    def register(function: D) -> D:
        chosen = _check_function(topic, function, atomic)
        registry.add(Handler(topic=DEAD_LETTER_PREFIX + topic, function=function, atomic=chosen, **options))
        return function

    return register


def is_async(function: Any) -> bool:
    """Whether calling it gives something to await: coroutine functions, objects with such a ``__call__``,
    partials of either."""
    return iscoroutinefunction(_called(function))


def discover_handlers() -> None:
    """Import ``handlers`` of every installed app."""
    for config in apps.get_app_configs():
        if config.module is None or not module_has_submodule(config.module, "handlers"):
            continue
        name = f"{config.name}.handlers"
        try:
            import_module(name)
        except Exception as exc:
            raise HandlerImportError(
                f"{name} could not be imported, and without its handlers nothing starts. "
                f"{type(exc).__name__}: {exc}"
            ) from exc


def _options(
    topic: str,
    queue: str,
    timeout: float | timedelta | None,
    max_attempts: int | None,
    backoff: BackoffPolicy | None,
) -> dict[str, Any]:
    _refuse(lambda: check_queue(queue))
    timeout = _timeout(topic, timeout)
    if max_attempts is not None and not 1 <= max_attempts <= MOST_ATTEMPTS:
        raise RegistrationError(
            f"max_attempts of the handler for {topic!r} must be from 1 to {MOST_ATTEMPTS:,}, "
            f"not {max_attempts!r}."
        )
    if backoff is not None and not callable(backoff):
        raise RegistrationError(
            f"backoff of the handler for {topic!r} must be callable: "
            "from the number of earlier failures to a timedelta."
        )
    return {
        "queue": queue,
        "timeout": timeout,
        "max_attempts": max_attempts,
        "backoff": backoff,
    }


def _timeout(topic: str, given: float | timedelta | None) -> timedelta | None:
    try:
        timeout = timedelta(seconds=given) if isinstance(given, (int, float)) else given
    except (OverflowError, ValueError):
        timeout = timedelta.max
    if timeout is not None and not timedelta(0) < timeout <= LONGEST_DURATION:
        raise RegistrationError(
            f"The timeout of the handler for {topic!r} must be positive, and a hundred years at most, "
            f"not {given!r}."
        )
    return timeout


def _check_function(topic: str, function: Any, atomic: bool | None) -> bool:
    """Whether it is to be atomic."""
    if not callable(function):
        raise RegistrationError(f"The handler for {topic!r} must be callable, not {function!r}.")
    called = _called(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise RegistrationError(
            f"The handler for {topic!r} is a generator: calling it would run none of its lines. "
            "Remove the yield, or wrap it in a function that goes through it."
        )
    if atomic not in (None, True, False):
        raise RegistrationError(f"atomic of the handler for {topic!r} must be True or False, not {atomic!r}.")
    if not _takes_one_argument(function):
        raise RegistrationError(
            f"The handler for {topic!r} must take one argument, the message: it would fail for every one."
        )
    if atomic and is_async(function):
        raise RegistrationError(
            f"The handler for {topic!r} is async, and Django has no async transactions: it cannot be atomic. "
            "Leave out atomic=True; or make it a plain function, and enqueue a second message for what is "
            "to be awaited."
        )
    return not is_async(function) if atomic is None else atomic


def _takes_one_argument(function: Any) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # nobody can tell
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def _called(function: Any) -> Any:
    """The function whose lines run when this is called."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type) or iscoroutinefunction(function):
        return function
    return getattr(function, "__call__", function)  # noqa: B004


def _check_topic(topic: Any, decorator: str) -> None:
    if callable(topic):
        name = getattr(topic, "__qualname__", repr(topic))
        raise RegistrationError(f'The topic is missing: write @{decorator}("some.topic") above {name}.')
    _refuse(lambda: check_name(topic, "topic", max_length=TOPIC_LENGTH))


def _refuse(check: Callable[[], object]) -> None:
    try:
        check()
    except InvalidName as exc:
        raise RegistrationError(str(exc)) from exc
