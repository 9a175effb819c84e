"""One run: the chosen measures on one database, which this process is set up for."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import import_module

from . import machine
from .databases import current
from .figures import Figure
from .record import Record
from .scale import FULL, QUICK, SHORT, Scale


def run(measures: Sequence[str], *, quick: bool) -> Record:
    """Those of the measures that make sense on this database."""
    database = current()
    measures = [name for name in database.measures if name in measures]
    scale = QUICK if quick else FULL if database.has_targets else SHORT
    began, load, source = datetime.now(timezone.utc), machine.load(), machine.source_digest()
    with database.throwaway():
        failed: list[str] = []
        figures = list(_figures(measures, scale, failed))
        databases = {database.title: database.facts()}
    about = {
        "began": began.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(timezone.utc) - began).total_seconds()),
        "scale": asdict(scale),
        "source": {"before": source, "after": machine.source_digest()},
        "machine": machine.facts(),
        "load": {"before": load, "after": machine.load()},
        "databases": databases,
        "failed": failed,
    }
    return Record(figures=figures, about=about)


def _figures(measures: Sequence[str], scale: Scale, failed: list[str]) -> Iterator[Figure]:
    """One that fails takes no other with it: a whole run is long."""
    title = current().title
    for name in measures:
        started = time.monotonic()
        try:
            for figure in import_module(f"{__package__}.measures.{name}").measure(scale):
                yield figure.on(title, with_targets=current().has_targets)
        except Exception:
            traceback.print_exc()
            failed.append(f"{name} on {title}")
        print(f"{title}, {name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
