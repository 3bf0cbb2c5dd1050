"""Times against sizes on logarithmic axes, as an SVG file."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 70, 40, 30, 50
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#7f7f7f")


def exponent(points: Points) -> float:
    """The slope of a straight line through log time over log size, by least squares."""
    sizes, times = np.log(np.array(points)).T
    return float(np.polyfit(sizes, times, 1)[0])


def growth_chart(title: str, axis: str, series: Mapping[str, Points]) -> str:
    """A chart with a line a series, its fitted exponent beside its name."""
    everything = [point for points in series.values() for point in points]
    sizes, times = zip(*everything, strict=True)
    x_range = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))
    y_range = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))

    def x(size: float) -> float:
        return LEFT + (math.log10(size) - x_range[0]) / (x_range[1] - x_range[0]) * (WIDTH - LEFT - RIGHT)

    def y(time_s: float) -> float:
        share = (math.log10(time_s) - y_range[0]) / (y_range[1] - y_range[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [_text(WIDTH / 2, 18, title, "middle"), _text(WIDTH / 2, HEIGHT - 10, axis, "middle")]
    for power in range(x_range[0], x_range[1] + 1):
        parts.append(_line(x(10**power), TOP, x(10**power), HEIGHT - BOTTOM))
        parts.append(_text(x(10**power), HEIGHT - BOTTOM + 16, f"{10**power:,}", "middle"))
    for power in range(y_range[0], y_range[1] + 1):
        parts.append(_line(LEFT, y(10**power), WIDTH - RIGHT, y(10**power)))
        parts.append(_text(LEFT - 6, y(10**power) + 4, f"{10.0**power:g} s", "end"))
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x(size):.1f},{y(time_s):.1f}" for size, time_s in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(s):.1f}" cy="{y(t):.1f}" r="3" fill="{colour}"/>' for s, t in points]
        label = f"{name}: size^{exponent(points):.2f}, at the end ^{exponent(points[-2:]):.2f}"
        parts.append(_text(LEFT + 10, TOP + 16 + 16 * number, label, "start", colour))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
