"""Recovery by case and way, as an SVG file a claim: ``python -m tests.benchmarks.cohorts_data.chart``."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any

from tests.benchmarks.report import RESULTS

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "ours": "#1f77b4",
        "ours+context": "#17becf",
        "reference": "#d62728",
        "CFL": "#2ca02c",
        "silhouette": "#9467bd",
        "cut 0.35": "#8c8c8c",
    }
)
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "level": "Identical drifts: mean adjusted Rand index, 1 if they stay one cohort",
        "power": "Families of 3 and more: mean adjusted Rand index",
        "pairs": "Singletons, pairs and mixed sizes: mean adjusted Rand index",
        "below": "Below what is promised: mean adjusted Rand index",
    }
)
LABELS, SCALE, ROW, TOP = 430, 360, 18, 56


def chart(title: str, cases: Sequence[Mapping[str, Any]]) -> str:
    """A line a case, a mark a way, from 0 to 1."""
    names = list(dict.fromkeys(f"{entry['section']}: {entry['case']}" for entry in cases))
    height, width = TOP + ROW * len(names) + 12, LABELS + SCALE + 30
    parts = [_text(width / 2, 18, title, "middle")]
    for number, (way, colour) in enumerate(COLOURS.items()):
        parts.append(_text(LABELS + 62 * number, 40, way, "start", colour))
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LABELS + tick * SCALE
        parts.append(f'<line x1="{x:.0f}" y1="{TOP - 8}" x2="{x:.0f}" y2="{height - 8}" stroke="#ddd"/>')
    for row, name in enumerate(names):
        y = TOP + ROW * row + 6
        parts.append(_text(LABELS - 10, y + 4, name, "end"))
        for lane, entry in enumerate(e for e in cases if f"{e['section']}: {e['case']}" == name):
            x = LABELS + max(0.0, entry["mean"]) * SCALE
            colour = COLOURS[entry["way"]]
            parts.append(f'<circle cx="{x:.1f}" cy="{y + lane - 2}" r="4" fill="{colour}" fill-opacity="0.8"/>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11">\n<rect width="{width}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    """Draw every claim of the kept results."""
    cases = json.loads((RESULTS / "cohort_recovery.json").read_text(encoding="utf-8"))["cases"]
    for claim, title in TITLES.items():
        mine = [entry for entry in cases if entry["claim"] == claim]
        if mine:
            (RESULTS / f"cohort_recovery_{claim}.svg").write_text(chart(title, mine), encoding="utf-8")


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


if __name__ == "__main__":
    main()
