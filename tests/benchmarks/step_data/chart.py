"""Ratios to torch as bars, with what is aimed at."""

from collections.abc import Sequence

from server_bridge.demo.charts.svg import ACTIVE_COLOUR, DRIFT_COLOUR, GRID_COLOUR, INK, Drawing, Scale
from tests.benchmarks.step_data.duel import Outcome

WIDTH, ROW, LEFT, RIGHT, TOP = 640.0, 22.0, 230.0, 60.0, 40.0
MOST = 1.5
TICK = 0.25


def chart(outcomes: Sequence[Outcome]) -> str:
    """CPU time over torch's, a bar each; a mark where the goal is."""
    drawing = Drawing(WIDTH, TOP + ROW * len(outcomes) + 30, "CPU time of a training step over torch's")
    drawing.rect(0, 0, drawing.width, drawing.height, "#ffffff")
    drawing.text(LEFT, 18, "CPU time of a training step over torch eager's; the line is the goal", fill=INK)
    scale = Scale(0.0, MOST, LEFT, WIDTH - RIGHT)
    bottom = TOP + ROW * len(outcomes)
    for number in range(int(MOST / TICK) + 1):
        drawing.line(scale(number * TICK), TOP - 6, scale(number * TICK), bottom, GRID_COLOUR)
        drawing.text(scale(number * TICK), bottom + 14, f"{number * TICK:g}", text_anchor="middle")
    for row, outcome in enumerate(outcomes):
        top = TOP + ROW * row
        words = f"{outcome.title}, {outcome.optimiser}{', 2 threads' if outcome.threads > 1 else ''}"
        drawing.text(LEFT - 6, top + 13, words, text_anchor="end")
        colour = ACTIVE_COLOUR if outcome.ratio <= outcome.goal else DRIFT_COLOUR
        drawing.rect(LEFT, top + 3, scale(min(outcome.ratio, MOST)) - LEFT, ROW - 8, colour)
        drawing.line(scale(outcome.goal), top, scale(outcome.goal), top + ROW - 2, INK, stroke_width=2)
        drawing.text(scale(min(outcome.ratio, MOST)) + 5, top + 13, f"{outcome.ratio:.2f}")
    return drawing.render()
