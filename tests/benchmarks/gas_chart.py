"""Accuracy of each group by round and arm, as SVG."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from server_bridge.demo.charts.svg import GRID_COLOUR, INK, MUTED, Drawing, Scale

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "ours": "#1f77b4",
        "ours, no reliability": "#17becf",
        "reference": "#d62728",
        "paper mode": "#9467bd",
        "FedAvg": "#e08a3c",
    }
)
# Arms that part alike lie upon each other: the widest is drawn first.
STROKES: Mapping[str, float] = MappingProxyType({"ours": 6.0, "ours, no reliability": 3.5})
WIDTH, HEIGHT, LEFT, TOP, GAP = 240, 190, 40, 44, 36
LOWEST = 0.3


def chart(curves: Mapping[str, Sequence[Mapping[str, float]]], groups: Sequence[str], drift_round: int) -> str:
    """A panel a group, a line an arm; ``curves`` holds means over seeds by arm, round and group."""
    title = "Gas sensors that have aged: accuracy by round"
    drawing = Drawing(LEFT + len(groups) * (WIDTH + GAP), TOP + HEIGHT + 26, title)
    drawing.rect(0, 0, drawing.width, drawing.height, "white")
    drawing.text(LEFT, 16, title, fill=INK, font_size=13)
    for number, arm in enumerate(curves):
        drawing.text(LEFT + 140 * number, 34, arm, fill=COLOURS[arm], font_size=12)
    for number, group in enumerate(groups):
        lines = {arm: [figures[group] for figures in curve] for arm, curve in curves.items()}
        _panel(drawing, LEFT + number * (WIDTH + GAP), group, lines, drift_round)
    return drawing.render()


def _panel(drawing: Drawing, left: float, group: str, lines: Mapping[str, Sequence[float]], drift_round: int) -> None:
    rounds = max(map(len, lines.values()))
    x, y = Scale(1, rounds, left + 8, left + WIDTH - 8), Scale(LOWEST, 1, TOP + HEIGHT, TOP + 20)
    drawing.text(left, TOP + 10, group, fill=INK, font_size=12)
    for tick in (0.4, 0.6, 0.8, 1.0):
        drawing.line(left, y(tick), left + WIDTH, y(tick), GRID_COLOUR)
        drawing.text(left - 6, y(tick) + 4, f"{tick:.1f}", fill=MUTED, font_size=10, text_anchor="end")
    drawing.line(x(drift_round), y(LOWEST), x(drift_round), y(1), "#b9bfca", stroke_width=5, stroke_opacity=0.5)
    for number in range(1, rounds + 1):
        drawing.text(x(number), TOP + HEIGHT + 14, str(number), fill=MUTED, font_size=10, text_anchor="middle")
    for arm, values in lines.items():
        drawing.polyline(
            [(x(n), y(value)) for n, value in enumerate(values, 1)], COLOURS[arm], stroke_width=STROKES.get(arm, 1.8)
        )
