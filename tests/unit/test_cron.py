"""When a cron expression is due: what is refused, what is stored, and what the borders of summer time do."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reliable_messaging.cron import Schedule, _pattern, as_zone, normalise
from reliable_messaging.cron_syntax import ALIASES, MAX_LENGTH
from reliable_messaging.exceptions import InvalidCron, InvalidTimeZone

UTC = timezone.utc
SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))
ZONES = (
    "Africa/Cairo",  # forward at midnight, back at midnight
    "Africa/Casablanca",  # back for Ramadan
    "America/Caracas",  # half an hour, twice in ten years
    "America/Havana",  # forward at midnight
    "America/New_York",
    "America/Sao_Paulo",  # forward at midnight, until 2019
    "America/Scoresbysund",  # changed its offset at a border of summer time
    "Antarctica/Troll",  # two hours
    "Asia/Beirut",  # forward at midnight
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Europe/Dublin",  # winter time is the exception
    "Pacific/Apia",  # a day that did not exist
    "Pacific/Chatham",  # at a quarter to three
)


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def times(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """All after the start, up to the end, in UTC."""
    schedule = Schedule.of(expression, zone)
    return list(takewhile(lambda due: due <= end, schedule.times_after(start)))


def local(expression: str, zone: str, day: str) -> list[str]:
    """What is due on the day, by the clock on the wall."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    midnights = start.astimezone(UTC), (start + DAY).astimezone(UTC)
    due = times(expression, zone, *(midnight - SECOND for midnight in midnights))
    return [f"{moment.astimezone(ZoneInfo(zone)):%d %H:%M%z}" for moment in due]


# Plain examples


@pytest.mark.parametrize(
    ("expression", "stored"),
    [
        ("  0\t12  *   * MON-Fri ", "0 12 * * mon-fri"),
        ("05 5/1 1,02 JAN,feb *", "5 5/1 1,2 jan,feb *"),
        ("*/1 0-23/1 1 * ?", "* 0-23 1 * *"),
        ("*,5 * ? * *", "* * * * *"),
        ("59/5 23/2 * * 6/2", "59 23 * * 6"),
        ("0 0 L * *", "0 0 l * *"),
        ("0 0 w15 * *", "0 0 15w * *"),
        ("0 0 * * L7", "0 0 * * l0"),
        ("0 0 * * SUN#1,7#2", "0 0 * * sun#1,0#2"),
        ("0 22-2 * nov-feb *", "0 22-2 * nov-feb *"),
        *((alias.upper(), stored) for alias, stored in ALIASES.items()),
    ],
)
def test_what_is_stored(expression: str, stored: str) -> None:
    """Lower case, one space, no leading zeros, no wildcard in disguise, no alias."""
    assert normalise(expression) == stored
    assert normalise(stored) == stored


