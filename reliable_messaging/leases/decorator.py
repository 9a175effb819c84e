"""``@with_lease``: a function that only one process at a time runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar

from ..exceptions import RegistrationError
from ..registry import is_async, registry
from .block import LeaseBlock, held_here
from .terms import Terms

F = TypeVar("F", bound=Callable[..., Any])


def with_lease(
    name: str,
    *,
    duration: float | timedelta = 60,
    renew_at: float = 0.6,
    wait: float | timedelta = 0,
    owner: str | None = None,
    using: str | None = None,
) -> Callable[[F], F]:
    """Run the function while holding the lease; LeaseUnavailable when somebody else holds it.

    For commands, tasks, and handlers, whose ``@handler`` goes above. A message whose handler does not get
    the lease waits, and is charged nothing. With an atomic handler the worker takes the lease before the
    transaction, and the transaction is undone when the lease was lost by its end. Inside,
    ``leases.current(name)`` is the lease, with its token. A function that is called by one that holds the
    same lease shares it.
    """
    if callable(name):
        raise RegistrationError('The name is missing: write @with_lease("some-name").')
    terms = Terms.of(name, duration=duration, renew_at=renew_at, wait=wait, owner=owner, using=using)

    def decorate(function: F) -> F:
        if any(handler.function is function for handler in registry):
            raise RegistrationError(
                f"@with_lease stands above @handler at {function.__qualname__}, so the worker would not see "
                "the lease. Put @handler above."
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise RegistrationError(
                f"{function.__qualname__} is a generator: the lease would be over before its first line. "
                "Hold the lease inside it, with a lease() block."
            )
        wrapper = _awaiting(function, terms) if is_async(function) else _calling(function, terms)
        wrapper.lease_terms = terms
        return wrapper  # type: ignore[no-any-return]

    return decorate


def _calling(function: Callable[..., Any], terms: Terms) -> Any:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        held = held_here(terms.name, terms.alias)
        if held is None:
            with LeaseBlock(terms):
                return function(*args, **kwargs)
        result = function(*args, **kwargs)
        held.raise_if_lost()  # here, where an atomic handler's transaction can still be undone
        return result

    return call


def _awaiting(function: Callable[..., Any], terms: Terms) -> Any:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        held = held_here(terms.name, terms.alias)
        if held is None:
            async with LeaseBlock(terms):
                return await function(*args, **kwargs)
        result = await function(*args, **kwargs)
        held.raise_if_lost()
        return result

    return call
