"""Where it was measured: a figure without its machine says little."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import django

import reliable_messaging


def facts() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "django": django.get_version(),
        "reliable_messaging": reliable_messaging.__version__,
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": platform.platform(),
    }


def load() -> float:
    """Processes that wanted a core during the last minute, on average."""
    return os.getloadavg()[0]


def source_digest() -> str:
    """Of the package's files as they are now. Every worker imports what it finds when it starts, so
    an edit during a run makes its rounds measure different code."""
    digest = hashlib.sha256()
    for path in sorted(Path(reliable_messaging.__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
