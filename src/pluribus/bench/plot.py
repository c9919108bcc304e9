"""Curves as a picture: one SVG file, drawn by hand so that no plotting library is needed.

An axis is logarithmic when its values span more than a factor of ``LOG_FROM``, else linear from zero. Points are
marked, because that is what was measured; the lines between them only lead the eye. Curves over different sizes, or in
different units, get a picture each, in one file: a row for each size, a column for each unit; below each other if there
is one size only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from ..core.errors import BadInput

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 90, 210, 40, 60
LOG_FROM = 20.0
TICKS = 6
TINY = 1e-9
"""Smaller than any measured value: only errors of rounding are as small."""
COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93", "#00798c", "#7f5539", "#5c5c5c", "#e377c2")

Scale = tuple[Callable[[float], float], list[float]]
"""A function from a value to its place on the axis (0 to 1), and the values that are marked."""


def draw(title: str, curves: Sequence[dict[str, Any]]) -> str:
    """The SVG text of curves as a report has them (``report.Curve``)."""
    if not any(curve["points"] for curve in curves):
        raise BadInput("there is no curve to draw: use --sweep, or a bench that measures several sizes")
    sizes = list(dict.fromkeys(curve["x"] for curve in curves))
    units = list(dict.fromkeys(curve["unit"] for curve in curves))
    grid = [[[curve for curve in curves if (curve["x"], curve["unit"]) == (x, unit)] for unit in units] for x in sizes]
    if len(sizes) == 1:
        grid = [[panel] for panel in grid[0]]
    if len(grid) == len(grid[0]) == 1:
        return _panel(title, curves)
    width, height = WIDTH * len(grid[0]), HEIGHT * len(grid)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">']
    for row, panels in enumerate(grid):
        for column, some in enumerate(panels):
            if some:
                inner = _panel(title, some)
                parts.append(inner.replace("<svg ", f'<svg x="{WIDTH * column}" y="{HEIGHT * row}" ', 1).rstrip())
    return "\n".join([*parts, "</svg>", ""])


def _panel(title: str, curves: Sequence[dict[str, Any]]) -> str:
    """One picture, of curves that share their axes."""
    xs = [x for curve in curves for x, _ in curve["points"]]
    ys = [y for curve in curves for _, y in curve["points"]]
    x_scale, y_scale = _scale(xs), _scale(ys)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, TOP - 16, title, size=15),
        *_axes(x_scale, y_scale),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, curves[0]["x"], anchor="middle"),
        f'<g transform="rotate(-90 20 {HEIGHT / 2})">{_text(20, HEIGHT / 2, curves[0]["unit"], anchor="middle")}</g>',
    ]
    for at, curve in enumerate(curves):
        parts += _line(curve, _colour(at), x_scale, y_scale)
        y = TOP + 8 + 20 * at
        parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 8}" width="12" height="4" fill="{_colour(at)}"/>')
        parts.append(_text(WIDTH - RIGHT + 32, y, curve["curve"]))
    return "\n".join([*parts, "</svg>", ""])


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


def _line(curve: dict[str, Any], colour: str, x_scale: Scale, y_scale: Scale) -> list[str]:
    places = [(_x(x_scale, x), _y(y_scale, y)) for x, y in curve["points"]]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *marks]


def _axes(x_scale: Scale, y_scale: Scale) -> list[str]:
    parts = []
    for value in x_scale[1]:
        x = _x(x_scale, value)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>')
        parts.append(_text(x, HEIGHT - BOTTOM + 18, _shown(value), anchor="middle"))
    for value in y_scale[1]:
        y = _y(y_scale, value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(_text(LEFT - 8, y + 4, _shown(value), anchor="end"))
    return parts


def _x(scale: Scale, value: float) -> float:
    return LEFT + scale[0](value) * (WIDTH - LEFT - RIGHT)


def _y(scale: Scale, value: float) -> float:
    return HEIGHT - BOTTOM - scale[0](value) * (HEIGHT - TOP - BOTTOM)


def _scale(values: Sequence[float]) -> Scale:
    low, high = min(values), max(values)
    if low > TINY and high / low >= LOG_FROM:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        ticks = [10.0**power for power in range(first, last + 1)]
        return lambda value: (math.log10(value) - first) / (last - first), ticks
    step = _step((high - min(low, 0.0)) / TICKS)
    first, last = math.floor(min(low, 0.0) / step), max(math.ceil(high / step), 1)
    ticks = [step * number for number in range(first, last + 1)]
    return lambda value: (value - ticks[0]) / (ticks[-1] - ticks[0]), ticks


def _step(rough: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    if rough <= TINY:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next((nice * power for nice in (1, 2, 5) if nice * power >= rough), 10 * power)


def _shown(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g} {letter}"
    return f"{value:.6g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
