"""Which handlers are async, and what follows from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from reliable_messaging import handler, on_dead
from reliable_messaging.exceptions import RegistrationError
from reliable_messaging.registry import Handler, Registry, registry


async def work(message: Any) -> None: ...


def plain(message: Any) -> None: ...


async def stream(message: Any) -> AsyncIterator[None]:
    yield


class Awaited:
    def __init__(self, message: Any = None) -> None: ...

    async def __call__(self, message: Any) -> None: ...

    async def method(self, message: Any) -> None: ...


class Streaming:
    async def __call__(self, message: Any) -> AsyncIterator[None]:
        yield


class Called:
    def __init__(self, message: Any = None) -> None: ...

    def __call__(self, message: Any) -> None: ...


ASYNC = [work, Awaited(), Awaited().method, partial(work), partial(partial(Awaited()))]
SYNC = [plain, Called(), partial(plain), Called, print, Awaited]
DECORATORS = pytest.mark.parametrize("decorator", [handler, on_dead])


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one for each test."""
    monkeypatch.setattr(registry, "_handlers", {})
    monkeypatch.setattr(registry, "has_async", False)


def declared(decorator: Callable[..., Any], function: Any, **options: Any) -> Handler:
    assert decorator("test.declared", **options)(function) is function
    (found,) = registry
    return found  # type: ignore[no-any-return]


@DECORATORS
@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 10**10},
        {"max_attempts": 0},
        *({"timeout": value} for value in (0, float("nan"), float("inf"), 1e300, timedelta(days=40_000))),
    ],
)
def test_what_no_column_and_no_clock_can_hold_is_refused(
    decorator: Callable[..., Any], options: dict[str, Any]
) -> None:
    """Here, and not by an INSERT: that would break the transaction of a caller, or of a worker."""
    with pytest.raises(RegistrationError, match="must be"):
        declared(decorator, plain, **options)


@DECORATORS
def test_a_function_that_takes_no_message_is_refused(decorator: Any) -> None:
    """It would fail for every message."""
    for function in (lambda: None, lambda a, b: None, lambda *, message: None):
        with pytest.raises(RegistrationError, match="must take one argument"):
            decorator("test.declared")(function)
    for function in (lambda message: None, lambda *args: None, lambda a, b=1: None):
        decorator("test.declared")(function)


@DECORATORS
def test_atomic_is_true_or_false(decorator: Any) -> None:
    """A word would be as good as True."""
    with pytest.raises(RegistrationError, match="must be True or False, not 'no'"):
        decorator("test.declared", atomic="no")(plain)


@DECORATORS
def test_a_queue_that_no_option_can_name_is_refused(decorator: Any) -> None:
    """A comma parts the names of --queues."""
    with pytest.raises(RegistrationError, match="--queues could not name it"):
        decorator("test.declared", queue="a,b")(plain)


@DECORATORS
@pytest.mark.parametrize("function", ASYNC)
@pytest.mark.parametrize("options", [{}, {"atomic": None}, {"atomic": False}])
def test_an_async_handler_is_not_atomic(decorator: Any, function: Any, options: dict[str, Any]) -> None:
    """Without a word: coroutine functions, objects with such a ``__call__``, methods, partials."""
    found = declared(decorator, function, **options)
    assert (found.is_async, found.atomic) == (True, False)
    assert registry.has_async


@DECORATORS
@pytest.mark.parametrize("function", SYNC)
def test_any_other_handler_is_atomic(decorator: Any, function: Any) -> None:
    """Unless it is told otherwise. A class is one too: to call it is to make an object."""
    assert (declared(decorator, function).is_async, declared(decorator, function).atomic) == (False, True)
    assert not declared(decorator, function, atomic=False).atomic
    assert not registry.has_async


@DECORATORS
@pytest.mark.parametrize("function", ASYNC)
def test_an_async_handler_cannot_be_atomic(decorator: Any, function: Any) -> None:
    """Django has no async transactions; the error says what to do."""
    with pytest.raises(RegistrationError, match="Leave out atomic=True"):
        decorator("test.declared", atomic=True)(function)
    assert list(registry) == []


@DECORATORS
@pytest.mark.parametrize("function", [stream, Streaming(), partial(stream)])
def test_an_async_generator_is_refused(decorator: Any, function: Any) -> None:
    """Calling it would run none of its lines."""
    with pytest.raises(RegistrationError, match="generator"):
        decorator("test.declared")(function)


def test_a_registry_knows_whether_it_ever_had_an_async_handler() -> None:
    """So that nobody need look for one in a project that has none."""
    fresh = Registry()
    fresh.add(Handler(topic="a", function=plain))
    assert not fresh.has_async
    fresh.add(Handler(topic="b", function=work, atomic=False))
    fresh.add(Handler(topic="c", function=plain))
    assert fresh.has_async
