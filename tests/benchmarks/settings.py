"""Settings of the benchmark's processes: one throw-away PostgreSQL database, nothing else.

RELIABLE_MESSAGING and LOGGING are left out on purpose: the defaults are what is measured.
"""

from tests.services import DATABASE_NAME, postgres

_found = postgres()
if isinstance(_found, str):
    raise SystemExit(f"The benchmarks need PostgreSQL. {_found}")

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Processes started by the benchmark inherit TEST_RUN_DIR, and with it this name.
DATABASES = {"default": _found | {"NAME": f"{DATABASE_NAME}_bench"}}
INSTALLED_APPS = ["reliable_messaging", "tests.benchmarks.benchapp"]
