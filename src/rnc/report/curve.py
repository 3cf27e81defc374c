"""A curve as an SVG file, drawn without a library: a few methods over a few sizes."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from rnc.report.figures import RUN_COLORS

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 50, 50
_GREY = "#777777"


class Point(NamedTuple):
    """A mean and how far around it values spread."""

    x: float
    y: float
    spread: float = 0.0


def curve_svg(curves: Mapping[str, Sequence[Point]], x_title: str, y_title: str) -> str:
    """The picture of some curves by name. The x axis is logarithmic, so x must be positive.

    >>> picture = curve_svg({"RnC": [Point(8, 2.9, 0.1), Point(16, 2.8)]}, "batch", "MAE")
    >>> picture.count("<circle")  # two points and the legend
    3
    """
    points = [point for curve in curves.values() for point in curve if math.isfinite(point.y)]
    if not points:
        raise ValueError("curve_svg needs at least one point with a finite y; got none.")
    ticks = nice_ticks(
        min(point.y - point.spread for point in points),
        max(point.y + point.spread for point in points),
    )
    axes = _Axes(sorted({point.x for point in points}), ticks)
    parts = [*axes.draw(x_title, y_title)]
    for number, (name, curve) in enumerate(curves.items()):
        known = [point for point in curve if math.isfinite(point.y)]
        parts += _draw_curve(axes, known, name, number)
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    background = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return "\n".join([head, background, *parts, "</svg>", ""])


class _Axes:
    """From numbers to places in the picture."""

    def __init__(self, xs: Sequence[float], ticks: Sequence[float]) -> None:
        self.xs, self.ticks = xs, ticks

    def x(self, value: float) -> float:
        low, high = math.log(self.xs[0]), math.log(self.xs[-1])
        share = 0.5 if high == low else (math.log(value) - low) / (high - low)
        return round(_LEFT + 12 + share * (_WIDTH - _LEFT - _RIGHT - 24), 1)

    def y(self, value: float) -> float:
        share = (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)

    def draw(self, x_title: str, y_title: str) -> list[str]:
        bottom, middle = _HEIGHT - _BOTTOM, (_TOP + _HEIGHT - _BOTTOM) / 2
        parts = []
        for tick in self.ticks:
            y = self.y(tick)
            line = f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#e0e0e0"/>'
            parts += [line, _text(_LEFT - 8, y + 4, f"{tick:g}", "end", _GREY)]
        parts += [_text(self.x(x), bottom + 18, f"{x:g}", "middle", _GREY) for x in self.xs]
        parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, x_title, "middle"))
        turned = _text(0, 0, y_title, "middle")
        parts.append(f'<g transform="translate(16 {middle}) rotate(-90)">{turned}</g>')
        return parts


def _draw_curve(axes: _Axes, points: Sequence[Point], name: str, number: int) -> list[str]:
    color = RUN_COLORS[number % len(RUN_COLORS)]
    places = [(axes.x(point.x), axes.y(point.y)) for point in points]
    path = " ".join(f"{x},{y}" for x, y in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>']
    parts += [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color}"/>' for x, y in places]
    for point, (x, _) in zip(points, places, strict=True):
        if point.spread > 0:
            low, high = axes.y(point.y - point.spread), axes.y(point.y + point.spread)
            parts.append(f'<line x1="{x}" x2="{x}" y1="{low}" y2="{high}" stroke="{color}"/>')
    left = round(_LEFT + number * (_WIDTH - _LEFT - _RIGHT) / 3)
    parts.append(f'<circle cx="{left + 4}" cy="24" r="4" fill="{color}"/>')
    return [*parts, _text(left + 14, 28, name, "start")]


def _text(x: float, y: float, text: str, anchor: str, color: str = "#222222") -> str:
    place = f'x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}" font-size="13"'
    return f"<text {place}>{escape(text)}</text>"


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that span an interval, about so many.

    >>> nice_ticks(2.3, 5.9), nice_ticks(0.412, 0.433), nice_ticks(3, 3)
    ([2.0, 3.0, 4.0, 5.0, 6.0], [0.41, 0.415, 0.42, 0.425, 0.43, 0.435], [2.8, 2.9, 3.0, 3.1, 3.2])
    """
    if high <= low:
        low, high = low - 0.05 * abs(low), high + max(1.0, abs(high)) * 0.05
    rough = (high - low) / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    digits = max(0, -math.floor(math.log10(step)) + 1)
    return [round(k * step, digits) for k in range(first, last + 1)]
