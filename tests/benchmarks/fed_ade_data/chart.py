"""Accuracy by rate: the fixed rates as a line, the adaptive ones where their mean rate lies."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from server_bridge.demo.charts.svg import GRID_COLOUR, INK, MUTED, Drawing, Scale
from tests.benchmarks.fed_ade_data.arms import FIXED_RATES, NONE, PUBLISHED, SCALED, Result, by_setting

WIDTH, HEIGHT, LEFT, TOP, GAP, ROW = 210, 130, 46, 58, 34, 34
COLOURS: Mapping[str, str] = MappingProxyType({PUBLISHED: "#d62728", SCALED: "#1f77b4"})
LINE = "#7a828e"


def chart(kind: str, results: Sequence[Result]) -> str:
    """A panel a task and schedule, means over seeds."""
    groups = by_setting(results)
    tasks, schedules = (list(dict.fromkeys(key[place] for key in groups)) for place in (0, 2))
    title = f"Adapting without labels under {kind} shift: accuracy as served by learning rate"
    drawing = Drawing(LEFT + len(schedules) * (WIDTH + GAP), TOP + len(tasks) * (HEIGHT + ROW) + 10, title)
    drawing.rect(0, 0, drawing.width, drawing.height, "white")
    drawing.text(LEFT, 16, title, fill=INK, font_size=13)
    drawing.text(LEFT, 36, "fixed rates", fill=LINE, font_size=12)
    drawing.text(LEFT + 100, 36, "no adaptation (dashed)", fill=MUTED, font_size=12)
    for number, (arm, words) in enumerate(((PUBLISHED, "Fed-ADE as published"), (SCALED, "scaled"))):
        drawing.text(LEFT + 270 + 160 * number, 36, words, fill=COLOURS[arm], font_size=12)
    for row, task in enumerate(tasks):
        for column, schedule in enumerate(schedules):
            runs = list(groups.get((task, kind, schedule), {}).values())
            if runs:
                place = LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + ROW)
                _panel(drawing, place, f"{task}, {schedule}", runs)
    return drawing.render()


def _panel(drawing: Drawing, place: tuple[float, float], title: str, runs: Sequence[Mapping[str, Result]]) -> None:
    left, top = place
    points = {arm: _mean(runs, arm) for arm in (*_fixed(), PUBLISHED, SCALED)}
    none = 100 * float(np.mean([arms[NONE].served for arms in runs]))
    values = [value for _, value in points.values()] + [none]
    low, high = np.floor(min(values)), np.ceil(max(values))
    rates = [np.log10(rate) for rate, _ in points.values()]
    x, y = Scale(min(rates), max(rates), left + 8, left + WIDTH - 8), Scale(low, high, top + HEIGHT, top + 16)
    drawing.text(left, top + 8, title, fill=INK, font_size=11)
    for tick in (low, (low + high) / 2, high):
        drawing.line(left, y(tick), left + WIDTH, y(tick), GRID_COLOUR)
        drawing.text(left - 5, y(tick) + 4, f"{tick:g}", fill=MUTED, font_size=10, text_anchor="end")
    for arm in _fixed():
        rate, _ = points[arm]
        drawing.text(x(np.log10(rate)), top + HEIGHT + 13, f"{rate:.2g}", fill=MUTED, font_size=9, text_anchor="middle")
    drawing.line(left, y(none), left + WIDTH, y(none), MUTED, stroke_dasharray="4 3")
    drawing.polyline([(x(np.log10(rate)), y(value)) for rate, value in (points[arm] for arm in _fixed())], LINE)
    for arm in (PUBLISHED, SCALED):
        rate, value = points[arm]
        drawing.circle(x(np.log10(rate)), y(value), 4, COLOURS[arm])


def _fixed() -> list[str]:
    return [f"fixed {number}" for number in range(1, FIXED_RATES + 1)]


def _mean(runs: Sequence[Mapping[str, Result]], arm: str) -> tuple[float, float]:
    """Mean rate and accuracy in percent."""
    rates = [arms[arm].rate or 0.0 for arms in runs]
    return float(np.mean(rates)), 100 * float(np.mean([arms[arm].served for arms in runs]))
