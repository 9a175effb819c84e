"""No claims for a while, when handler threads cannot connect."""

from __future__ import annotations

from dataclasses import dataclass

from .. import clock

FIRST = 0.25
LONGEST = 5.0


@dataclass(slots=True)
class Respite:
    """The claiming thread may well have a session when the server has no more to give. Without a respite
    it would go through the whole backlog at full speed, claim everything and give it back.

    Shared by the handler threads; longer each time, until one of them can connect."""

    _seconds: float = 0.0
    _until: float = 0.0

    @property
    def is_on(self) -> bool:
        return clock.monotonic() < self._until

    def begin(self) -> float:
        """Returns how long it is; threads that fail together begin the same one."""
        if not self.is_on:
            self._seconds = min(max(FIRST, self._seconds * 2), LONGEST)
            self._until = clock.monotonic() + self._seconds
        return self._seconds

    def end(self) -> None:
        self._seconds = self._until = 0.0
