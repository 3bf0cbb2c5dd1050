"""Accuracy by round and cohorts by round, as SVG."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from server_bridge.demo.charts.svg import GRID_COLOUR, INK, MUTED, Drawing, Scale
from tests.benchmarks.cifar_data.grid import RoundAccount
from tests.benchmarks.cifar_data.setting import EVENTS, family
from tests.benchmarks.cifar_data.summary import GROUPS, Runs, of_group

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "ours": "#1f77b4",
        "reference": "#d62728",
        "paper mode": "#9467bd",
        "FedAvg": "#e08a3c",
        "ours, reliability": "#17becf",
        "ours, best start": "#2ca02c",
    }
)
# Arms that part alike lie upon each other: the widest is drawn first.
WIDTHS: Mapping[str, float] = MappingProxyType({"ours": 5.0})
COHORT_COLOURS = ("#c9ced6", "#4f46e5", "#0f8f83", "#e08a3c", "#b4232a", "#1c8a4c", "#8c564b", "#e377c2", "#17becf")
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP = 330, 210, 44, 46, 40
CELL, ROW = 20, 13


def accuracy_chart(runs: Runs, title: str) -> str:
    """A panel a group: the mean over seeds a line, each seed a dot; events are the grey uprights."""
    drawing = _titled(LEFT, LEFT + 2 * PANEL_WIDTH + GAP + 12, TOP + PANEL_HEIGHT + 24, title)
    for number, arm in enumerate(dict.fromkeys(arm for arm, _ in runs)):
        drawing.text(LEFT + 90 * number, 34, arm, fill=COLOURS[arm], font_size=12)
    for number, group in enumerate(GROUPS):
        _panel(drawing, LEFT + number * (PANEL_WIDTH + GAP), group, runs)
    return drawing.render()


def cohort_chart(runs: Runs, title: str) -> str:
    """Clients down, rounds across, a colour a cohort, a dot a flag; a block a seed and arm."""
    arms = [arm for arm in dict.fromkeys(arm for arm, _ in runs) if arm != "FedAvg"]
    seeds = sorted({seed for _, seed in runs})
    rounds = max(len(run) for run in runs.values())
    block_width, block_height = rounds * CELL + 24, 10 * ROW + 44
    drawing = _titled(10, 40 + block_width * len(arms), TOP + block_height * len(seeds), title)
    for down, seed in enumerate(seeds):
        for across, arm in enumerate(arms):
            if (arm, seed) in runs:
                _block(
                    drawing,
                    40 + across * block_width,
                    TOP + down * block_height,
                    f"{arm}, seed {seed}",
                    runs[arm, seed],
                )
    return drawing.render()


def _titled(left: float, width: float, height: float, title: str) -> Drawing:
    drawing = Drawing(width, height, title)
    drawing.rect(0, 0, width, height, "white")
    drawing.text(left, 16, title, fill=INK, font_size=13)
    return drawing


def _panel(drawing: Drawing, left: float, group: str, runs: Runs) -> None:
    rounds = max(len(run) for run in runs.values())
    x = Scale(1, max(rounds, 2), left + 8, left + PANEL_WIDTH - 8)
    y = Scale(0, 0.8, TOP + PANEL_HEIGHT, TOP + 20)
    drawing.text(left, TOP + 10, f"{group} clients: mean accuracy by round", fill=INK, font_size=12)
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8):
        drawing.line(left, y(tick), left + PANEL_WIDTH, y(tick), GRID_COLOUR)
        drawing.text(left - 6, y(tick) + 4, f"{tick:.1f}", fill=MUTED, font_size=10, text_anchor="end")
    for number in range(1, rounds + 1):
        if number in EVENTS:
            drawing.line(x(number), y(0), x(number), y(0.8), "#b9bfca", stroke_width=5, stroke_opacity=0.5)
        drawing.text(x(number), TOP + PANEL_HEIGHT + 16, str(number), fill=MUTED, font_size=10, text_anchor="middle")
    for arm in dict.fromkeys(arm for arm, _ in runs):
        mine = [[of_group(account, group) for account in run] for (name, _), run in runs.items() if name == arm]
        _arm(drawing, x, y, arm, mine)


def _arm(drawing: Drawing, x: Scale, y: Scale, arm: str, seeds: Sequence[Sequence[float]]) -> None:
    shortest = min(map(len, seeds))
    mean = np.mean([values[:shortest] for values in seeds], axis=0)
    points = [(x(number), y(float(value))) for number, value in enumerate(mean, 1)]
    drawing.polyline(points, COLOURS[arm], stroke_width=WIDTHS.get(arm, 1.8))
    for values in seeds:
        for number, value in enumerate(values, 1):
            drawing.circle(x(number), y(value), 1.6, COLOURS[arm])


def _block(drawing: Drawing, left: float, top: float, title: str, rounds: Sequence[RoundAccount]) -> None:
    drawing.text(left, top + 10, title, fill=INK, font_size=12)
    order = sorted(rounds[0].cohorts, key=lambda client: (family(client), client))
    for line, client in enumerate(order):
        y = top + 16 + line * ROW
        drawing.text(left - 4, y + 10, f"{family(client)[0]}{client}", fill=MUTED, font_size=9, text_anchor="end")
        for account in rounds:
            cohort = account.cohorts[client]
            colour = COHORT_COLOURS[cohort % len(COHORT_COLOURS)]
            x = left + (account.number - 1) * CELL
            drawing.rect(x, y, CELL - 1, ROW - 1, colour)
            if client in account.flagged:
                drawing.circle(x + CELL / 2 - 0.5, y + ROW / 2 - 0.5, 1.8, "white")
    for account in rounds:
        x = left + (account.number - 0.5) * CELL
        drawing.text(
            x, top + 16 + len(order) * ROW + 10, str(account.number), fill=MUTED, font_size=9, text_anchor="middle"
        )
