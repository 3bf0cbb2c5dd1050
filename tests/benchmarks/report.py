"""Results as JSON beside a table for people."""

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.interleaved import Timing

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "benchmarks"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One case: what was compared, and each way's time; the first way is the peer."""

    case: str
    timings: list[Timing]

    @property
    def ratios(self) -> dict[str, float]:
        """Each way's time over the peer's."""
        peer = self.timings[0].median_s
        return {timing.name: timing.median_s / peer for timing in self.timings}


def show(title: str, comparisons: list[Comparison]) -> None:
    """Print a table."""
    print(f"\n{title}")
    for comparison in comparisons:
        for timing in comparison.timings:
            ratio = comparison.ratios[timing.name]
            print(f"  {comparison.case:28s} {timing.name:34s} {timing.median_s * 1e3:9.3f} ms CPU   x{ratio:.2f}")


def machine() -> str:
    """What the results were measured on."""
    return f"{platform.machine()}, Python {platform.python_version()}"


def stamp() -> dict[str, str]:
    """When and where results were measured."""
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine()}


def keep(name: str, title: str, content: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write results as ``<name>.json``, with the date and the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"title": title, **stamp(), **content}, indent=2) + "\n", encoding="utf-8")
    return path


def save(name: str, title: str, comparisons: list[Comparison], folder: Path = RESULTS) -> Path:
    """Write the results as JSON, with the date and the machine."""
    content = {
        "cases": [
            {
                "case": comparison.case,
                "median_cpu_s": {timing.name: timing.median_s for timing in comparison.timings},
                "ratio_to_peer": comparison.ratios,
                "runs": comparison.timings[0].runs,
            }
            for comparison in comparisons
        ],
    }
    return keep(name, title, content, folder)
