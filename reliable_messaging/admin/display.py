"""Values shown safely: escaped, cut to a length that a page can bear."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from django.template.defaultfilters import date as format_date
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from ..models import Failure

SHOWN_CHARACTERS = 20_000


def json_text(text: str) -> SafeString:
    """JSON laid out for reading; what is no JSON, or too long to lay out, as it is."""
    if len(text) > SHOWN_CHARACTERS:
        hidden = len(text) - SHOWN_CHARACTERS
        return preformatted(text[:SHOWN_CHARACTERS] + _("\n… %d more characters") % hidden)
    try:
        return preformatted(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except ValueError:
        return preformatted(text)


def preformatted(text: str) -> SafeString:
    return format_html("<pre>{}</pre>", text)


def failures_list(failures: Iterable[Failure]) -> SafeString:
    """Every kind of failure of one item, the latest first, with its traceback folded away."""
    rows = format_html_join(
        "",
        "<details><summary>{} ×{} ({}): {} — {}</summary><pre>{}</pre></details>",
        (
            (f.error_class, f.count, f.get_kind_display(), f.message, _moment(f.last_at), f.traceback)
            for f in failures
        ),
    )
    return rows or SafeString("-")


def _moment(value: datetime) -> str:
    return str(format_date(localtime(value), "DATETIME_FORMAT"))
