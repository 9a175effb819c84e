"""Settings of the test project: every database that answers, side by side."""

import os

from tests.services import databases

SECRET_KEY = "only-for-tests"
DEBUG = os.environ.get("TEST_DEBUG") == "1"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"  # not UTC, so that a mix-up shows
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

DATABASES, MISSING_SERVICES = databases()

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "health_check",
    "reliable_messaging",
    "tests.testapp",
]
MIDDLEWARE = [
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
RELIABLE_MESSAGING = {
    "BACKOFF_BASE": 0.2,
    "BACKOFF_JITTER": 0.05,
    # For worker processes, which a test can only reach through their environment.
    "ENABLED": os.environ.get("TEST_ENABLED", "1") == "1",
    "FAST_PATH": os.environ.get("TEST_FAST_PATH", "1") == "1",
    "MAX_CRASHES": int(os.environ.get("TEST_MAX_CRASHES", "5")),
    "OUTBOX_RETENTION": float(os.environ.get("TEST_OUTBOX_RETENTION", "604800")),
    "CLEANUP_INTERVAL": float(os.environ.get("TEST_CLEANUP_INTERVAL", "300")),
}
