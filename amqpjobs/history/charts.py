"""Charts as SVG, for a page that needs nothing else: no script, no file, no network. Colours are the page's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 860, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 28
NAMED = 6
"""Dots of a scatter chart that have their names beside them."""


class Line(NamedTuple):
    """A series with a name; None: nothing there. `colour` is a CSS class: c1, c2…"""

    name: str
    colour: str
    values: Sequence[float | None]


class Dot(NamedTuple):
    """A point of a scatter chart."""

    name: str
    x: float
    y: float


def bars(labels: Sequence[str], parts: Sequence[Line], title: str) -> str:
    """Stacked bars, one a label."""
    tops = [sum(part.values[at] or 0 for part in parts) for at in range(len(labels))]
    high = _nice(max(tops, default=0))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    drawn = _axis([high * share / 4 for share in range(5)], lambda value: _down(value / high))
    for at, label in enumerate(labels):
        below = 0.0
        for part in parts:
            value = part.values[at] or 0
            y, under = _down((below + value) / high), _down(below / high)
            below += value
            told = f"{label}: {_short(value)} {part.name}"
            drawn.append(
                f'<rect class="{part.colour}" x="{LEFT + at * step + step * 0.1:.1f}" y="{y:.1f}"'
                f' width="{step * 0.8:.1f}" height="{max(0.0, under - y):.1f}"><title>{escape(told)}</title></rect>'
            )
    return _svg(drawn + _labels(labels, step), title, parts)


def lines(labels: Sequence[str], series: Sequence[Line], title: str, unit: str) -> str:
    """Lines over a logarithmic axis."""
    values = [value for line in series for value in line.values if value is not None and value > 0]
    low, high = _decades(values)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    drawn = _axis([10.0**power for power in range(low, high + 1)], lambda value: _log_down(value, low, high), unit)
    for line in series:
        points = [
            None if value is None or value <= 0 else (LEFT + (at + 0.5) * step, _log_down(value, low, high))
            for at, value in enumerate(line.values)
        ]
        drawn.append(f'<path class="line {line.colour}" d="{_path(points)}"/>')
        for place, value, label in zip(points, line.values, labels, strict=True):
            if place is not None and value is not None:
                told = escape(f"{label}: {line.name} {_short(value)} {unit}")
                drawn.append(
                    f'<circle class="{line.colour}" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="2.5">'
                    f"<title>{told}</title></circle>"
                )
    return _svg(drawn + _labels(labels, step), title, series)


def scatter(dots: Sequence[Dot], title: str, x_name: str, y_name: str) -> str:
    """Dots over two logarithmic axes; some of the greatest are named, where there is room."""
    known = [dot for dot in dots if dot.x > 0 and dot.y > 0]
    (x_low, x_high), (y_low, y_high) = _decades([dot.x for dot in known]), _decades([dot.y for dot in known])
    drawn = _axis([10.0**power for power in range(y_low, y_high + 1)], lambda value: _log_down(value, y_low, y_high))
    for power in range(x_low, x_high + 1):
        x = _log_right(10.0**power, x_low, x_high)
        drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        drawn.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" class="middle">{_short(10.0**power)}</text>')
    named: list[tuple[float, float]] = []
    for dot in sorted(known, key=lambda dot: dot.x + dot.y, reverse=True):
        x, y = _log_right(dot.x, x_low, x_high), _log_down(dot.y, y_low, y_high)
        told = escape(f"{dot.name}: {x_name} {_short(dot.x)}, {y_name} {_short(dot.y)}")
        drawn.append(f'<circle class="c1" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{told}</title></circle>')
        if len(named) < NAMED and not any(abs(x - ox) < 110 and abs(y - oy) < 14 for ox, oy in named):
            named.append((x, y))
            side = ' class="end"' if x > WIDTH * 0.75 else ""
            drawn.append(f'<text x="{x + (-7 if side else 7):.1f}" y="{y - 5:.1f}"{side}>{escape(dot.name)}</text>')
    drawn.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" class="end">{escape(x_name)} →</text>')
    drawn.append(f'<text x="{LEFT + 4}" y="{TOP + 8}">↑ {escape(y_name)}</text>')
    return _svg(drawn, title, [])


def heat(rows: Sequence[str], cells: Sequence[Sequence[float]], title: str) -> str:
    """A table of hours whose cells are the darker, the more there is."""
    most = max((value for row in cells for value in row), default=0) or 1
    width, height = (WIDTH - LEFT - RIGHT) / 24, 24
    drawn = []
    for line, (name, row) in enumerate(zip(rows, cells, strict=True)):
        y = TOP + line * height
        drawn.append(f'<text x="{LEFT - 6}" y="{y + 16}" class="end">{escape(name)}</text>')
        for hour, value in enumerate(row):
            told = escape(f"{name} {hour:02}:00: {_short(value)} an hour")
            drawn.append(
                f'<rect class="c1" fill-opacity="{0.06 + 0.94 * value / most:.3f}" x="{LEFT + hour * width:.1f}"'
                f' y="{y}" width="{width - 2:.1f}" height="{height - 2}"><title>{told}</title></rect>'
            )
    base = TOP + len(rows) * height + 14
    drawn += [
        f'<text x="{LEFT + (hour + 0.5) * width:.1f}" y="{base}" class="middle">{hour:02}</text>'
        for hour in range(0, 24, 3)
    ]
    return _svg(drawn, title, [], base + 6)


def _svg(drawn: Sequence[str], title: str, legend: Sequence[Line], height: int = HEIGHT) -> str:
    key, x = [], LEFT
    for each in legend:
        key.append(f'<rect class="{each.colour}" x="{x}" y="0" width="10" height="10"/>')
        key.append(f'<text x="{x + 14}" y="9">{escape(each.name)}</text>')
        x += 34 + 7 * len(each.name)
    top = -16 if legend else 0
    frame = f'viewBox="0 {top} {WIDTH} {height - top}" role="img" aria-label="{escape(title)}"'
    moved = f'<g transform="translate(0 {top})">{"".join(key)}</g>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>{moved}{"".join(drawn)}</svg>'


def _axis(ticks: Sequence[float], place: Callable[[float], float], unit: str = "") -> list[str]:
    drawn = []
    for tick in ticks:
        y = place(tick)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="end">{_short(tick)} {escape(unit)}</text>')
    return drawn


def _labels(labels: Sequence[str], step: float) -> list[str]:
    every = max(1, math.ceil(len(labels) / 16))
    return [
        f'<text x="{LEFT + (at + 0.5) * step:.1f}" y="{HEIGHT - BOTTOM + 14}" class="middle">{escape(label)}</text>'
        for at, label in enumerate(labels)
        if at % every == 0
    ]


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """The line through the points, broken where there is none."""
    words, drawing = [], False
    for point in points:
        if point is not None:
            words.append(f"{'L' if drawing else 'M'}{point[0]:.1f} {point[1]:.1f}")
        drawing = point is not None
    return "".join(words)


def _down(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _log_down(value: float, low: int, high: int) -> float:
    return _down((math.log10(value) - low) / (high - low))


def _log_right(value: float, low: int, high: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(value) - low) / (high - low)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten that hold all values."""
    if not values:
        return 0, 1
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _nice(value: float) -> float:
    """A round figure that is not less."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def _short(value: float) -> str:
    """A figure with a thousand's letter: 1.2M, 34k, 0.5."""
    for letter, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
