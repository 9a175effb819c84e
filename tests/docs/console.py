"""A shell in which the commands of a page are typed, one after the other."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.pages import ROOT

SECONDS = 60
MARK = "@@ended"
TRACEBACK = "Traceback (most recent call last):"


@dataclass(slots=True)
class Step:
    """A command, and the lines that the page shows below it. ``...`` stands for anything."""

    command: str
    shown: list[str] = field(default_factory=list)

    @property
    def may_fail(self) -> bool:
        return TRACEBACK in self.shown


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(Step(line.removeprefix("$ ")))
        elif not found:
            raise AssertionError(f"A console block begins with a command ($ ...), not with {line!r}")
        else:
            found[-1].shown.append(line)
    return found


class Console:
    """One ``sh`` for a whole page, so that ``cd``, ``&`` and ``$!`` mean what they mean to a person."""

    def __init__(self, directory: Path, *, tools: Path) -> None:
        self._log = tools / "console.log"
        self._output = self._log.open("wb")
        self._shell = subprocess.Popen(
            ["/bin/sh"],
            cwd=directory,
            env=environment(tools),
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def follow(self, text: str) -> None:
        for step in steps(text):
            if not is_installation(step.command):
                self._type(step)

    def close(self) -> None:
        try:
            os.killpg(self._shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._shell.communicate()
        self._output.close()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _type(self, step: Step) -> None:
        began = self._log.stat().st_size
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{step.command}\necho {MARK} $?\n".encode())
        self._shell.stdin.flush()
        code = int(self._wait(began, rf"{MARK} (\d+)\n", step)[1])
        seen = self._seen(began)
        if step.may_fail:
            assert code != 0, f"$ {step.command}\nwas to fail, and did not:\n{seen}"
        else:
            assert code == 0, f"$ {step.command}\nfailed with {code}:\n{seen}"
        self._wait(began, pattern(step.shown), step, soon=not step.command.endswith("&"))

    def _wait(self, began: int, wanted: str, step: Step, *, soon: bool = False) -> re.Match[str]:
        """Until the output has it: at once, when the command is over already."""
        deadline = time.monotonic() + (0 if soon else SECONDS)
        while (match := re.search(wanted, self._seen(began), re.DOTALL | re.MULTILINE)) is None:
            if time.monotonic() >= deadline:
                shown = "\n".join(step.shown)
                raise AssertionError(
                    f"$ {step.command}\nthe page shows:\n{shown}\nand it was:\n{self._seen(began)}"
                )
            time.sleep(0.02)
        return match

    def _seen(self, began: int) -> str:
        return self._log.read_bytes()[began:].decode(errors="replace")


def pattern(shown: list[str]) -> str:
    """The shown lines, in this order; others may stand between them."""
    lines = [line.rstrip() for line in shown if line.strip() and line.strip() != "..."]
    return r"\n(?:.*\n)??".join(_line_pattern(line) for line in lines)


def _line_pattern(line: str) -> str:
    return "^" + r"[^\n]*".join(re.escape(part) for part in line.split("...")) + r"[ \t]*$"


def is_installation(command: str) -> bool:
    """What this interpreter has behind it already. That it could be done is checked apart."""
    words = shlex.split(command)
    return words[0] in (".", "make") or words[:3] in (["python", "-m", "venv"], ["python", "-m", "pip"])


def environment(tools: Path) -> dict[str, str]:
    """``python`` and ``django-admin`` are those of this test run; nothing else of it shines through."""
    for name, command in (("python", ""), ("django-admin", "-m django")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {command} "$@"\n')
        script.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    return {
        **inherited,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
