from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.widgets import AdminTextareaWidget
from django.core.exceptions import ValidationError
from django.db import DEFAULT_DB_ALIAS
from django.utils.translation import gettext_lazy as _

from .. import codec
from ..exceptions import ReliableMessagingError
from ..jobs.definition import COLUMNS, check
from ..models import Job

if TYPE_CHECKING:
    JobModelForm = forms.ModelForm[Job]
else:
    JobModelForm = forms.ModelForm


class JSONTextField(forms.CharField):
    """JSON as it is written. Not Django's field, which fails on numbers and depths that Python refuses, and
    to which null is nothing."""

    widget = AdminTextareaWidget(attrs={"rows": 4})

    def prepare_value(self, value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


class JobForm(JobModelForm):
    """What ``create_or_update`` checks, said at the field in question."""

    using = DEFAULT_DB_ALIAS
    """Where the job is written."""

    payload = JSONTextField(
        label=_("Payload"), initial="null", help_text=_('JSON text, such as {"report": 7}; a text in quotes.')
    )
    headers = JSONTextField(label=_("Headers"), initial="{}", required=False, help_text=_("A JSON object."))

    class Meta:
        model = Job
        fields = COLUMNS
        help_texts = {
            "queue": _("Empty: the handler's."),
            "max_attempts": _("Empty: the handler's."),
            "time_to_live": _("Of each run's message, in seconds, or as hours:minutes:seconds."),
            "cron": _(
                "Minute, hour, day of month, month, day of week; or six fields, with the seconds first: "
                "“30 2 * * *” is half past two every night."
            ),
            "timezone": _("Of the cron expression: a name such as Europe/Berlin."),
            "misfire": _("What becomes of due times that nobody was there for."),
            "misfire_grace": _("How late a due time is in time: seconds, or hours:minutes:seconds."),
            "overlap": _("What becomes of a due time while the run before it has not ended."),
        }

    def clean_payload(self) -> Any:
        return _decode(self.cleaned_data["payload"])

    def clean_headers(self) -> Any:
        return _decode(self.cleaned_data["headers"] or "{}")

    def clean_queue(self) -> str | None:
        return self.cleaned_data["queue"] or None

    def clean(self) -> dict[str, Any]:
        super().clean()
        for column, value in list(self.cleaned_data.items()):
            try:
                self.cleaned_data[column] = check(column, value)
            except ReliableMessagingError as exc:
                self.add_error(column, str(exc))
        return self.cleaned_data

    def validate_unique(self) -> None:
        """Where it is written, which need not be where Django would look."""
        name = self.cleaned_data.get("name")
        if name is not None and Job._base_manager.using(self.using).filter(pk=name).exists():
            self.add_error("name", _("There is a job of this name already."))


def _decode(text: str) -> Any:
    try:
        return codec.decode(text)
    except (ValueError, RecursionError) as exc:
        raise ValidationError(_("This is no JSON: %(reason)s."), params={"reason": exc}) from exc