BAD = [
    (None, "must be text, not NoneType"),
    (5, "must be text, not int"),
    (b"* * * * *", "must be text, not bytes"),
    ("", "is empty"),
    (" \t ", "is empty"),
    ("* * * * *\n", "control character"),
    ("* * *\x00* *", "control character"),
    ("* * * *\u2028*", "control character"),
    ("٣ * * * *", "not ASCII"),
    ("0 0 * o\u212a *", "not ASCII"),
    ("*" * (MAX_LENGTH + 1), "201 characters; 200 are allowed"),
    ("0 0 * * " + ",".join(["1-7"] * 40), "567 characters; 200 are allowed"),
    ("* * * *", "has 4 fields. Write five .*, or six with the seconds first"),
    ("0 0 0 1 1 * 2030", "has 7 fields. .* a year is not supported"),
    ("@reboot", "There are @hourly, @daily"),
    ("@every 5m", "There are @hourly, @daily"),
    ("H * * * *", "minute field 'h' has H or R.*Choose a time"),
    ("0 R * * *", "hour field 'r' has H or R"),
    ("H(0-5) * * * *", "has H or R"),
    ("0 r/5 * * *", "has H or R"),
    ("0 0 h(1-9)/3 * *", "day of month .* has H or R"),
    ("1,H 0 * * *", "has H or R"),
    ("*/70 * * * *", "minute field has '\\*/70', with a step of 70. It can be from 1 to 60"),
    ("0 */25 * * *", "step of 25. It can be from 1 to 24"),
    ("*/61 * * * * *", "second field"),
    ("0-9/61 * * * *", "step of 61"),
    ("*/0 * * * *", "step of 0"),
    ("60 * * * *", "minute field has '60'. It can be from 0 to 59"),
    ("0 24 * * *", "hour field has '24'"),
    ("0 0 0 * *", "day of month field has '0'. It can be from 1 to 31"),
    ("0 0 0 0 * *", "day of month field has '0'"),
    ("0 0 * 13 *", "month field has '13'. It can be from 1 to 12, or jan, feb"),
    ("0 0 * mon *", "month field has 'mon'"),
    ("0 0 * hun *", "month field has 'hun'"),
    ("0 0 * * jan", "day of week field has 'jan'. It can be from 0 to 7, or sun, mon"),
    ("0 0 * * 8", "day of week field has '8'"),
    ("0 0 * * 1#6", "not understood"),
    ("0 0 * * jan#1", "day of week field has 'jan'"),
    ("-1 * * * *", "not understood"),
    ("1,,2 * * * *", "not understood"),
    ("? * * * *", "minute field has '\\?', which is not understood"),
    ("5-5 * * * *", "Write '5' for one value, or '\\*' for all"),
    ("0 0 * * sun-0", "Write 'sun' for one value"),
    ("0 23-5/2 * * *", "Write the values as a list"),
    ("0 0 * * 6-2/2", "Write the values as a list"),
    ("0 0 13 * 5#2", "cannot be combined"),
    ("0 0 13 * l5", "cannot be combined"),
    ("0 0 15w * 1", "cannot be combined"),
    ("0 0 1w,5 * *", "not understood|can be from"),
    ("0 0 * * 1,5#2", "mixes plain days with numbered or last ones"),
    ("0 0 30 2 *", "never fires: none of its months has such a day"),
    ("0 0 31 4,6,9,11 *", "never fires"),
]


@pytest.mark.parametrize(("expression", "words"), BAD)
def test_what_is_refused(expression: str, words: str) -> None:
    """With words that say what to write instead."""
    with pytest.raises(InvalidCron, match=words):
        normalise(expression)


@pytest.mark.parametrize("name", ["thu", "sun-thu", "fri", "FRI", "fri,thu"])
def test_names_with_an_h_or_r_are_names(name: str) -> None:
    """Only a field's item that is H or R is a hashed one."""
    assert normalise(f"0 0 * mar,apr {name}") == f"0 0 * mar,apr {name.lower()}"


@settings(examples(300))
@given(st.text("*/-,?#@ \t0123456789lwhrLWHR" + "satunmojb\n\x00é", max_size=30) | st.text(max_size=12))
def test_any_text_is_stored_or_refused(text: str) -> None:
    """No other exception; and what is stored can be stored again."""
    for attempt in (
        text,
        f"{text} * * *",
        f"0 {text}",
        f"0 0 * * {text}",
        f"0 0 {text} * *",
        f"0 0 0 * * {text}",
    ):
        try:
            stored = normalise(attempt)
        except InvalidCron:
            continue
        assert normalise(stored) == stored
        assert len(stored) <= MAX_LENGTH


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC", "Etc/GMT+5", "America/Port-au-Prince", "EST5EDT"])
def test_zones_by_their_names(name: str) -> None:
    """As the tz database has them."""
    assert as_zone(name).key == name


