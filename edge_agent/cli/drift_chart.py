"""A replay as one SVG picture: statistics against their thresholds, verdicts, faults, loss and accuracy over time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from edge_agent.cli.drift_replayed import Episode, Replayed, attribution_words
from edge_agent.cli.drift_trace import Trace
from edge_agent.cli.drift_words import time_words

WIDTH, LEFT, RIGHT, TOP = 960.0, 150.0, 24.0, 62.0
PANEL, LANE, GAP = 170.0, 16.0, 30.0
RATIO_MOST = 2.5
"""Statistics beyond so many times their threshold are drawn there."""
LANES_MOST = 8
INK, MUTED, GRID = "#1d2433", "#6b7385", "#e4e7ec"
ALARM_PALE = "#d98c90"
ALARM, WARNING, FAULT, FLAG = "#b4232a", "#e0a03c", "#8a4fbf", "#b4232a"
MONITOR_COLOURS = ("#2563a8", "#0f8f83", "#8a5a1c", "#5b6472", "#a63d75")
LOSS_COLOUR, TRUE_COLOUR = "#5b6472", "#1c8a4c"


def drift_chart(replayed: Replayed) -> str:
    """The picture; one row of panels, time (or samples) to the right.

    Points that had to share a bucket are drawn by their highest ratio, losses by their mean.
    """
    shown = _lanes(replayed)
    quality = bool(len(replayed.loss) or replayed.windows)
    height = TOP + PANEL + GAP + LANE * len(shown) + GAP + (PANEL + GAP if quality else 0) + 24
    picture = _Picture(height, max(1, replayed.rows))
    picture.text(LEFT, 18, f"{replayed.data} through bundle {replayed.bundle}", size=13, fill=INK)
    picture.text(LEFT, 34, _caption(replayed))
    _ratios(picture, replayed, TOP)
    bottom = TOP + PANEL + GAP
    for place, lane in enumerate(shown):
        lane.draw(picture, bottom + LANE * place)
    bottom += LANE * len(shown) + GAP
    if quality:
        _quality(picture, replayed, bottom)
        bottom += PANEL + GAP
    _flags(picture, replayed, bottom - GAP)
    _axis(picture, replayed, bottom - GAP + 14)
    return picture.render(f"Drift monitors replayed over {replayed.rows} samples of {replayed.data}")


@dataclass(frozen=True, slots=True)
class _Lane:
    """Coloured stretches in a row of its own."""

    name: str
    stretches: Sequence[tuple[int, int, str, str]]

    def draw(self, picture: "_Picture", y: float) -> None:
        picture.text(LEFT - 8, y + 11, _shortened(self.name, 22), anchor="end", title=self.name)
        picture.rect(LEFT, y + 2, picture.width, LANE - 4, "#f4f5f7")
        for start, stop, colour, words in self.stretches:
            x = picture.x(start)
            picture.rect(x, y + 2, max(1.5, picture.x(stop) - x), LANE - 4, colour, title=words)


class _Picture:
    """Elements under construction; x is where a sample lies."""

    def __init__(self, height: float, rows: int) -> None:
        self.height = height
        self.width = WIDTH - LEFT - RIGHT
        self._rows = rows
        self._parts: list[str] = []

    def x(self, row: float) -> float:
        return LEFT + self.width * min(1.0, max(0.0, row / self._rows))

    def rect(self, x: float, y: float, width: float, height: float, fill: str, *, title: str = "") -> None:
        shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"'
        self._parts.append(f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>")

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str, *, dash: str = "", title: str = "") -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        shape = f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{dashed}'
        self._parts.append(f"{shape}><title>{escape(title)}</title></line>" if title else f"{shape}/>")

    def curve(self, points: Iterable[tuple[float, float]], stroke: str, *, width: float = 1.3) -> None:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        if joined and " " not in joined:
            x, y = joined.split(",")
            self._parts.append(f'<circle cx="{x}" cy="{y}" r="2" fill="{stroke}"/>')
        elif joined:
            self._parts.append(f'<polyline points="{joined}" fill="none" stroke="{stroke}" stroke-width="{width}"/>')

    def area(self, points: Iterable[tuple[float, float]], fill: str) -> None:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polygon points="{joined}" fill="{fill}" fill-opacity="0.25"/>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        size: int = 11,
        fill: str = MUTED,
        title: str = "",
    ) -> None:
        inner = escape(words) + (f"<title>{escape(title)}</title>" if title else "")
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">{inner}</text>'
        )

    def render(self, label: str) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {self.height:g}" role="img" '
            f'font-family="system-ui, sans-serif" aria-label="{escape(label)}">'
        )
        background = f'<rect width="{WIDTH:g}" height="{self.height:g}" fill="#ffffff"/>'
        return f"{head}{background}{''.join(self._parts)}</svg>\n"


def _ratios(picture: _Picture, replayed: Replayed, top: float) -> None:
    y = _scale(0.0, RATIO_MOST, top + PANEL, top)
    for level in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5):
        alarm = level == 1.0
        picture.line(
            LEFT, y(level), LEFT + picture.width, y(level), ALARM if alarm else GRID, dash="4 3" if alarm else ""
        )
        picture.text(LEFT - 8, y(level) + 4, f"{level:g}", anchor="end")
    picture.text(16, top + 12, "statistic", fill=INK)
    picture.text(16, top + 26, "/ threshold", fill=INK)
    for place, run in enumerate(run for run in replayed.monitors.values() if len(run.ratio)):
        colour = MONITOR_COLOURS[place % len(MONITOR_COLOURS)]
        points = [(picture.x(one.row), y(min(RATIO_MOST, max(0.0, one.highest)))) for one in run.ratio]
        picture.curve(points, colour)
        picture.text(16, top + 50 + 15 * place, _shortened(run.name, 14), fill=colour, title=run.name)


def _lanes(replayed: Replayed) -> list[_Lane]:
    ends = [*(change.row for change in replayed.changes[1:]), replayed.rows]
    colours = {"alarm": ALARM, "warning": WARNING}
    verdicts = [
        (change.row, end, colours[change.verdict], f"{change.verdict} from {change.sample}: {change.why}")
        for change, end in zip(replayed.changes, ends, strict=False)
        if change.verdict in colours
    ]
    lanes = [_Lane("verdict", verdicts)]
    for name in replayed.monitors:
        mine = [one for one in replayed.episodes if one.monitor == name]
        if mine:
            lanes.append(_Lane(f"alarm: {name}", [_alarming(one) for one in mine]))
    by_feature: dict[str, list[tuple[int, int, str, str]]] = {}
    for fault in replayed.faults:
        words = f"{fault.feature} {fault.fault} {fault.detail}".strip()
        end = replayed.rows if fault.last_row is None else fault.last_row + 1
        by_feature.setdefault(fault.feature, []).append((fault.first_row, end, FAULT, words))
    lanes += [_Lane(f"fault: {name}", stretches) for name, stretches in list(by_feature.items())[:LANES_MOST]]
    if len(by_feature) > LANES_MOST:
        rest = [one for stretches in list(by_feature.values())[LANES_MOST:] for one in stretches]
        lanes.append(_Lane(f"faults: {len(by_feature) - LANES_MOST} more", rest))
    return lanes


def _alarming(one: Episode) -> tuple[int, int, str, str]:
    changed = "; ".join(attribution_words(part) for part in one.attributions)
    return one.first_row, one.last_row, ALARM_PALE, f"{one.monitor} {one.highest:.1f} times its threshold: {changed}"


def _quality(picture: _Picture, replayed: Replayed, top: float) -> None:
    windows = [window for window in replayed.windows if window.quantity == "accuracy"]
    if len(replayed.loss):
        _loss(picture, replayed.loss, top, beside=bool(windows))
    if not windows:
        return
    y = _scale(0.0, 1.0, top + PANEL, top)
    for level in (0.0, 0.5, 1.0):
        picture.line(LEFT, y(level), LEFT + picture.width, y(level), GRID)
        picture.text(LEFT - 8, y(level) + 4, f"{level:g}", anchor="end")
    picture.text(16, top + 12, "accuracy:", fill=INK)
    picture.text(16, top + 26, "estimated", fill=MONITOR_COLOURS[0])
    picture.text(16, top + 40, "true", fill=TRUE_COLOUR)
    for stretch in _unbroken([(w.row, w.low, w.high) for w in windows]):
        above = [(picture.x(row), y(high)) for row, _, high in stretch]
        picture.area([*above, *((picture.x(row), y(low)) for row, low, _ in reversed(stretch))], MONITOR_COLOURS[0])
    for line in _unbroken([(w.row, w.estimate, w.estimate) for w in windows]):
        picture.curve([(picture.x(row), y(value)) for row, value, _ in line], MONITOR_COLOURS[0])
    for line in _unbroken([(w.row, w.true, w.true) for w in windows]):
        picture.curve([(picture.x(row), y(value)) for row, value, _ in line], TRUE_COLOUR)
    for window in windows:
        if window.estimate is None:
            picture.text(picture.x(window.row), top + PANEL - 4, "×", anchor="middle", title=window.refused)


def _loss(picture: _Picture, loss: Trace, top: float, *, beside: bool) -> None:
    most = max(bucket.mean for bucket in loss) or 1.0
    y = _scale(0.0, most, top + PANEL, top)
    picture.curve([(picture.x(bucket.row), y(bucket.mean)) for bucket in loss], LOSS_COLOUR, width=1.0)
    picture.text(16, top + 64 if beside else top + 12, f"loss, to {most:.3g}", fill=LOSS_COLOUR)
    if not beside:
        for share in (0.0, 0.5, 1.0):
            picture.line(LEFT, y(share * most), LEFT + picture.width, y(share * most), GRID)
            picture.text(LEFT - 8, y(share * most) + 4, f"{share * most:.3g}", anchor="end")


def _unbroken(points: Sequence[tuple[int, float | None, float | None]]) -> list[list[tuple[int, float, float]]]:
    """Stretches of neighbours that all have values."""
    stretches: list[list[tuple[int, float, float]]] = [[]]
    for row, low, high in points:
        if low is None or high is None:
            stretches.append([])
        else:
            stretches[-1].append((row, low, high))
    return [stretch for stretch in stretches if stretch]


def _flags(picture: _Picture, replayed: Replayed, bottom: float) -> None:
    for number, fired in enumerate(replayed.fired, start=1):
        x = picture.x(fired.row)
        words = f"flag {number} by {fired.monitor} at {fired.sample}: {fired.why}"
        changed = "; ".join(attribution_words(one) for one in fired.attributions[:4])
        picture.line(x, TOP - 4, x, bottom, FLAG, title=f"{words}{f' ({changed})' if changed else ''}")
        if number <= 20:
            picture.text(x + 2, TOP - 6, f"flag {number}" if number == 1 else str(number), size=9, fill=FLAG)


def _axis(picture: _Picture, replayed: Replayed, y: float) -> None:
    first, last = "sample 0", f"sample {replayed.rows}"
    if replayed.timed:
        first, last = time_words(replayed.first_time_s), time_words(replayed.last_time_s)
    picture.text(LEFT, y, first)
    picture.text(LEFT + picture.width, y, last, anchor="end")
    picture.text(LEFT + picture.width / 2, y, "in the order of the samples", anchor="middle")


def _caption(replayed: Replayed) -> str:
    flags = f"{len(replayed.fired)} flag{'' if len(replayed.fired) == 1 else 's'}"
    labelled = f"{replayed.labelled} labelled" if replayed.labelled else "no labels"
    return f"{replayed.rows} samples, {labelled}; {flags}, {len(replayed.faults)} faults; point at a mark for its words"


def _shortened(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)
