"""The world outside the shop, which does not always work. Pretended, so that the example needs nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

GREYLISTED_TRIES = 2
JAM_SECONDS = 60


class MailDeferred(Exception):
    """The mail server says: try again later."""


def send_mail(to: str, *, earlier_tries: int) -> None:
    """Greylisting, as real mail servers do it: some addresses take a mail only at the third try."""
    if to.startswith("greylisted") and earlier_tries < GREYLISTED_TRIES:
        raise MailDeferred(f"450 {to}: greylisted, try again later")


def jam_printer(note: str) -> None:
    """Hang, after leaving a note that tells which process does."""
    Path(note).write_text(str(os.getpid()))
    time.sleep(JAM_SECONDS)
