"""What the windows say, as tables and as JSON."""

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from tests.benchmarks.accuracy_data.arms import Floats, Shown, plain_cbpe
from tests.benchmarks.report import RESULTS, machine

NAME = "estimated_accuracy"
POINTS, NEAR = 100.0, 5.0
ALL_SHIFTED = "all strengths"
TAMPERED = "tampered: "
"""Begins the names of windows whose sensors were tampered with."""


@dataclass(frozen=True, slots=True)
class Case:
    """All windows of one stretch.

    Attributes:
        part: constructed, stream or tampered.
        peer: [value, low, high] a window of NannyML's CBPE; empty: it was not run.
        regression: the quantity is a loss, and errors are in its unit instead of points.
        seeds: a window, of the reference that it was estimated by.
    """

    part: str
    name: str
    windows: list[Shown]
    peer: list[list[float]]
    regression: bool
    seeds: list[int]


def figures(case: Case) -> list[dict[str, Any]]:
    """A row for each of the case's kinds of windows, in their order."""
    kinds = list(dict.fromkeys(window.case for window in case.windows))
    rows = [
        _row(case, kind, [place for place, window in enumerate(case.windows) if window.case == kind]) for kind in kinds
    ]
    if case.part == "constructed":
        shifted = [place for place, window in enumerate(case.windows) if not window.case.startswith(TAMPERED)]
        rows.append(_row(case, ALL_SHIFTED, shifted))
    return rows


def _row(case: Case, kind: str, chosen: list[int]) -> dict[str, Any]:
    windows = [case.windows[place] for place in chosen]
    unit = 1.0 if case.regression else POINTS
    row: dict[str, Any] = {"part": case.part, "stretch": case.name, "windows": kind, "n": len(windows)}
    row["truth"] = float(np.mean([window.truth for window in windows]))
    row |= _said([window.ours for window in windows], windows, unit, "")
    row |= _by_reference([case.seeds[place] for place in chosen], windows)
    if windows[0].held is not None:
        row |= _said([window.held for window in windows if window.held is not None], windows, unit, "held_")
    if not case.regression:
        row["plain_error"] = POINTS * float(np.mean([abs(plain_cbpe(w.outputs) - w.truth) for w in windows]))
    if case.peer:
        row |= _peers(np.array([case.peer[place] for place in chosen]), np.array([w.truth for w in windows]))
    return row


def _by_reference(seeds: list[int], windows: list[Shown]) -> dict[str, Any]:
    """How often each seed's reference covers what it does not refuse: all its windows share its luck."""
    covered: dict[int, list[bool]] = {}
    for seed, window in zip(seeds, windows, strict=True):
        if not window.ours.refused:
            covered.setdefault(seed, []).append(window.ours.low <= window.truth <= window.ours.high)
    return {"covered_by_reference": {str(seed): float(np.mean(held)) for seed, held in covered.items()}}


def _peers(found: Floats, truth: Floats) -> dict[str, Any]:
    """Of the windows that it gave a figure for."""
    known = np.isfinite(found[:, 0])
    if not known.any():
        return {"peer_windows": 0}
    found, truth = found[known], truth[known]
    errors = POINTS * np.abs(found[:, 0] - truth)
    row = {"peer_windows": int(known.sum()), "peer_error": float(errors.mean())}
    row["peer_near"] = float((errors <= NEAR).mean())
    row["peer_covered"] = float(((found[:, 1] <= truth) & (truth <= found[:, 2])).mean())
    return row


def _said(found: list[AccuracyEstimate], windows: list[Shown], unit: float, prefix: str) -> dict[str, Any]:
    pairs = [(one, window.truth) for one, window in zip(found, windows, strict=True) if not one.refused]
    covered = [one.low <= truth <= one.high for one, truth in pairs]
    errors = [unit * abs(one.value - truth) for one, truth in pairs]
    said: dict[str, Any] = {
        "refused": 1 - len(pairs) / len(found),
        "refusals": dict(Counter(one.refusal for one in found if one.refused)),
        "covered_or_refused": (sum(covered) + len(found) - len(pairs)) / len(found),
    }
    if pairs:
        said |= {"error": float(np.mean(errors)), "near": float(np.mean([error <= NEAR for error in errors]))}
        said |= {"covered": float(np.mean(covered)), "worst": max(errors)}
        said["half_width"] = unit * float(np.mean([(one.high - one.low) / 2 for one, _ in pairs]))
    return {prefix + name: value for name, value in said.items()}


def summary(cases: list[Case]) -> str:
    """For people: errors in points (in a loss's unit), shares in per cent."""
    lines = ["n, true, refused %, error, within 5 %, covered %, half width | covered or refused %"]
    for case in cases:
        rows = figures(case)
        lines += [_line(row) for row in rows if not row["windows"].startswith(TAMPERED)]
        if case.part == "constructed":
            lines += _tampered([row for row in rows if row["windows"].startswith(TAMPERED)])
    return "\n".join(lines)


def _tampered(rows: list[dict[str, Any]]) -> list[str]:
    count = sum(row["n"] for row in rows)
    good = sum(row["covered_or_refused"] * row["n"] for row in rows) / count
    lines = [f"  {'tampered':40s} {count} windows, covered or refused {100 * good:.1f} %, all but:"]
    return lines + [_line(row) for row in rows if row["covered_or_refused"] < 1]


def _line(row: dict[str, Any]) -> str:
    def share(name: str) -> str:
        return f"{100 * row[name]:5.1f}" if name in row else "    -"

    def number(name: str) -> str:
        return f"{row[name]:5.2f}" if name in row else "    -"

    line = f"  {row['stretch']:40s} {row['windows']:28s} {row['n']:4d} {row['truth']:.3f} {share('refused')}"
    line += f" {number('error')} {share('near')} {share('covered')} {number('half_width')}"
    line += f" | {share('covered_or_refused')} held: {share('held_refused')} {share('held_covered_or_refused')}"
    line += (
        f" | NannyML {number('peer_error')} {share('peer_near')} {share('peer_covered')} plain {number('plain_error')}"
    )
    return line + f" {row['refusals'] or ''}"


Kept = dict[tuple[str, str, str], dict[str, Any]]
"""NannyML's figures by part, stretch and windows."""


def kept_peers(folder: Path = RESULTS) -> Kept:
    """NannyML's figures of the saved rows: it is what it was, and so are the windows of its seeds."""
    rows = json.loads((folder / f"{NAME}.json").read_text(encoding="utf-8"))["rows"]
    return {
        (row["part"], row["stretch"], row["windows"]): {name: row[name] for name in row if name.startswith("peer_")}
        for row in rows
    }


def keep(cases: list[Case], folder: Path = RESULTS, *, kept: Kept | None = None) -> Path:
    """The rows as JSON; those of stretches that were not run stay as they are there.

    Args:
        kept: NannyML's figures to be kept where it was not run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.json"
    rows = [row for case in cases for row in figures(case)]
    rows = [(kept or {}).get((row["part"], row["stretch"], row["windows"]), {}) | row for row in rows]
    done = {(row["part"], row["stretch"]) for row in rows}
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    rows += [row for row in before if (row["part"], row["stretch"]) not in done]
    content = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(), "rows": rows}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
