"""How a cron expression is written: what is understood, and the one form in which it is stored.

croniter sees only what this grammar accepts: of some expressions it makes something else without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .exceptions import InvalidCron

MAX_LENGTH = 200
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.high - self.low + 1


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY_OF_MONTH = _Field(name="day of month", low=1, high=31)
_DAY_OF_WEEK = _Field(name="day of week", low=0, high=6, names={name: i for i, name in enumerate(_WEEKDAYS)})
_FIVE = (
    _Field(name="minute", low=0, high=59),
    _Field(name="hour", low=0, high=23),
    _DAY_OF_MONTH,
    _Field(name="month", low=1, high=12, names={name: i for i, name in enumerate(_MONTHS, 1)}),
    _DAY_OF_WEEK,
)
_FORMS = {5: _FIVE, 6: (_Field(name="second", low=0, high=59), *_FIVE)}

_ITEM = re.compile(r"(?:\*|(?P<first>[0-9a-z]+)(?:-(?P<last>[0-9a-z]+))?)(?:/(?P<step>[0-9]+))?")
_NEAREST = re.compile(r"w([0-9]+)|([0-9]+)w")
_NTH = re.compile(r"([0-9a-z]+)#([1-5])|l([0-9])")
_HASHED = re.compile(r"[hr](?:[(/].*)?")


def normal_form(expression: str) -> str:
    """Lower case, one space, aliases written out, Sunday as 0; or InvalidCron."""
    tokens = _tokens(expression)
    fields = _FORMS.get(len(tokens))
    if fields is None:
        raise InvalidCron(
            f"The cron expression {expression!r} has {_counted(len(tokens))}. Write five (minute, hour, day "
            "of month, month, day of week), or six with the seconds first; a year is not supported."
        )
    stored = " ".join(_normal_field(*pair) for pair in zip(fields, tokens, strict=True))
    _check_length(stored)
    *_, day_of_month, _month, day_of_week = stored.split()
    _check_days(day_of_month, day_of_week)
    return stored


def _tokens(expression: object) -> list[str]:
    if not isinstance(expression, str):
        raise InvalidCron(f"A cron expression must be text, not {type(expression).__name__}.")
    _check_length(expression)
    text = expression.replace("\t", " ").strip(" ")
    if not text:
        raise InvalidCron(
            "The cron expression is empty. Write five fields, such as '30 2 * * *' for 02:30 every day."
        )
    # Before it is lowered: a few letters that are not ASCII become some that are.
    if not text.isascii() or not text.isprintable():
        raise InvalidCron(
            f"The cron expression {expression!r} has a control character, or one that is not ASCII."
        )
    text = text.lower()
    if not text.startswith("@"):
        return text.split()
    if text not in ALIASES:
        raise InvalidCron(f"There is no alias {text!r}. There are {', '.join(ALIASES)}.")
    return ALIASES[text].split()


def _normal_field(field: _Field, written: str) -> str:
    items = written.split(",")
    if any(_HASHED.fullmatch(item) for item in items):
        raise InvalidCron(
            f"The {field.name} field {written!r} has H or R: hashed or random times are not supported. "
            "Choose a time and write it."
        )
    if field in (_DAY_OF_MONTH, _DAY_OF_WEEK) and written == "?":
        return "*"
    if field is _DAY_OF_MONTH and (match := _NEAREST.fullmatch(written)):
        return f"{_text(field, match[1] or match[2])}w"
    if field is _DAY_OF_WEEK and any(_NTH.fullmatch(item) for item in items):
        return ",".join(_nth_weekday(written, item) for item in items)
    normal = [_normal_item(field, item) for item in items]
    return "*" if "*" in normal else ",".join(normal)


def _nth_weekday(written: str, item: str) -> str:
    """2#3 (the third Tuesday) or l5 (the last Friday)."""
    match = _NTH.fullmatch(item)
    if match is None:
        raise InvalidCron(
            f"The day of week field {written!r} mixes plain days with numbered or last ones. "
            "Make them two schedules."
        )
    day, number, last = match.groups()
    return f"l{_text(_DAY_OF_WEEK, last)}" if last else f"{_text(_DAY_OF_WEEK, day)}#{number}"


def _normal_item(field: _Field, item: str) -> str:
    if field is _DAY_OF_MONTH and item == "l":
        return item
    match = _ITEM.fullmatch(item)
    if match is None:
        raise InvalidCron(f"The {field.name} field has {item!r}, which is not understood.")
    first, last, step = match["first"], match["last"], _step(field, item, match["step"])
    if first is None:
        return "*" if step == 1 else f"*/{step}"
    if last is not None:
        return _normal_range(field, first, last, step)
    # croniter takes 59/5 for */5: a range of one value is a whole circle to it.
    alone = match["step"] is None or _number(field, first) == field.high
    return _text(field, first) if alone else f"{_text(field, first)}/{step}"


def _normal_range(field: _Field, first: str, last: str, step: int) -> str:
    low, high = _number(field, first), _number(field, last)
    shown = f"{first}-{last}"
    if low == high:
        raise InvalidCron(
            f"The {field.name} field has {shown!r}. Write {first!r} for one value, or '*' for all."
        )
    if field is _DAY_OF_WEEK:
        low, high = low % 7, high or 7
        if high == 7:
            return ",".join(dict.fromkeys(str(day % 7) for day in range(low, high + 1, step)))
    if low > high and step > 1:
        # croniter starts again at a wrong value: 23-5/2 gives 23, 2, 4.
        raise InvalidCron(
            f"The {field.name} field has {shown!r} with a step, past the end of its range. "
            "Write the values as a list, with commas."
        )
    return f"{_text(field, first)}-{_text(field, last)}" + (f"/{step}" if step > 1 else "")


def _step(field: _Field, item: str, text: str | None) -> int:
    step = 1 if text is None else int(text)
    if not 1 <= step <= field.size:
        raise InvalidCron(
            f"The {field.name} field has {item!r}, with a step of {step}. It can be from 1 to {field.size}."
        )
    return step


def _text(field: _Field, value: str) -> str:
    if value in field.names:
        return value
    number = _number(field, value)
    return str(number % 7 if field is _DAY_OF_WEEK else number)


def _number(field: _Field, value: str) -> int:
    """The day of week 7 is 7: where it is the end of a range, that matters."""
    number = field.names.get(value, int(value) if value.isdigit() else -1)
    high = 7 if field is _DAY_OF_WEEK else field.high
    if not field.low <= number <= high:
        named = f", or {', '.join(field.names)}" if field.names else ""
        raise InvalidCron(
            f"The {field.name} field has {value!r}. It can be from {field.low} to {high}{named}."
        )
    return number


def _counted(fields: int) -> str:
    return "1 field" if fields == 1 else f"{fields} fields"


def _check_length(expression: str) -> None:
    if len(expression) > MAX_LENGTH:
        raise InvalidCron(
            f"The cron expression has {len(expression)} characters; {MAX_LENGTH} are allowed. "
            "Write ranges or steps, or make it two schedules."
        )


def _check_days(day_of_month: str, day_of_week: str) -> None:
    """Of two restricted day fields either is enough, but croniter wants both if one is of the rarer kinds."""
    if "*" in (day_of_month, day_of_week):
        return
    if "w" in day_of_month or "#" in day_of_week or "l" in day_of_week:
        raise InvalidCron(
            f"A day of month ({day_of_month}) and a day of week ({day_of_week}) cannot be combined if one of "
            "them has W, # or L. Write '*' for one of them, or make it two schedules."
        )
