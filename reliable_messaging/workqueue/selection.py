"""Which of the named queues a worker serves."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSelection:
    only: tuple[str, ...] | None = None
    """None: every queue that has rows."""
    exclude: tuple[str, ...] = ()

    def __str__(self) -> str:
        """For people."""
        named = "all" if self.only is None else ",".join(self.only)
        return f"{named} but {','.join(self.exclude)}" if self.exclude else named

    def condition(self) -> Q:
        condition = Q()
        if self.only is not None:
            condition &= Q(queue__in=self.only)
        if self.exclude:
            condition &= ~Q(queue__in=self.exclude)
        return condition
