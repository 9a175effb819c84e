"""Follows one page in a small project: ``python -m tests.docs.follow PAGE PROJECT TOOLS``.

Runs in a process of its own, in which Django is set up with the page's own settings:

1. every block with a ``title`` is written to that file of the project (``append``: to its end);
2. the tables are made;
3. the other blocks are run in their order: ``python`` and ``pycon`` in one namespace with real
   commits, ``console`` in one shell, ``ini`` is parsed;
4. every file written is imported, and what ``afterwards`` has for the page is run.

A block that is none of this ends in an error, so no block goes unchecked.
"""

from __future__ import annotations

import configparser
import doctest
import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.docs.console import Console
from tests.docs.pages import Block, blocks

AFTERWARDS = Path(__file__).parent / "afterwards"
SETTINGS = "mysite/settings.py"
SAMPLES = ("text", "mermaid")
WHATEVER_THE_PAGE_LEFT_OUT = """
INSTALLED_APPS = list(dict.fromkeys([*INSTALLED_APPS, "reliable_messaging", "shop"]))
"""

OUR_CHECKS = """
import django, sys
django.setup()
from reliable_messaging import checks
found = [*checks.check_settings(), *checks.check_handlers(), *checks.check_databases()]
sys.exit("; ".join(map(str, found)) or None)
"""


class PageError(AssertionError):
    """A block of a page is not what it seems."""


def write_files(found: list[Block], project: Path) -> list[Path]:
    written: list[Path] = []
    for block in found:
        if not block.title or "variant" in block.flags:
            continue
        path = project / block.title
        if "append" in block.flags:
            with path.open("a") as file:
                file.write("\n" + block.text)
        elif path in written:
            raise PageError(f"line {block.line}: {block.title} is given twice; say append")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        written.append(path)
    with (project / SETTINGS).open("a") as file:
        file.write(WHATEVER_THE_PAGE_LEFT_OUT)
    return written


def set_up() -> None:
    import django
    from django.core.management import call_command
    from django.core.management.base import SystemCheckError

    django.setup()
    try:
        call_command("check", verbosity=0, fail_level="WARNING")
    except SystemCheckError as exc:
        raise PageError(f"The page's settings or handlers are refused: {exc}") from exc
    from django.conf import settings

    for alias in settings.DATABASES:
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)


class Follower:
    def __init__(self, page: Path, project: Path, console: Console) -> None:
        self._page = page
        self._project = project
        self._console = console
        self._namespace: dict[str, Any] = {"__name__": "page"}

    def run(self, block: Block) -> None:
        if block.language in SAMPLES:
            return
        if "variant" in block.flags:
            check_variant(block, self._project)
        elif not block.title:
            runners = {
                "python": self._python,
                "pycon": self._pycon,
                "console": self._run_console,
                "ini": parse_ini,
            }
            if block.language not in runners:
                raise PageError(f"line {block.line}: nobody knows how to run {block.language!r}")
            runners[block.language](block)
        elif block.language != "python":
            raise PageError(f"line {block.line}: a file of the project that is not Python")

    def run_afterwards(self) -> None:
        path = AFTERWARDS / f"{self._page.stem}.py"
        if path.is_file():
            exec(compile(path.read_text(), str(path), "exec"), self._namespace)

    def _python(self, block: Block) -> None:
        # Blank lines above it, so that a traceback names the line of the page.
        source = "\n" * block.line + block.text
        exec(compile(source, str(self._page), "exec"), self._namespace)

    def _pycon(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(
            block.text, self._namespace, self._page.name, str(self._page), block.line
        )
        if not test.examples:
            raise PageError(f"line {block.line}: a pycon block without >>>")
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        runner.run(test, clear_globs=False)
        self._namespace.update(test.globs)
        if runner.failures:
            raise PageError(f"line {block.line}: the page shows something else")

    def _run_console(self, block: Block) -> None:
        self._console.follow(_ending(block.text))


def _ending(text: str) -> str:
    """A worker that nobody stops would never end: it stops when nothing is due."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("$ ") and "run_outbox_worker" in line and "--burst" not in line:
            lines[number] = f"{line} --burst"
    return "\n".join(lines)


def check_variant(block: Block, project: Path) -> None:
    """Settings for one of several databases: tried on top of the others, with our own system checks.
    Django's would connect, and that database is not here."""
    if block.title != SETTINGS:
        raise PageError(f"line {block.line}: only settings have variants")
    namespace: dict[str, Any] = {"BASE_DIR": project, "RELIABLE_MESSAGING": {}}
    exec(compile("\n" * block.line + block.text, block.title, "exec"), namespace)
    check_names(namespace["RELIABLE_MESSAGING"])
    if not has_drivers(namespace.get("DATABASES", {})):
        return
    module = project / "mysite" / f"variant_{block.line}.py"
    module.write_text("from mysite.settings import *\n" + block.text)
    checked = subprocess.run(
        [sys.executable, "-c", OUR_CHECKS],
        cwd=project,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": f"mysite.{module.stem}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if checked.returncode:
        raise PageError(f"line {block.line}: {checked.stdout}")


def check_names(settings: dict[str, Any]) -> None:
    from reliable_messaging.conf import KNOWN_NAMES

    for name in settings:
        if name not in KNOWN_NAMES:
            raise PageError(f"{name!r} is not a setting of RELIABLE_MESSAGING.")


def has_drivers(databases: dict[str, dict[str, Any]]) -> bool:
    from django.core.exceptions import ImproperlyConfigured

    for database in databases.values():
        try:
            import_module(f"{database['ENGINE']}.base")
        except ImproperlyConfigured:
            return False
    return True


def parse_ini(block: Block) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(block.text)
    for section in parser.sections():
        if command := parser[section].get("ExecStart"):
            check_worker_options(command)


def check_worker_options(command: str) -> None:
    """A unit cannot be started here, but its options can be parsed."""
    from reliable_messaging.management.commands.run_outbox_worker import Command

    _, script, name, *options = shlex.split(command)
    Command().create_parser(script, name).parse_args(options)


def follow(page: Path, project: Path, tools: Path) -> None:
    found = blocks(page)
    written = write_files(found, project)
    set_up()
    with Console(project, tools=tools) as console:
        follower = Follower(page, project, console)
        for block in found:
            follower.run(block)
        follower.run_afterwards()
    for path in written:
        name = ".".join(path.relative_to(project).with_suffix("").parts)
        import_module(name)
    print(f"{len(found)} blocks followed")


if __name__ == "__main__":
    follow(*(Path(argument).resolve() for argument in sys.argv[1:]))
