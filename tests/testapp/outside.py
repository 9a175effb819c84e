"""A handler that acts outside the database, where no transaction can take anything back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from reliable_messaging import Message, handler

from .models import Effect

STEP_SECONDS = 0.03


@handler("fault.external", atomic=False)
def act_outside(message: Message) -> None:
    """Step by step, each of them a line of the journal, if there is one; in the end the effect. How many
    steps is a matter of the process (TEST_STEPS), so that another one can finish what a slow one had."""
    for step in range(int(os.environ.get("TEST_STEPS", "1"))):
        _note(message, step)
        time.sleep(STEP_SECONDS)
    Effect.objects.using(message.using).create(name=str(message.payload["number"]), message_id=message.id)


def _note(message: Message, step: int) -> None:
    if path := os.environ.get("TEST_JOURNAL"):
        line = f"{time.monotonic()} {message.payload['number']} {message.attempts} {step}\n"
        with Path(path).open("a") as journal:  # one short write at its end: lines never mix
            journal.write(line)
