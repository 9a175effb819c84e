"""What the package under test offers. Figures are compared across releases, and an older one may lack
a setting or an option: its figure is then taken without it, and says so."""

from __future__ import annotations

from django.core.management import load_command_class

from reliable_messaging.conf import KNOWN_NAMES


def note_without(*names: str) -> str:
    """Empty when the package has all of these settings."""
    missing = [name for name in names if name not in KNOWN_NAMES]
    return f"this release has no setting {', '.join(missing)}: both sides are alike" if missing else ""


def throughput_options() -> tuple[str, ...]:
    """Of a worker that is to drain as fast as it can."""
    return ("--preset", "throughput") if _worker_has("--preset") else ("--batch-size", "500")


def _worker_has(option: str) -> bool:
    command = load_command_class("reliable_messaging", "run_outbox_worker")
    parser = command.create_parser("manage.py", "run_outbox_worker")
    return option in parser._option_string_actions
