"""Whether what fires on the later half of a stretch is a false alarm: its losses over time."""

import math

import numpy as np

from server_bridge.demo.charts.svg import DRIFT_COLOUR, GRID_COLOUR, INK, MUTED, Drawing, Scale
from tests.benchmarks.false_alarms_data.worlds import Stretch

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 640, 190, 44, 40, 34, 12
PART, TICK, ERRORS = 120, 0.2, 2.0
LINE = "#1f77b4"


def chart(stretch: Stretch) -> str:
    """Mean losses of 120 rows each with two standard errors, and the means of the two halves.

    Args:
        stretch: its first losses, those that the held-out part halves.
    """
    losses = stretch.first
    parts = [losses[start : start + PART] for start in range(0, len(losses) - PART + 1, PART)]
    means, errors = zip(*((part.mean(), ERRORS * part.std() / math.sqrt(PART)) for part in parts), strict=True)
    highest = math.ceil(max(np.add(means, errors)) / TICK) * TICK
    title = f"{stretch.name}: mean loss of {PART} rows each, two standard errors; half calibrates, half is judged"
    drawing = Drawing(WIDTH, HEIGHT, title)
    x, y = Scale(0, len(losses), LEFT, WIDTH - RIGHT), Scale(0, highest, HEIGHT - BOTTOM, TOP)
    drawing.rect(0, 0, WIDTH, HEIGHT, "white")
    drawing.text(LEFT, 18, title, fill=INK, font_size=12)
    for step in range(round(highest / TICK) + 1):
        drawing.line(LEFT, y(step * TICK), WIDTH - RIGHT, y(step * TICK), GRID_COLOUR)
        drawing.text(LEFT - 6, y(step * TICK) + 4, f"{step * TICK:.1f}", fill=MUTED, font_size=10, text_anchor="end")
    for number, (mean, error) in enumerate(zip(means, errors, strict=True)):
        place = x((number + 0.5) * PART)
        drawing.line(place, y(max(0.0, mean - error)), place, y(mean + error), LINE)
        drawing.circle(place, y(mean), 3, LINE)
    half = len(losses) // 2
    for first, last in ((0, half), (half, len(losses))):
        level = float(losses[first:last].mean())
        drawing.line(x(first), y(level), x(last), y(level), DRIFT_COLOUR)
        drawing.text(x(first) + 4, TOP + 4, f"mean {level:.2f}", fill=DRIFT_COLOUR, font_size=11)
    for row in (0, half, len(losses)):
        drawing.text(x(row), HEIGHT - 14, str(row), fill=MUTED, font_size=10, text_anchor="middle")
    return drawing.render()
