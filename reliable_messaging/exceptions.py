"""Every exception this package raises. One base class; a class's docstring is its default message."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.core.exceptions import ImproperlyConfigured


class ReliableMessagingError(Exception):
    """Something went wrong in reliable_messaging."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((self.__doc__ or "").split()))


class SettingsError(ReliableMessagingError, ImproperlyConfigured):
    """The RELIABLE_MESSAGING setting is wrong."""


class RegistrationError(ReliableMessagingError, ImproperlyConfigured):
    """A handler, or a job of one, was declared wrongly."""


class HandlerImportError(RegistrationError):
    """A handlers.py module could not be imported."""


class InvalidMessage(ReliableMessagingError, ValueError):
    """The message was refused before anything was written; the transaction is still usable."""


class InvalidPayload(InvalidMessage):
    """The payload cannot be stored as JSON text."""


class InvalidName(InvalidMessage):
    """A topic, queue, key or id is empty, too long, or has control characters."""


class InvalidDueTime(InvalidMessage):
    """The due time, delay or expiry makes no sense."""


class InvalidJob(ReliableMessagingError, ValueError):
    """The job's definition makes no sense."""


class InvalidCron(InvalidJob):
    """The cron expression cannot be used."""


class InvalidTimeZone(InvalidJob):
    """There is no such time zone."""


class DatabaseChoiceError(ReliableMessagingError, ValueError):
    """It is not clear which database the message belongs to; pass using=."""


class NotInTransaction(ReliableMessagingError):
    """enqueue() was called outside transaction.atomic() while REQUIRE_ATOMIC is on."""


class InvalidId(ReliableMessagingError, ValueError):
    """That is not the id of a work item."""


class LostClaim(ReliableMessagingError):
    """The claim on a work item was lost: its lease ended and someone else took it."""


class InvalidLease(ReliableMessagingError, ValueError):
    """The name, duration or share of a lease makes no sense."""


class LeaseInTransaction(ReliableMessagingError):
    """A lease cannot be taken, renewed or released inside a transaction: nobody would see it before the
    commit. Take the lease first, and open the transaction inside its block."""


class LeaseLost(ReliableMessagingError):
    """The lease was lost: somebody else may hold it by now."""


class LeaseUnavailable(ReliableMessagingError):
    """Somebody else holds the lease.

    ``owner`` and ``expires_at`` are the holder's, as of ``server_time``.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        name: str = "",
        owner: str = "",
        expires_at: datetime | None = None,
        server_time: datetime | None = None,
    ) -> None:
        super().__init__(message or "Somebody else holds the lease.")
        self.name = name
        self.owner = owner
        self.expires_at = expires_at
        self.server_time = server_time

    @property
    def ends_in(self) -> timedelta:
        """How long the holder has it if it is not renewed."""
        if self.expires_at is None or self.server_time is None:
            return timedelta(0)
        return max(timedelta(0), self.expires_at - self.server_time)


class UnknownJob(ReliableMessagingError, LookupError):
    """There is no job of that name."""


class Undeliverable(ReliableMessagingError):
    """No handler in this process knows the topic; a newer worker may know it."""


class HandlerRolledBack(ReliableMessagingError):
    """The handler returned normally but marked its transaction for rollback."""


class PermanentError(ReliableMessagingError):
    """Raise this in a handler: the message can never succeed, so it goes dead now."""


class TransientError(ReliableMessagingError):
    """Raise this in a handler: something outside is down; retried for TRANSIENT_WINDOW."""


class Retry(ReliableMessagingError):
    """Raise this in a handler: run the message again later.

    ``after`` (seconds or timedelta) replaces the backoff. It counts as a failure of
    the message unless ``charge=False``.
    """

    after: timedelta | None = None  # for subclasses that do not call __init__
    charge: bool = True

    def __init__(
        self,
        message: str | None = None,
        *,
        after: float | timedelta | None = None,
        charge: bool = True,
    ) -> None:
        super().__init__(message or "The handler asked for a retry.")
        if isinstance(after, (int, float)):
            after = timedelta(seconds=after)
        if after is not None and not isinstance(after, timedelta):
            raise TypeError(f"Retry(after=...) must be seconds or a timedelta, not {after!r}.")
        if after is not None and after < timedelta(0):
            raise ValueError("Retry(after=...) cannot be negative.")
        self.after = after
        self.charge = charge
