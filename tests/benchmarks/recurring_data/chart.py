"""Accuracy and number of cohorts over time, an SVG file a data set."""

from collections.abc import Mapping, Sequence
from html import escape
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.recurring_data.patterns import STEPS
from tests.benchmarks.recurring_data.run import Result

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "ours": "#1f77b4",
        "ours+merge": "#e377c2",
        "ours+candidates": "#17becf",
        "ours-on-demand": "#2ca02c",
        "reference": "#d62728",
        "FedAvg": "#8c8c8c",
        "IFCA": "#9467bd",
        "FedDrift": "#ff7f0e",
        "true": "#000000",
    }
)
PANEL, HEIGHT, LEFT, TOP, BOTTOM, GAP, LEGEND = 360, 300, 46, 40, 36, 60, 130


def chart(task: str, results: Sequence[Result]) -> str:
    """Two panels: accuracy on held-out data of the time step, and the models kept beside the concepts so far."""
    by_arm = {arm: [r for r in results if r.arm == arm] for arm in COLOURS}
    accuracy = {arm: _over_time([r.same_step for r in runs]) for arm, runs in by_arm.items() if runs}
    cohorts = {arm: _over_time([r.kept for r in runs]) for arm, runs in by_arm.items() if runs}
    concepts = _over_time([r.concepts_seen for r in results])
    least = np.floor(10 * min(values.min() for values in accuracy.values())) / 10
    most = max(concepts.max(), *(values.max() for values in cohorts.values())) + 0.5
    width = 2 * (LEFT + PANEL) + GAP + LEGEND
    parts = [_text(width / 2, 16, f"{task}: means over patterns and seeds", "middle")]
    parts += _panel(LEFT, "accuracy on data of the time step", accuracy, least, 1.0)
    right = 2 * LEFT + PANEL + GAP
    parts += _panel(right, "models kept (dots: concepts so far)", cohorts, 0.0, float(most))
    parts += [
        f'<circle cx="{_x(right, step):.1f}" cy="{_y(value, 0.0, float(most)):.1f}" r="4" fill="none" stroke="black"/>'
        for step, value in enumerate(concepts)
    ]
    for number, arm in enumerate(accuracy):
        parts.append(_text(right + PANEL + 12, TOP + 12 + 18 * number, arm, "start", COLOURS[arm]))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" '
        f'font-size="11">\n<rect width="{width}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def _over_time(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    means: NDArray[np.float64] = np.asarray(rows, np.float64).mean(0)
    return means


def _panel(left: float, title: str, lines: Mapping[str, NDArray[np.float64]], low: float, high: float) -> list[str]:
    parts = [
        _text(left + PANEL / 2, TOP - 8, title, "middle"),
        _text(left + PANEL / 2, HEIGHT - 6, "time step", "middle"),
    ]
    for tick in np.linspace(low, high, 5):
        y = _y(float(tick), low, high)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(left - 5, y + 4, f"{tick:.2f}" if high <= 1 else f"{tick:.1f}", "end"))
    for step in range(STEPS):
        parts.append(_text(_x(left, step), HEIGHT - BOTTOM + 14, str(step), "middle"))
    for arm, values in lines.items():
        points = " ".join(f"{_x(left, s):.1f},{_y(float(v), low, high):.1f}" for s, v in enumerate(values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[arm]}" stroke-width="2"/>')
    return parts


def _x(left: float, step: int) -> float:
    return left + PANEL * step / (STEPS - 1)


def _y(value: float, low: float, high: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
