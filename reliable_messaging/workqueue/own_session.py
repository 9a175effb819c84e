"""Settings of a PostgreSQL session that is ours for as long as it lasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def set_in_own_session(connection: Any, values: Mapping[str, str]) -> bool:
    """Set them to these expressions, and say whether that was done. Behind PgBouncer the driver knows another
    number for the session: that one will be somebody else's soon, and is left as it is."""
    settings = ", ".join(f"set_config('{name}', {value}, false)" for name, value in values.items())
    pid = connection.connection.info.backend_pid
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {settings} WHERE pg_backend_pid() = {pid}")
        return cursor.fetchone() is not None
