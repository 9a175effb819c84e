"""Which callable handles which topic."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from .exceptions import HandlerImportError, InvalidName, RegistrationError
from .message import DeadLetter, Message
from .names import QUEUE_LENGTH, TOPIC_LENGTH, check_name
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

    def add(self, handler: Handler) -> None:
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
    atomic: bool = True,
    timeout: float | timedelta | None = None,
    max_attempts: int | None = None,
    backoff: BackoffPolicy | None = None,
) -> Callable[[F], F]:
    """Declare the handler of a topic.

    ``atomic=True``: what it writes through ``message.using`` and the acknowledgement commit
    together, exactly once; several messages may share one transaction, each in a savepoint.
    ``atomic=False``: no transaction is held open; for network work, which may happen again
    after a crash.
    """
    _check_topic(topic, "handler")
    options = _options(topic, queue, atomic, timeout, max_attempts, backoff)

    def register(function: F) -> F:
        _check_function(topic, function)
        registry.add(Handler(topic=topic, function=function, **options))
        return function

    return register


def on_dead(
    topic: str,
    *,
    queue: str = "default",
    atomic: bool = True,
    timeout: float | timedelta | None = None,
    max_attempts: int | None = None,
    backoff: BackoffPolicy | None = None,
) -> Callable[[D], D]:
    """Declare what happens when a message of the topic goes dead or expires.

    The callback is itself a message, written in the transaction that ends the first one: it is
    not lost when the worker dies, and is retried when it fails. It gets a DeadLetter.
    """
    _check_topic(topic, "on_dead")
    options = _options(topic, queue, atomic, timeout, max_attempts, backoff)

    def register(function: D) -> D:
        _check_function(topic, function)
        registry.add(Handler(topic=DEAD_LETTER_PREFIX + topic, function=function, **options))
        return function

    return register


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
                f"{name} could not be imported ({type(exc).__name__}: {exc}). Its handlers would be "
                "missing, so nothing starts until that is mended."
            ) from exc


def _options(
    topic: str,
    queue: str,
    atomic: bool,
    timeout: float | timedelta | None,
    max_attempts: int | None,
    backoff: BackoffPolicy | None,
) -> dict[str, Any]:
    _check_name(queue, "queue", QUEUE_LENGTH)
    if timeout is not None and not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    if timeout is not None and timeout <= timedelta(0):
        raise RegistrationError(f"The timeout of the handler for {topic!r} must be positive.")
    if max_attempts is not None and max_attempts < 1:
        raise RegistrationError(f"max_attempts of the handler for {topic!r} must be at least 1.")
    if backoff is not None and not callable(backoff):
        raise RegistrationError(
            f"backoff of the handler for {topic!r} must be callable: "
            "from the number of earlier failures to a timedelta."
        )
    return {
        "queue": queue,
        "atomic": atomic,
        "timeout": timeout,
        "max_attempts": max_attempts,
        "backoff": backoff,
    }


def _check_function(topic: str, function: Any) -> None:
    if not callable(function):
        raise RegistrationError(f"The handler for {topic!r} must be callable, not {function!r}.")
    if inspect.iscoroutinefunction(function):
        raise RegistrationError(
            f"The handler for {topic!r} is async, which is not supported yet: "
            "wrap it with asgiref.sync.async_to_sync."
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RegistrationError(
            f"The handler for {topic!r} is a generator: calling it would run none of its lines. "
            "Remove the yield, or wrap it in a function that goes through it."
        )


def _check_topic(topic: Any, decorator: str) -> None:
    if callable(topic):
        name = getattr(topic, "__qualname__", repr(topic))
        raise RegistrationError(f'The topic is missing: write @{decorator}("some.topic") above {name}.')
    _check_name(topic, "topic", TOPIC_LENGTH)


def _check_name(value: str, what: str, max_length: int) -> None:
    try:
        check_name(value, what, max_length=max_length)
    except InvalidName as exc:
        raise RegistrationError(str(exc)) from exc
