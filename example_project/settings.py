"""The example: a small shop on one SQLite file."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(os.environ.get("EXAMPLE_DATA_DIR", BASE_DIR / "var"))
DATA_DIR.mkdir(parents=True, exist_ok=True)
DATABASE_FILE = "example.sqlite3"

SECRET_KEY = "only-for-the-example"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "example_project.urls"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "health_check",
    "reliable_messaging",
    "example_project.shop",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATA_DIR / DATABASE_FILE,
        "OPTIONS": {
            # A transaction takes the write lock when it begins, so it cannot fail half way.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # FULL: a commit survives a power cut. NORMAL is faster, and may lose the last ones.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        },
    },
}

BACKOFF_BASE = float(os.environ.get("EXAMPLE_BACKOFF", "2"))

RELIABLE_MESSAGING = {
    "SERVICE_NAME": "shop",
    "LEASE": float(os.environ.get("EXAMPLE_LEASE", "60")),
    "BACKOFF_BASE": BACKOFF_BASE,
    "BACKOFF_JITTER": BACKOFF_BASE / 4,
    # A look costs little, and someone may be watching.
    "POLL_MAX": 0.5,
}
