"""A little SVG: escaped elements, linear scales, and the report's colours."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from server_bridge.demo.plan import Family

FAMILY_COLOURS = {Family.PERMUTED: "#4f46e5", Family.FLIPPED: "#0f8f83", Family.STATIONARY: "#5b6472"}
FEDAVG_COLOUR = "#e08a3c"
DRIFT_COLOUR = "#b4232a"
ACTIVE_COLOUR = "#1c8a4c"
ROUND_COLOUR = "#e9eaf6"
GRID_COLOUR = "#e4e7ec"
INK = "#1d2433"
MUTED = "#6b7385"


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight line from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where ``value`` lies, pixels."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(slots=True)
class Drawing:
    """An SVG picture under construction.

    Attributes:
        label: what it shows, for people who do not see it.
    """

    width: float
    height: float
    label: str
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str, **style: str | float) -> None:
        """A straight line."""
        self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": stroke, **style})

    def rect(self, x: float, y: float, width: float, height: float, fill: str, **style: str | float) -> None:
        """A rectangle; nothing where it has no area."""
        if width > 0 and height > 0:
            self._add("rect", {"x": x, "y": y, "width": width, "height": height, "fill": fill, **style})

    def circle(self, x: float, y: float, radius: float, fill: str, **style: str | float) -> None:
        """A disc."""
        self._add("circle", {"cx": x, "cy": y, "r": radius, "fill": fill, **style})

    def path(self, d: str, stroke: str, **style: str | float) -> None:
        """A path that is stroked, not filled."""
        self._add("path", {"d": d, "stroke": stroke, "fill": "none", **style})

    def polyline(self, points: Sequence[tuple[float, float]], stroke: str, **style: str | float) -> None:
        """A line through points; one point alone becomes a dot."""
        if len(points) == 1:
            self.circle(*points[0], 1.6, stroke)
        elif points:
            joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            self._add("polyline", {"points": joined, "stroke": stroke, "fill": "none", **style})

    def polygon(self, points: Iterable[tuple[float, float]], fill: str, **style: str | float) -> None:
        """A filled shape."""
        self._add("polygon", {"points": " ".join(f"{x:.1f},{y:.1f}" for x, y in points), "fill": fill, **style})

    def text(self, x: float, y: float, words: str, **style: str | float) -> None:
        """Words; 11 pixels and muted unless told."""
        attributes: dict[str, str | float] = {"x": x, "y": y, "font_size": 11, "fill": MUTED, **style}
        self.parts.append(f"<text{_attributes(attributes)}>{escape(words)}</text>")

    def title(self, words: str) -> None:
        """A tooltip on the element drawn last."""
        opened = self.parts.pop()
        name = opened[1:].split(" ", 1)[0]
        self.parts.append(f"{opened.removesuffix('/>')}><title>{escape(words)}</title></{name}>")

    def render(self) -> str:
        """The whole picture."""
        head = f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(self.label)}"'
        return f'{head} xmlns="http://www.w3.org/2000/svg">{"".join(self.parts)}</svg>'

    def _add(self, name: str, attributes: dict[str, str | float]) -> None:
        self.parts.append(f"<{name}{_attributes(attributes)}/>")


def _attributes(values: dict[str, str | float]) -> str:
    shown = ((key.replace("_", "-"), f"{v:.2f}" if isinstance(v, float) else str(v)) for key, v in values.items())
    return "".join(f' {key}="{escape(value)}"' for key, value in shown)
