"""A guard: a piece of the code that keeps something bad from happening, and the test that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    name: str
    file: str
    """Inside ``reliable_messaging/``."""
    removed: str
    """Exact text of the source, which occurs there once."""
    put_instead: str
    test: str
    """The node id of the quickest test that fails then."""
    what_happens: str
    """Without the guard."""

    @property
    def path(self) -> str:
        return f"reliable_messaging/{self.file}"

    @property
    def test_file(self) -> str:
        return self.test.partition("::")[0]

    @property
    def test_name(self) -> str:
        return self.test.partition("::")[2].partition("[")[0]

    @property
    def databases(self) -> str:
        """Those that its test needs, as TEST_DATABASES has them."""
        case = self.test.partition("[")[2]
        return ",".join(["sqlite", *(name for name in ("postgres", "mariadb") if name in case)])

    def without(self, source: str) -> str:
        """The source without the guard. Raises when the text is not there, or there twice."""
        found = source.count(self.removed)
        if found != 1:
            raise LookupError(f"{self.name}: its text occurs {found} times in {self.path}")
        without = source.replace(self.removed, self.put_instead)
        compile(without, self.path, "exec")
        return without
