"""Settings of the benchmark's processes: throw-away databases of one kind, nothing else.

LOGGING is left out on purpose, and RELIABLE_MESSAGING holds only what a side asks for: the defaults
are what is measured. Processes started by the benchmark inherit what is read from the environment.
"""

import os

from reliable_messaging.conf import KNOWN_NAMES
from tests.benchmarks.environment import DATABASE, asked_options, reach


def _named(suffix: str) -> dict:
    name = _found["NAME"]
    named = name.with_stem(f"{name.stem}{suffix}") if hasattr(name, "with_stem") else f"{name}{suffix}"
    return _found | {"NAME": named}


_found = reach(os.environ.get(DATABASE, "postgres"))
if isinstance(_found, str):
    raise SystemExit(_found)

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": _named("_bench"),
    # Holds a million rows while "default" holds few, so that the two can be drained in turn.
    "filled": _named("_filled"),
}
INSTALLED_APPS = ["reliable_messaging", "tests.benchmarks.benchapp"]
# An older release does not know every name, and would refuse it.
RELIABLE_MESSAGING = {name: value for name, value in asked_options().items() if name in KNOWN_NAMES}
