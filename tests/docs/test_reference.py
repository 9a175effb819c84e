"""What the tables of the pages say is what the code says."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from argparse import SUPPRESS
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandParser
from django.db.models import Model
from django.dispatch import Signal

import reliable_messaging
from reliable_messaging import DeadLetter, Message, enqueue, exceptions, handler, models, outbox, signals
from reliable_messaging.conf import Settings
from reliable_messaging.health import OutboxHealth
from reliable_messaging.management.commands import run_outbox_worker, run_scheduler
from reliable_messaging.models import OutboxMessage, Status
from reliable_messaging.models.work_item import Priority
from tests.docs.pages import DOCS, ROOT, Table, page_id, plain, table, tables

README = ROOT / "README.md"
REFERENCE = DOCS / "reference"
PACKAGE = ROOT / "reliable_messaging"

UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "days": "days"}


def value(cell: str) -> Any:
    """`` `50` `` → 50, ``60 s`` → a timedelta"""
    if cell.startswith("`"):
        return ast.literal_eval(plain(cell))
    number, unit = cell.split()
    return timedelta(**{UNITS[unit]: float(number)})


def names(table: Table, column: str) -> list[str]:
    """Every `` `name` `` of a column; a cell may have several."""
    return [name for cell in table.column(column) for name in re.findall(r"`([^`]+)`", cell)]


def defaults(cls: Any) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(cls)}


@pytest.mark.parametrize("page", [README, REFERENCE / "settings.md"], ids=page_id)
def test_the_settings_are_listed_with_their_defaults(page: Path) -> None:
    """Exactly the names and defaults of conf.Settings, in its order."""
    (listed,) = [t for t in tables(page) if t.columns == ["Setting", "Default", "Meaning"]]
    shown = [(plain(name), value(default)) for name, default, _ in listed.rows]
    assert shown == list(defaults(Settings).items())


@pytest.mark.parametrize(
    ("command", "heading"),
    [(run_outbox_worker, "Option"), (run_scheduler, "Option of run_scheduler")],
)
def test_the_options_of_the_commands_are_listed(command: Any, heading: str) -> None:
    """Exactly those that the command shows, with the default or the setting that it comes from."""
    parser = CommandParser(add_help=False)
    command.Command().add_arguments(parser)
    options = {a.option_strings[0]: a for a in parser._actions if a.help != SUPPRESS}
    listed = table(REFERENCE / "command.md", heading)
    assert names(listed, heading) == list(options)
    for name, default in zip(names(listed, heading), listed.column("Default"), strict=True):
        if plain(default).isupper():
            assert plain(default) in defaults(Settings)
            assert options[name].default is None
        elif default.isdigit():
            assert f"default {default}" in str(options[name].help)


def test_the_system_checks_are_listed() -> None:
    """Exactly the ids that checks.py uses, with their level."""
    used = re.findall(r'id="(reliable_messaging\.\w+)"', (PACKAGE / "checks.py").read_text())
    listed = table(REFERENCE / "system-checks.md", "Id")
    assert names(listed, "Id") == sorted(used)
    levels = {"E": "error", "W": "warning"}
    for name, level in zip(names(listed, "Id"), listed.column("Level"), strict=True):
        assert levels[name.split(".")[1][0]] == level


def test_the_signals_are_listed() -> None:
    """Exactly those of the signals module."""
    there = [name for name, found in vars(signals).items() if isinstance(found, Signal)]
    assert names(table(REFERENCE / "signals-and-logs.md", "Signal"), "Signal") == there


def test_the_log_events_are_listed() -> None:
    """Exactly those that the code logs."""
    assert set(names(table(REFERENCE / "signals-and-logs.md", "Event"), "Event")) == set(logged_events())


def logged_events() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logs.event":
                arguments: list[ast.expr] = node.args
            elif path.name == "announce.py" and isinstance(node, ast.Return):
                arguments = node.value.elts if isinstance(node.value, ast.Tuple) else []
            else:
                continue
            if len(arguments) > 1 and isinstance(arguments[1], ast.Constant):
                yield str(arguments[1].value)
            elif len(arguments) > 1 and path.name == "promotion.py":
                ending = ast.unparse(arguments[1]).rpartition("}")[2].strip("'")
                yield from (what + ending for what in ("timers", "runs"))


def test_the_statuses_are_listed() -> None:
    """Exactly those of the model, by their labels."""
    assert names(table(REFERENCE / "statuses.md", "Status"), "Status") == [str(s.label) for s in Status]


def test_the_counters_are_columns() -> None:
    """Each is a field of the model."""
    for name in names(table(REFERENCE / "statuses.md", "Column"), "Column"):
        assert OutboxMessage._meta.get_field(name)


@pytest.mark.parametrize(("heading", "function"), [("enqueue", enqueue), ("handler", handler)])
def test_the_parameters_are_listed(heading: str, function: Any) -> None:
    """Exactly those of the function, in its order; defaults that are values are the right ones."""
    (listed,) = [t for t in tables(REFERENCE / "api.md") if t.heading == heading]
    parameters = inspect.signature(function).parameters
    assert names(listed, "Parameter") == list(parameters)
    for name, default in zip(parameters, listed.column("Default"), strict=True):
        given = parameters[name].default
        if default == "required":
            assert given is inspect.Parameter.empty
        elif default in ("`None`", "`True`", "`0`", '`""`', '`"default"`'):
            assert value(default) == given
        else:  # in words: it depends
            assert given in (None, "")


@pytest.mark.parametrize(
    ("heading", "cls", "hidden"),
    [("Message", Message, {"stop_requested"}), ("DeadLetter", DeadLetter, set())],
)
def test_the_fields_are_listed(heading: str, cls: Any, hidden: set[str]) -> None:
    """Every field and property that a handler may read."""
    (listed,) = [t for t in tables(REFERENCE / "api.md") if t.heading == heading]
    properties = {name for name, found in vars(cls).items() if isinstance(found, property)}
    assert set(names(listed, "Field")) == (set(defaults(cls)) | properties) - hidden


def test_the_exceptions_are_listed() -> None:
    """Exactly those of the exceptions module, each below the class that the table names."""
    there = {
        name: found
        for name, found in vars(exceptions).items()
        if inspect.isclass(found) and found.__module__ == exceptions.__name__
    }
    listed = table(REFERENCE / "api.md", "Exception")
    assert set(names(listed, "Exception")) == set(there)
    for name, parent, _ in listed.rows:
        if parent.startswith("`"):
            bases = [base.__name__ for base in there[plain(name)].__mro__]
            assert plain(parent) in bases


def test_the_models_are_listed() -> None:
    """Every table."""
    classes = [getattr(models, name) for name in models.__all__]
    there = {c.__name__ for c in classes if issubclass(c, Model) and not c._meta.abstract}
    assert set(names(table(REFERENCE / "api.md", "Model"), "Model")) == there


def test_every_exported_name_is_explained() -> None:
    """What can be imported from the package has its place in the reference."""
    text = (REFERENCE / "api.md").read_text()
    for name in reliable_messaging.__all__:
        assert re.search(rf"^## .*\b{name}\b", text, re.MULTILINE) or f"`{name}" in text, name


def test_the_verbs_are_there() -> None:
    """With the parameters and defaults that the table shows."""
    for call in names(table(DOCS / "how-to" / "write-your-own-processor.md", "Verb"), "Verb"):
        node = ast.parse(call, mode="eval").body
        assert isinstance(node, ast.Call)
        verb = getattr(outbox.queue, ast.unparse(node.func))
        parameters = inspect.signature(verb).parameters
        for keyword in node.keywords:
            assert keyword.arg is not None
            assert parameters[keyword.arg].default == ast.literal_eval(keyword.value), call
        positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert len([p for p in positional if p.default is p.empty]) == len(node.args), call


def test_the_functions_of_the_outbox_are_there() -> None:
    """With the signature that the table shows."""
    listed = table(REFERENCE / "api.md", "Function")
    for call in names(listed, "Function"):
        name, _, shown = call.removeprefix("outbox.").partition("(")
        found = getattr(outbox, name)
        if shown:
            parameters = [p.replace(annotation=p.empty) for p in inspect.signature(found).parameters.values()]
            assert str(inspect.Signature(parameters)) == f"({shown}", call


def test_the_arguments_of_the_health_check_are_listed() -> None:
    """Exactly its fields and their defaults."""
    listed = table(DOCS / "how-to" / "monitor.md", "Argument")
    shown = {plain(name): value(default) for name, default, _ in listed.rows}
    own = OutboxHealth.__annotations__
    assert shown == {name: default for name, default in defaults(OutboxHealth).items() if name in own}


def test_the_permissions_of_the_admin_are_there() -> None:
    """Each is one of the model."""
    listed = names(table(DOCS / "how-to" / "monitor.md", "Action"), "Permission")
    assert listed == [f"reliable_messaging.{codename}" for codename, _ in OutboxMessage._meta.permissions]


def test_the_priorities_are_three() -> None:
    """The reference names each number with its word."""
    text = (REFERENCE / "api.md").read_text()
    for priority in Priority:
        assert f"`{priority.value}` {priority.label}" in text


def test_every_test_of_the_guarantees_exists() -> None:
    """A promise that names a test which is gone is no promise."""
    proofs = [name for t in tables(DOCS / "explanation" / "guarantees.md") for name in names(t, "Test")]
    assert len(proofs) > 20
    for proof in proofs:
        path, _, test = proof.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        there = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert test in there, proof
        assert ast.get_docstring(there[test]), proof


def test_every_claim_of_the_guarantees_has_a_test() -> None:
    """Each promise has a table, and each of its rows names one test."""
    text = (DOCS / "explanation" / "guarantees.md").read_text()
    promises = re.findall(r"^## \d+\. (.+)$", text, re.MULTILINE)
    proved = tables(DOCS / "explanation" / "guarantees.md")
    assert [f"{n}. {promise}" for n, promise in enumerate(promises, 1)] == [t.heading for t in proved]
    for found in proved:
        assert len(names(found, "Test")) == len(found.rows)


def test_the_supported_versions_are_those_of_the_package() -> None:
    """README names the Python and Django versions that the package's classifiers name."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = dict(table(README, "What").rows)
    for what, classifier in (("Python", "Programming Language :: Python"), ("Django", "Framework :: Django")):
        versions = re.findall(rf'"{classifier} :: (\d+\.\d+)"', text)
        assert listed[what] == ", ".join(versions)


def test_the_extras_are_those_of_the_package() -> None:
    """README names each extra."""
    text = (ROOT / "pyproject.toml").read_text()
    section = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    assert names(table(README, "Extra"), "Extra") == re.findall(r"^(\w+) =", section, re.MULTILINE)


def test_the_layers_are_those_of_the_contract() -> None:
    """Architecture lists them as import-linter holds them, from the top to the bottom."""
    text = (ROOT / "pyproject.toml").read_text()
    contract = text.split("layers = [")[1].split("]")[0]
    held = [
        sorted(module.removeprefix("reliable_messaging.") for module in line.split(" | "))
        for line in re.findall(r'"([^"]+)"', contract)
    ]
    listed = table(DOCS / "explanation" / "architecture.md", "Layer")
    shown = [
        sorted(name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([^`]+)`", cell))
        for cell in listed.column("Layer")
    ]
    assert shown == held


def test_the_version_of_the_changelog() -> None:
    """The version of the package has its place in the changelog."""
    assert reliable_messaging.__version__ in (ROOT / "CHANGELOG.md").read_text()
