"""The benchmark's own arithmetic, and its picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmarks import measures, report
from tests.benchmarks.figures import Figure, Point, Target
from tests.benchmarks.milestones import STEP, Passed, first_and_last_rate, furthest
from tests.benchmarks.observer import Sample, between
from tests.benchmarks.picture import picture
from tests.benchmarks.record import Record
from tests.benchmarks.rounds import alternate
from tests.benchmarks.svg import round_top
from tests.benchmarks.timing import percentile

SVG = "{http://www.w3.org/2000/svg}"


def drain_figure(**changes: object) -> Figure:
    given = {
        "measure": "drain",
        "unit": "msg/s",
        "ours": [60.0, 90.0, 50.0],
        "reference": [100.0, 100.0, 100.0],
        "reference_name": "plain loop",
        "target": Target(must=0.6, aim=0.8),
        "database": "PostgreSQL",
    }
    return Figure(**{**given, **changes})  # type: ignore[arg-type]


def test_ratio_is_the_median_of_the_rounds():
    """Both sides of a round are divided first: what drifts between rounds falls out."""
    drifting = drain_figure(ours=[60.0, 10.0, 300.0], reference=[100.0, 20.0, 400.0])
    assert drifting.ratios == [0.6, 0.5, 0.75]
    assert drifting.ratio == 0.6


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (drain_figure(), True),
        (drain_figure(ours=[59.0, 59.0, 59.0]), False),
        (drain_figure(target=Target(must=0.6, aim=0.5, at_least=False), ours=[61.0] * 3), False),
        (drain_figure(target=Target(must=0, aim=0, at_least=False, of_ratio=False), ours=[0.0] * 3), True),
        (drain_figure(target=None), None),
    ],
)
def test_target_is_met_or_not(figure, met):
    """A target bounds the ratio or the value, from below or from above."""
    assert figure.met is met


def test_nothing_is_promised_for_other_databases():
    """Targets are PostgreSQL's: elsewhere a figure stands alone."""
    assert drain_figure().on("SQLite", with_targets=False).met is None
    assert drain_figure().on("PostgreSQL", with_targets=True).met is True


def test_record_comes_back_as_it_was_saved(tmp_path):
    """The picture and the table for the docs are made from the file of a run."""
    figures = [drain_figure(point=Point(curve="batch", x=50)), drain_figure(target=None, reference=[])]
    Record(figures=figures, about={"seconds": 3}).save(tmp_path / "bench.json")
    loaded = Record.load(tmp_path / "bench.json")
    assert list(loaded.figures) == figures
    assert loaded.about == {"seconds": 3}


def test_runs_on_several_databases_join():
    """Their figures follow each other; load and files are compared from the first start to the last end."""

    def part(database: str, before: float, after: float) -> Record:
        about = {
            "seconds": 5,
            "source": {"before": "a", "after": "b"},
            "load": {"before": before, "after": after},
            "databases": {database: {}},
            "failed": [database],
        }
        return Record(figures=[drain_figure(database=database)], about=about)

    joined = part("PostgreSQL", 1.0, 2.0).joined(part("SQLite", 3.0, 4.0))
    assert [figure.database for figure in joined.figures] == ["PostgreSQL", "SQLite"]
    assert joined.about["load"] == {"before": 1.0, "after": 4.0}
    assert joined.about["seconds"] == 10
    assert list(joined.about["databases"]) == joined.about["failed"] == ["PostgreSQL", "SQLite"]


def test_table_says_whether_targets_were_met():
    """A line for each figure, a part for each database."""
    text = report.table([drain_figure(), drain_figure(database="SQLite", target=None)])
    assert "PostgreSQL" in text.splitlines()[0]
    assert "0.60" in text.splitlines()[2]
    assert text.splitlines()[2].endswith("≥ 0.6 (aim 0.8)  yes")
    assert report.markdown([drain_figure()]).splitlines()[-1].endswith("| ≥ 0.6 (aim 0.8) | yes |")


def test_percentile_of_a_hundred_and_one():
    """With one value at each percent, a percentile is that value."""
    values = list(range(101))
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99


def test_rate_leaves_out_start_and_end():
    """A second of start before the first messages, and a slow last batch, change nothing."""
    samples = [Sample(0.0, 0, 0.0), Sample(1.0, 0, 0.5)]
    samples += [Sample(1.0 + step, 100 * step, 0.5 + 0.01 * step) for step in range(1, 10)]
    samples.append(Sample(60.0, 1_000, 9.0))
    drain = between(samples, 1_000)
    assert drain.rate == pytest.approx(100)
    assert drain.cpu == pytest.approx(100)


def test_rate_of_nothing_is_refused():
    """Two samples that show no progress give no rate."""
    with pytest.raises(ValueError, match="too fast"):
        between([Sample(0.0, 0, 0.0), Sample(1.0, 1_000, 0.0)], 1_000)


@pytest.mark.parametrize("done", [0, STEP, 7 * STEP + 3, 50 * STEP])
def test_furthest_milestone_is_found(done):
    """From any milestone that is known, and to within one step."""
    for known in {0, done // STEP * STEP}:
        assert furthest(lambda number: number <= done, known, 50 * STEP) == done // STEP * STEP


def test_first_and_last_seconds_are_compared():
    """A drain that falls to a half in its middle shows in the two windows."""
    samples = [Passed(float(at), min(at, 30) * 100 + max(0, at - 30) * 50) for at in range(61)]
    assert first_and_last_rate(samples, 5) == (100, 50)
    with pytest.raises(ValueError, match="over within"):
        first_and_last_rate(samples[:8], 5)


def test_sides_take_turns():
    """Each second round goes backwards, so no side always follows the other."""
    order = []
    sides = {name: lambda name=name: order.append(name) or name for name in "ab"}
    assert alternate(sides, 2) == {"a": ["a", "a"], "b": ["b", "b"]}
    assert order == ["a", "b", "b", "a"]


@pytest.mark.parametrize(("value", "top"), [(1.0, 1), (1.05, 1.2), (0.9, 1), (23_000, 30_000), (61, 80)])
def test_axis_ends_at_a_round_value(value, top):
    """Above the greatest value, and not far above it."""
    assert round_top(value) == pytest.approx(top)


def test_picture_has_both_curves_and_no_script():
    """Well-formed SVG: a title, a line for each curve, a mark for each point, for light and dark mode."""
    batches = [drain_figure(point=Point(curve="batch", x=size)) for size in (500, 1, 50)]
    history = [
        drain_figure(point=Point(curve="history", x=size), database=database)
        for database in ("PostgreSQL", "SQLite")
        for size in (10_000, 1_000_000)
    ]
    text = picture([*batches, drain_figure(), *history])
    root = ElementTree.fromstring(text)
    assert root.findtext(f"{SVG}title")
    lines = [len(line.attrib["points"].split()) for line in root.iter(f"{SVG}polyline")]
    assert lines == [3, 3, 3, 3]
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert {"500", "1 million", "one worker", "SQLite"} <= set(words)
    assert "prefers-color-scheme: dark" in text
    assert "<script" not in text


def test_picture_without_curves_says_what_to_run():
    """A run of other measures has nothing to draw."""
    with pytest.raises(SystemExit, match="batches"):
        picture([drain_figure()])


def test_every_measure_is_there():
    """Each name that can be asked for is a module, and each module can be asked for."""
    folder = Path(measures.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(measures.NAMES)
    assert all(importlib.util.find_spec(f"tests.benchmarks.measures.{name}") for name in measures.NAMES)