@pytest.mark.parametrize(
    "name",
    [
        *(
            None,
            5,
            b"UTC",
            "",
            " UTC",
            "UTC ",
            "UTC\n",
            "UTC\x00",
            "\ud800",
            "x" * 5000,
            "../etc/passwd",
            "..",
            ".",
        ),
        *("/etc/localtime", "./UTC", "Europe", "Europe/", "Europe//Berlin", "Europe/Nowhere", "tzdata.zi"),
        *(
            "localtime",
            "right/Europe/Berlin",
            "posix/Europe/Berlin",
            "posixrules",
            "Factory",
            "+02:00",
            "leapseconds",
        ),
    ],
)
def test_what_is_no_zone(name: str) -> None:
    """A path, a machine's own zone, a fixed offset: refused with an example, in a short text on one line."""
    with pytest.raises(InvalidTimeZone, match=r"such as 'Europe/Berlin'") as caught:
        as_zone(name)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("days", "meant"),
    [
        ("7", {0}),
        ("5-7", {5, 6, 0}),
        ("0-7", set(range(7))),
        ("1-7/2", {1, 3, 5, 0}),
        ("1-7/3", {1, 4, 0}),
        ("0-7/7", {0}),
        ("6-7", {6, 0}),
        ("7-2", {0, 1, 2}),
        ("2,7", {2, 0}),
        ("7/3", {0, 3, 6}),
        ("fri-sun", {5, 6, 0}),
        ("mon-sun/2", {1, 3, 5, 0}),
        ("fri-7", {5, 6, 0}),
        ("fri-mon", {5, 6, 0, 1}),
    ],
)
def test_seven_is_sunday(days: str, meant: set[int]) -> None:
    """With and without seconds, alone, in lists, ranges and steps."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    for expression in (f"0 12 * * {days}", f"0 0 12 * * {days}"):
        due = times(expression, "UTC", start, start + 14 * DAY)
        assert {moment.isoweekday() % 7 for moment in due} == meant
        assert len(due) == 2 * len(meant)
        assert normalise(normalise(expression)) == normalise(expression)
        assert "7" not in normalise(expression)


def test_the_second_sunday() -> None:
    """7#2 and l7, with and without seconds."""
    start, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC)
    for seconds in ("", "0 "):
        assert [due.day for due in times(f"{seconds}0 0 * * 7#2", "UTC", start, end)] == [8]
        assert [due.day for due in times(f"{seconds}0 0 * * l7", "UTC", start, end)] == [29]


