"""A copy of the tree, in which guards are removed and put back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from .guard import ROOT, Guard

TIME_LIMIT = 240.0
NO_GUARD = ("SyntaxError", "NameError", "UnboundLocalError", "ImportError")
"""What fails like this was broken by the removal itself, not by the lack of the guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    passed: bool
    failed: bool
    """A test failed; neither when it could not even be run."""
    output: str

    @property
    def reason(self) -> str:
        """The first line that pytest marks as the error."""
        lines = [line[1:].strip() for line in self.output.splitlines() if line.startswith("E ")]
        return lines[0] if lines else self.summary

    @property
    def summary(self) -> str:
        return self.output.strip().rpartition("\n")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    root: Path
    # Compiled files are known by time and size of their source: two versions must never share both.
    _times: Iterator[int] = field(default_factory=lambda: count(1_000_000_000))

    @classmethod
    def of_tree(cls, root: Path) -> Copy:
        """The files that git knows, as they are now."""
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, root / name)
        return cls(root=root)

    @contextmanager
    def without(self, guard: Guard) -> Iterator[None]:
        path = self.root / guard.path
        source = path.read_text()
        self._write(path, guard.without(source))
        try:
            yield
        finally:
            self._write(path, source)

    def run(self, tests: Sequence[str], *, databases: str | None = None, seconds: float) -> Verdict:
        environment = {k: v for k, v in os.environ.items() if k != "TEST_RUN_DIR"}
        if databases is not None:
            environment["TEST_DATABASES"] = databases
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        output, timed_out = _finish(process, seconds)
        if timed_out:
            return Verdict(passed=False, failed=True, output=f"{output}\nE   not ended within {seconds:g} s")
        broken = any(f"E   {error}" in output for error in NO_GUARD)
        return Verdict(
            passed=process.returncode == 0,
            failed=process.returncode == 1 and " failed" in output and not broken,
            output=output,
        )

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source)
        moment = next(self._times)
        os.utime(path, (moment, moment))


def _finish(process: subprocess.Popen[str], seconds: float) -> tuple[str, bool]:
    """Its output, and whether it had to be ended: gently first, so that it drops its databases."""
    try:
        return process.communicate(timeout=seconds)[0], False
    except subprocess.TimeoutExpired:
        return _end(process), True
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=30)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        _end_rest(process.pid)
        return process.communicate()[0]
    finally:
        _end_rest(process.pid)


def _end_rest(group: int) -> None:
    """Worker processes that its tests had started."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
