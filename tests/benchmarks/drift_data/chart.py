"""Mean delay by measured false-alarm rate: ours, the best peers, and the other peers in grey."""

import math
from collections.abc import Sequence

from server_bridge.demo.charts.svg import GRID_COLOUR, INK, MUTED, Drawing, Scale
from tests.benchmarks.drift_data.streams import KINDS
from tests.benchmarks.drift_data.verdict import Cell

WIDTH, HEIGHT, LEFT, TOP, GAP, ROW = 190, 120, 46, 62, 36, 36
RATES = (1e-4, 1e-2)
OURS, RIVALS, OTHERS = "#1f77b4", ("#d62728", "#e08a3c", "#2ca02c"), "#c9ced6"


def chart(title: str, every: Sequence[Cell], own: frozenset[str], rivals: Sequence[str]) -> str:
    """A panel a data set and kind of drift; a detector at one rate only is a dot."""
    tasks = list(dict.fromkeys(cell.task for cell in every))
    drawing = Drawing(LEFT + len(KINDS) * (WIDTH + GAP), TOP + len(tasks) * (HEIGHT + ROW) + 10, title)
    drawing.rect(0, 0, drawing.width, drawing.height, "white")
    drawing.text(LEFT, 16, title, fill=INK, font_size=13)
    colours = dict(zip(rivals, RIVALS, strict=False)) | dict.fromkeys(own, OTHERS) | {every[0].ours: OURS}
    named = [every[0].ours, *rivals[: len(RIVALS)]]
    for number, name in enumerate(named):
        drawing.text(LEFT + 210 * number, 36, name, fill=colours[name], font_size=12)
    drawing.text(LEFT + 210 * len(named), 36, "others", fill=MUTED, font_size=12)
    for cell in every:
        row, column = tasks.index(cell.task), KINDS.index(cell.kind)
        _panel(drawing, (LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + ROW)), cell, colours)
    return drawing.render()


def _panel(drawing: Drawing, place: tuple[float, float], cell: Cell, colours: dict[str, str]) -> None:
    left, top = place
    shown = {
        name: [point for point in curve if RATES[0] <= point[0] <= RATES[1]] for name, curve in cell.curves.items()
    }
    delays = [delay for curve in shown.values() for _, delay in curve]
    low, high = math.floor(math.log10(min(delays)) * 2) / 2, math.ceil(math.log10(max(delays)) * 2) / 2
    x = Scale(math.log10(RATES[0]), math.log10(RATES[1]), left, left + WIDTH)
    y = Scale(low, high, top + HEIGHT, top + 14)
    drawing.text(left, top + 8, f"{cell.task}, {cell.kind}", fill=INK, font_size=11)
    for tick in [low + step / 2 for step in range(round(2 * (high - low)) + 1)]:
        drawing.line(left, y(tick), left + WIDTH, y(tick), GRID_COLOUR)
        drawing.text(left - 5, y(tick) + 4, f"{10**tick:.0f}", fill=MUTED, font_size=9, text_anchor="end")
    for power in range(-4, -1):
        drawing.text(x(power), top + HEIGHT + 13, f"{10.0**power:g}", fill=MUTED, font_size=9, text_anchor="middle")
    for name in sorted(shown, key=lambda name: name in colours):
        points = [(x(math.log10(rate)), y(math.log10(delay))) for rate, delay in sorted(shown[name])]
        colour = colours.get(name, OTHERS)
        drawing.polyline(points, colour)
        for point in points:
            drawing.circle(*point, 2.5, colour)
