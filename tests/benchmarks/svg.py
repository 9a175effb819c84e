"""Lines over two axes, as SVG by hand: no library, no script, readable in light and in dark mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

INK = "#1f2933"
PAPER = "#ffffff"
DARK_INK = "#e4e7eb"
DARK_PAPER = "#14191f"
COLOURS = (("#0b69a3", "#62b0e8"), ("#c2410c", "#fb9a5a"), ("#2f855a", "#68d391"))
"""Of the lines, for light and for dark mode."""
LEFT, RIGHT, TOP, BOTTOM = 64, 40, 58, 82
"""Room around the lines of a panel, for its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]
    """Each x is one of the panel's ``ticks``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    ticks: Sequence[tuple[float, str]]
    """Places on the x axis, evenly set, with their words."""
    lines: Sequence[Line]
    show: Callable[[float], str]
    """A value of the y axis in words."""


def drawing(title: str, panels: Sequence[Panel], *, width: int = 460, height: int = 340) -> str:
    """The panels side by side."""
    whole = width * len(panels)
    size = f'viewBox="0 0 {whole} {height}" width="{whole}" height="{height}"'
    font = 'font-family="system-ui, sans-serif" font-size="12"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {font}>',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="paper" width="{whole}" height="{height}"/>',
            *(
                f'<g transform="translate({width * number} 0)">\n{_panel(panel, width, height)}\n</g>'
                for number, panel in enumerate(panels)
            ),
            "</svg>\n",
        ]
    )


def round_top(value: float) -> float:
    """The next of 1, 1.2, 1.6, 2, 3, 4, 6, 8, 10 times a power of ten: where an axis may end."""
    power = 1.0
    while power * 10 < value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10) if step * power >= value)


def _panel(panel: Panel, width: int, height: int) -> str:
    inner_width, inner_height = width - LEFT - RIGHT, height - TOP - BOTTOM
    top = round_top(max((y for line in panel.lines for _, y in line.points), default=1.0))
    places = [x for x, _ in panel.ticks]
    step = inner_width / max(1, len(places) - 1)

    def across(x: float) -> float:
        return LEFT + places.index(x) * step

    def down(y: float) -> float:
        return TOP + inner_height * (1 - y / top)

    parts = [_text(LEFT, 26, panel.title, "start", css="title"), _text(LEFT, 46, panel.y_label, "start")]
    for quarter in range(5):
        y = top * quarter / 4
        parts.append(f'<path class="grid" d="M{LEFT} {down(y):.1f}h{inner_width}"/>')
        parts.append(_text(LEFT - 8, down(y) + 4, panel.show(y), "end"))
    for x, words in panel.ticks:
        parts.append(_text(across(x), TOP + inner_height + 18, words, "middle"))
    parts.append(_text(LEFT + inner_width / 2, TOP + inner_height + 38, panel.x_label, "middle"))
    for number, line in enumerate(panel.lines):
        at = [(across(x), down(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline class="line c{number}" points="{path}"/>')
        parts += [f'<circle class="dot c{number}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in at]
    return "\n".join([*parts, *_legend(panel.lines, height)])


def _legend(lines: Sequence[Line], height: int) -> list[str]:
    parts, x = [], float(LEFT)
    for number, line in enumerate(lines):
        parts.append(f'<circle class="dot c{number}" cx="{x + 4:.1f}" cy="{height - 20}" r="4"/>')
        parts.append(_text(x + 14, height - 16, line.name, "start"))
        x += 34 + 6.6 * len(line.name)
    return parts


def _text(x: float, y: float, words: str, anchor: str, *, css: str = "words") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _style() -> str:
    light, dark = zip(*COLOURS, strict=True)
    rules = [
        ".title { font-size: 15px; font-weight: 600 }",
        ".grid { stroke: currentColor; stroke-opacity: .16 }",
        ".words, .title { fill: currentColor }",
        ".line { fill: none; stroke-width: 2.5; stroke-linejoin: round }",
        _colours(INK, PAPER, light),
        f"@media (prefers-color-scheme: dark) {{ {_colours(DARK_INK, DARK_PAPER, dark)} }}",
    ]
    return "\n".join(rules)


def _colours(ink: str, paper: str, lines: Sequence[str]) -> str:
    return " ".join(
        [
            f"svg {{ color: {ink} }} .paper {{ fill: {paper} }}",
            *(f".line.c{n} {{ stroke: {c} }} .dot.c{n} {{ fill: {c} }}" for n, c in enumerate(lines)),
        ]
    )