def test_a_range_to_the_end_that_is_one_value() -> None:
    """croniter would take 59/5 for */5."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    assert [due.minute for due in times("59/5 * * * *", "UTC", start, start + 2 * HOUR)] == [59, 59]


def test_a_step_of_one_is_a_wildcard() -> None:
    """So the other day field decides alone; croniter would take it for every day."""
    start = datetime(2026, 3, 1, 1, tzinfo=UTC)
    assert len(times("0 0 1 * */1", "UTC", start, start + 60 * DAY)) == 1


GAPS = [
    # Clocks go from 02:00 to 03:00.
    ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["29 03:00+0200"]),
    ("*/15 2 * * *", "Europe/Berlin", "2026-03-29", ["29 03:00+0200"]),
    ("0 2,3 * * *", "Europe/Berlin", "2026-03-29", ["29 03:00+0200"]),
    ("0 1-4 * * *", "Europe/Berlin", "2026-03-29", ["29 01:00+0100", "29 03:00+0200", "29 04:00+0200"]),
    ("30 2 30 * *", "Europe/Berlin", "2026-03-29", []),
    ("15 30 2 * * *", "Europe/Berlin", "2026-03-29", ["29 03:00+0200"]),
    ("0 */2 * * *", "Europe/Berlin", "2026-03-29", [f"29 {h:02}:00{z}" for h, z in
        [(0, "+0100"), *((h, "+0200") for h in range(4, 24, 2))]]),
    # From 00:00 to 01:00: the day begins at one.
    ("0 0 * * *", "America/Havana", "2026-03-08", ["08 01:00-0400"]),
    ("0 0 * * *", "Africa/Cairo", "2026-04-24", ["24 01:00+0300"]),
    ("@daily", "Asia/Beirut", "2026-03-29", ["29 01:00+0300"]),
    # From 02:00 to 02:30.
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["04 02:30+1100"]),
    ("45 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["04 02:45+1100"]),
    # From 02:00 to 03:00 after Ramadan.
    ("30 2 * * *", "Africa/Casablanca", "2026-03-22", ["22 03:00+0100"]),
    # 30 December did not come.
    ("0 12 * * *", "Pacific/Apia", "2011-12-31", ["31 00:00+1400", "31 12:00+1400"]),
    ("0 12 30 12 *", "Pacific/Apia", "2011-12-31", ["31 00:00+1400"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "zone", "day", "due"), GAPS)
def test_what_is_due_in_a_gap(expression: str, zone: str, day: str, due: list[str]) -> None:
    """Once, at the first moment after it, or never where every hour counts."""
    assert local(expression, zone, day) == due


FOLDS = [
    # Clocks go from 03:00 back to 02:00.
    ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["25 02:30+0200"]),
    ("0 1-3 * * *", "Europe/Berlin", "2026-10-25", ["25 01:00+0200", "25 02:00+0200", "25 03:00+0100"]),
    ("*/30 2 * * *", "Europe/Berlin", "2026-10-25",
        ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]),
    # The next on the wall is a year later, but the second pass comes first.
    ("*/30 2 25 10 *", "Europe/Berlin", "2026-10-25",
        ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]),
    # From 02:00 back to 01:00, and winter is the exception.
    ("30 1 * * *", "Europe/Dublin", "2026-10-25", ["25 01:30+0100"]),
    # From 01:00 back to 00:00: midnight comes twice.
    ("0 0 * * *", "America/Havana", "2026-11-01", ["01 00:00-0400"]),
    # From 24:00 back to 23:00: 23:30 comes twice.
    ("30 23 * * *", "Africa/Cairo", "2026-10-29", ["29 23:30+0300"]),
    # From 02:00 back to 01:30.
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", ["05 01:45+1100"]),
    ("15 1 * * *", "Australia/Lord_Howe", "2026-04-05", ["05 01:15+1100"]),
    # From 03:00 back to 02:00 for Ramadan.
    ("30 2 * * *", "Africa/Casablanca", "2026-02-15", ["15 02:30+0100"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "zone", "day", "due"), FOLDS)
def test_what_is_due_in_a_fold(expression: str, zone: str, day: str, due: list[str]) -> None:
    """The first time it comes; both times if it is an interval."""
    assert local(expression, zone, day) == due


def test_every_hour_in_a_fold_is_every_hour() -> None:
    """A day of 25 hours has 25 of them, one of 23 has 23."""
    assert len(local("0 * * * *", "Europe/Berlin", "2026-10-25")) == 25
    assert len(local("0 * * * *", "Europe/Berlin", "2026-03-29")) == 23


def test_seconds_do_not_make_an_interval() -> None:
    """Sixty seconds of a fixed minute come once."""
    assert len(local("* 30 2 * * *", "Europe/Berlin", "2026-10-25")) == 60


def test_a_year_with_no_such_day_is_passed() -> None:
    """29 February, over many borders of summer time."""
    start = datetime(2096, 3, 1, tzinfo=UTC)
    due = Schedule.of("0 12 29 2 *", "Europe/Berlin").next_after(start)
    assert due == datetime(2104, 2, 29, 11, tzinfo=UTC)


def test_the_calendar_ends() -> None:
    """None, not an error."""
    schedule = Schedule.of("0 0 1 1 *", "America/New_York")
    assert schedule.next_after(datetime(9999, 1, 2, tzinfo=UTC)) is None
    assert schedule.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert Schedule.of("* * * * * *", "Asia/Tokyo").next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert len(list(schedule.times_after(datetime(9990, 6, 1, tzinfo=UTC)))) == 9


def test_a_moment_without_a_zone_is_refused() -> None:
    """It would be taken for the machine's own zone."""
    schedule = Schedule.of("* * * * *", "UTC")
    with pytest.raises(ValueError, match="needs a time zone"):
        schedule.next_after(datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="needs a time zone"):
        schedule.latest(datetime(2026, 1, 1), datetime(2026, 1, 2))


