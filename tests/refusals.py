"""What a database may refuse to write, whichever path it is written by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from reliable_messaging.workqueue import Ack, settle, single_statement


def refuse_to_acknowledge(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither alone nor with others can a message of this body be done."""
    by_update, at_once = settle._write_done, single_statement.exchange

    def check(items: Iterable[Any]) -> None:
        if any(item.body == body for item in items):
            raise RuntimeError("cannot be written")

    def write_done(model: Any, using: str, settlements: Any, **options: Any) -> None:
        check(s.item for s in settlements if isinstance(s, Ack))
        by_update(model, using, settlements, **options)

    def exchange(model: Any, using: str, done: Any, claim: Any, **options: Any) -> Any:
        check(done)
        return at_once(model, using, done, claim, **options)

    monkeypatch.setattr(settle, "_write_done", write_done)
    monkeypatch.setattr(single_statement, "exchange", exchange)
