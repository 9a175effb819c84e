"""What a process holds, as time goes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from .processes import resident_bytes, sockets, thread_count


@dataclass(slots=True)
class Gauge:
    pid: int
    resident: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    sockets: list[int] = field(default_factory=list)

    def read(self) -> None:
        self.resident.append(resident_bytes(self.pid))
        self.threads.append(thread_count(self.pid))
        self.sockets.append(len(sockets(self.pid)))

    @property
    def growth(self) -> float:
        """Of its memory, from the second third of the time to the last, in bytes. The first warms it up."""
        return median(third(self.resident, 2)) - median(third(self.resident, 1))

    @property
    def relative_growth(self) -> float:
        return self.growth / median(third(self.resident, 1))


def third(values: Sequence[int], number: int) -> Sequence[int]:
    """The first is number 0."""
    return values[len(values) * number // 3 : len(values) * (number + 1) // 3]