def test_moments_in_any_zone() -> None:
    """They are compared as moments, on the second pass of a fold too; answers are in UTC."""
    second_pass = datetime(2026, 10, 25, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    moment = datetime(2026, 10, 25, 1, tzinfo=UTC)
    schedule = Schedule.of("*/20 * * * *", "UTC")
    due = schedule.next_after(second_pass)
    assert due == moment + 20 * MINUTE
    assert due.tzinfo is UTC
    assert schedule.latest(second_pass, moment + MINUTE) == moment
    assert Schedule.of("0 0 * * *", "UTC").latest(second_pass, moment + MINUTE) is None
    assert Schedule.of("30 0 * * *", "UTC").latest(second_pass, moment + MINUTE) is None


def test_the_latest_of_a_thousand_million(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps, however many were due; a second more or less decides."""
    asked: list[datetime] = []
    real = Schedule.next_after
    monkeypatch.setattr(Schedule, "next_after", lambda self, at: asked.append(at) or real(self, at))
    first, until = datetime(2000, 1, 1, tzinfo=UTC), datetime(2035, 1, 1, tzinfo=UTC)
    assert Schedule.of("* * * * * *", "Europe/Berlin").latest(first, until) == until
    assert Schedule.of("0 0 * * *", "UTC").latest(first, until) == until
    assert Schedule.of("0 0 * * *", "UTC").latest(first, until - SECOND) == until - DAY
    assert Schedule.of("0 0 1 1 *", "UTC").latest(first, first) == first
    assert Schedule.of("0 0 1 1 *", "UTC").latest(first + SECOND / 2, first + DAY) is None
    assert Schedule.of("0 0 1 1 *", "UTC").latest(until, first) is None
    assert len(asked) < 200


def test_what_threads_share_is_not_written_to() -> None:
    """Asking leaves no trace in the parsed expression: croniter itself would note where it is."""
    schedule = Schedule.of("0 0 1,15 * 1", "Europe/Berlin")
    shared = vars(_pattern(schedule.expression).parsed)
    before = deepcopy(shared)
    assert times(schedule.expression, "Europe/Berlin", *(datetime(y, 1, 1, tzinfo=UTC) for y in (2026, 2027)))
    assert shared == before


# Borders of summer time, found by walking


@dataclass(frozen=True)
class Border:
    """The first moment with another offset, and by how much the clock on the wall jumps there."""

    zone: str
    moment: datetime
    jump: timedelta

    @property
    def wall(self) -> datetime:
        """Before the jump."""
        return wall(self.moment, self.zone) - self.jump


def wall(moment: datetime, zone: str) -> datetime:
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def _walk(start: datetime, end: datetime, tick: timedelta) -> Iterator[datetime]:
    while start <= end:
        yield start
        start += tick


def _jump(before: datetime, after: datetime, zone: str) -> timedelta:
    return (wall(after, zone) - wall(before, zone)) - (after - before)


@lru_cache
def borders(zone: str) -> list[Border]:
    found = []
    for day, next_day in pairwise(
        _walk(datetime(2000, 1, 1, tzinfo=UTC), datetime(2035, 12, 31, tzinfo=UTC), DAY)
    ):
        if not _jump(day, next_day, zone):
            continue
        for hour, next_hour in pairwise(_walk(day, next_day, HOUR)):
            if not _jump(hour, next_hour, zone):
                continue
            for before, after in pairwise(_walk(hour, next_hour, MINUTE)):
                if jump := _jump(before, after, zone):
                    found.append(Border(zone, after, jump))
    return found


ANY_BORDER = st.sampled_from(ZONES).flatmap(lambda zone: st.sampled_from(borders(zone)))
GAP = ANY_BORDER.filter(lambda border: border.jump > timedelta(0))
FOLD = ANY_BORDER.filter(lambda border: border.jump < timedelta(0))
ANY_MOMENT = st.datetimes(datetime(2000, 1, 1), datetime(2035, 12, 31), timezones=st.just(UTC))


@st.composite
def places(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone and a whole minute: half of them near a border."""
    if draw(st.booleans()):
        return draw(st.sampled_from(ZONES)), draw(ANY_MOMENT).replace(second=0, microsecond=0)
    border = draw(ANY_BORDER)
    return border.zone, border.moment + draw(st.integers(-90, 90)) * MINUTE


def test_the_borders_are_what_they_should_be() -> None:
    """Both kinds in every zone, except where there was one change."""
    for zone in ZONES:
        assert {border.jump > timedelta(0) for border in borders(zone)} == {True, False}
    assert {border.jump for border in borders("Australia/Lord_Howe")} == {HOUR / 2, -HOUR / 2}
    assert DAY in {border.jump for border in borders("Pacific/Apia")}


@settings(examples(100))
@given(GAP, st.data())
def test_a_gap_is_due_once(border: Border, data: st.DataObject) -> None:
    """A fixed time that does not exist on that day is due once, at the first moment after the gap."""
    missing = border.wall + data.draw(st.integers(0, border.jump // MINUTE - 1)) * MINUTE
    around = border.moment - 5 * HOUR, border.moment + 5 * HOUR
    expression = f"{missing:%M %H %d %m} *"
    assert times(expression, border.zone, *around) == [border.moment]
    assert times(f"17 {expression}", border.zone, *around) == [border.moment]


@settings(examples(100))
@given(FOLD, st.data())
def test_a_fold_is_due_once(border: Border, data: st.DataObject) -> None:
    """A fixed time that comes twice on that day is due the first time."""
    before = data.draw(st.integers(1, -border.jump // MINUTE))
    first = border.moment - before * MINUTE
    around = border.moment - 5 * HOUR, border.moment + 5 * HOUR
    assert times(f"{wall(first, border.zone):%M %H} * * *", border.zone, *around) == [first]
    assert times(f"7 {wall(first, border.zone):%M %H} * * *", border.zone, *around) == [first + 7 * SECOND]


@settings(examples(100))
@given(ANY_BORDER, st.sampled_from([1, 5, 15]))
def test_an_interval_is_a_real_one(border: Border, minutes: int) -> None:
    """Every so many minutes is that, before, in and after a gap or a fold."""
    due = times(f"*/{minutes} * * * *", border.zone, border.moment - 3 * HOUR, border.moment + 3 * HOUR)
    assert due[0] <= border.moment - 3 * HOUR + minutes * MINUTE
    assert {later - earlier for earlier, later in pairwise(due)} == {minutes * MINUTE}


# Against a reference that knows nothing of croniter

LAST = "last"


@dataclass(frozen=True)
class Field:
    """A part of an expression, and the values that it means."""

    text: str
    values: frozenset[object]

    @property
    def wild(self) -> bool:
        return any(item.startswith("*") for item in self.text.split(","))


@dataclass(frozen=True)
class Expression:
    second: Field | None
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        fields = (self.second, self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(field.text for field in fields if field)

    @property
    def is_interval(self) -> bool:
        return self.minute.wild or self.hour.wild

    def matches(self, at: datetime) -> bool:
        return (
            at.second in (self.second.values if self.second else (0,))
            and at.minute in self.minute.values
            and at.hour in self.hour.values
            and at.month in self.month.values
            and self._day_matches(at)
        )

    def _day_matches(self, at: datetime) -> bool:
        last = (at + DAY).month != at.month
        day = at.day in self.day.values or (last and LAST in self.day.values)
        weekday = at.isoweekday() % 7 in self.weekday.values
        if self._means_all(self.day, self.weekday, 31) or self._means_all(self.weekday, self.day, 7):
            return day and weekday
        return day or weekday

    @staticmethod
    def _means_all(field: Field, other: Field, size: int) -> bool:
        """croniter's rule: a field that lists everything is a wildcard only if the other one has a star."""
        return field.text == "*" or (len(field.values) == size and "*" in other.text)


@st.composite
def items(draw: st.DrawFn, low: int, high: int, names: tuple[str, ...] = ()) -> Field:
    """One value, a range or a step."""

    def named(value: int) -> str:
        return names[value - low] if value - low < len(names) and draw(st.booleans()) else str(value)

    first = draw(st.integers(low, high - 1))
    last = draw(st.integers(first + 1, high))
    step = draw(st.integers(2, high - low))
    return draw(
        st.sampled_from(
            [
                Field(named(first), frozenset({first})),
                Field(f"{named(first)}-{named(last)}", frozenset(range(first, last + 1))),
                Field(f"{named(first)}-{named(last)}/{step}", frozenset(range(first, last + 1, step))),
                Field(f"{named(first)}/{step}", frozenset(range(first, high + 1, step))),
                Field(f"*/{step}", frozenset(range(low, high + 1, step))),
            ]
        )
    )


def lists(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[Field]:
    item = items(low, high, names)
    return item | st.lists(item, min_size=2, max_size=3).map(
        lambda many: Field(
            ",".join(field.text for field in many),
            frozenset().union(*(field.values for field in many)),
        )
    )


def star(low: int, high: int) -> st.SearchStrategy[Field]:
    return st.just(Field("*", frozenset(range(low, high + 1))))


def one(values: list[int]) -> st.SearchStrategy[Field]:
    return st.sampled_from(values).map(lambda value: Field(str(value), frozenset({value})))


MONTHS = ("jan", "feb", "MAR", "Apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "MON", "tue", "wed", "Thu", "fri", "sat")
SEVEN = st.sampled_from(
    [
        Field("7", frozenset({0})),
        Field("5-7", frozenset({5, 6, 0})),
        Field("1-7/2", frozenset({1, 3, 5, 0})),
        Field("Fri-Sun", frozenset({5, 6, 0})),
        Field("3,7", frozenset({3, 0})),
        Field("0-7", frozenset(range(7))),
    ]
)
LAST_DAY = st.sampled_from([Field("L", frozenset({LAST})), Field("1,l", frozenset({1, LAST}))])
HOURS = one([0, 1, 2, 3, 23]) | star(0, 23) | lists(0, 23)
EXPRESSIONS = st.builds(
    Expression,
    second=st.none(),
    minute=one([0, 15, 30]) | star(0, 59) | lists(0, 59),
    hour=HOURS,
    day=star(1, 31) | star(1, 31) | lists(1, 31) | LAST_DAY,
    month=star(1, 12) | star(1, 12) | lists(1, 12, MONTHS),
    weekday=star(0, 6) | star(0, 6) | lists(0, 6, WEEKDAYS) | SEVEN,
)
WITH_SECONDS = st.builds(
    Expression,
    second=one([0, 59]) | lists(0, 59),
    minute=one([0, 15, 30]) | lists(0, 59),
    hour=HOURS,
    day=star(1, 31) | lists(1, 31),
    month=star(1, 12),
    weekday=star(0, 6) | SEVEN,
)


def reference(
    expression: Expression, zone: str, start: datetime, end: datetime, tick: timedelta
) -> list[datetime]:
    """Every tick of real time whose wall time matches and, where it is to be due once, did not come before;
    and the first one after a gap that would have matched."""
    due = []
    latest_wall = datetime.min
    for before, moment in pairwise(_walk(start - 3 * HOUR, end, tick)):
        shown = wall(moment, zone)
        repeated = shown <= latest_wall
        latest_wall = max(latest_wall, shown)
        if moment <= start:
            continue
        matches = expression.matches(shown) and (expression.is_interval or not repeated)
        if not matches and not expression.hour.wild and _jump(before, moment, zone) > timedelta(0):
            missing = _walk(wall(before, zone) + tick, shown - tick, tick)
            matches = any(expression.matches(at) for at in missing)
        if matches:
            due.append(moment)
    return due


def accepted(expression: Expression) -> bool:
    """Not 30 February, and not too long."""
    try:
        normalise(expression.text)
    except InvalidCron as refusal:
        if "never fires" in str(refusal) or "characters" in str(refusal):
            return False
        raise
    return True


@settings(examples(250))
@given(EXPRESSIONS.filter(accepted), places())
def test_the_minutes_that_are_due(expression: Expression, place: tuple[str, datetime]) -> None:
    """As walking through them shows, one by one."""
    zone, around = place
    window = around - 4 * HOUR, around + 4 * HOUR
    assert times(expression.text, zone, *window) == reference(expression, zone, *window, MINUTE)


@settings(examples(25))
@given(WITH_SECONDS.filter(accepted), ANY_BORDER)
def test_the_seconds_that_are_due(expression: Expression, border: Border) -> None:
    """As walking through them shows, one by one."""
    assume(border.jump < DAY)
    window = border.moment - 65 * MINUTE, border.moment + 65 * MINUTE
    assert times(expression.text, border.zone, *window) == reference(expression, border.zone, *window, SECOND)


@settings(examples(100))
@given(
    EXPRESSIONS.filter(accepted), places(), st.lists(st.integers(-(10**11), 10**11), min_size=2, max_size=8)
)
def test_the_next_one_is_later(
    expression: Expression, place: tuple[str, datetime], offsets: list[int]
) -> None:
    """Strictly; and a later moment has no earlier one."""
    zone, around = place
    schedule = Schedule.of(expression.text, zone)
    moments = sorted(around + timedelta(microseconds=offset) for offset in offsets)
    due = [schedule.next_after(moment) for moment in moments]
    assert all(next_one > moment for moment, next_one in zip(moments, due, strict=True))  # type: ignore[operator]
    assert due == sorted(due)  # type: ignore[type-var]


@settings(examples(100))
@given(EXPRESSIONS.filter(accepted), places(), st.integers(0, 40_000), st.integers(0, 40_000))
def test_the_latest_is_the_last_of_a_walk(
    expression: Expression, place: tuple[str, datetime], before: int, after: int
) -> None:
    """Both ends included."""
    zone, around = place
    schedule = Schedule.of(expression.text, zone)
    first, until = around - before * SECOND, around + after * SECOND
    walked = times(expression.text, zone, first - SECOND, until)
    assert schedule.latest(first, until) == (walked[-1] if walked else None)
    for due in walked[-1:]:
        assert schedule.latest(first, due) == schedule.latest(due, until) == due
        assert schedule.latest(due + SECOND, until) is None
