"""A pause after something failed, longer each time."""

from __future__ import annotations

from dataclasses import dataclass

from .. import clock


@dataclass(slots=True)
class Respite:
    """When handler threads cannot connect, nothing is claimed for a while: the claiming thread may well
    have a session when the server has no more to give. Without a respite it would go through the whole
    backlog at full speed, claim everything and give it back. Shared by the handler threads, until one of
    them can connect.

    When a step of the maintenance fails, it rests for a while, until it succeeds; so does a settlement
    that cannot be written, and the listener."""

    first: float = 0.25
    longest: float = 5.0
    _seconds: float = 0.0
    _until: float = 0.0

    @property
    def is_on(self) -> bool:
        return clock.monotonic() < self._until

    @property
    def until(self) -> float:
        """On the monotonic clock; past when there is none."""
        return self._until

    def begin(self) -> float:
        """Returns how long it is; who fails together begins the same one."""
        if not self.is_on:
            self._seconds = min(max(self.first, self._seconds * 2), self.longest)
            self._until = clock.monotonic() + self._seconds
        return self._seconds

    def end(self) -> None:
        self._seconds = self._until = 0.0
