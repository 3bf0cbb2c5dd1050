"""What is kept under docs/benchmarks."""

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.drift_data.chart import chart
from tests.benchmarks.drift_data.verdict import Cell, areas, by_category, overall, partly, ratio
from tests.benchmarks.report import stamp
from tests.benchmarks.run_lines import tables

SHOWN = 3


def save(
    parts: dict[str, tuple[Sequence[Cell], frozenset[str]]], costs: Sequence[dict[str, Any]], folder: Path
) -> Path:
    """Delays by data, kind of drift, detector and rate; ratios; costs; a chart a part. Parts not run stay as saved."""
    path = folder / "drift_monitors.json"
    lists = _saved(path)
    for part, (every, own) in parts.items():
        lists |= _by_peer(part, every, own) | _judged_all(part, every, own)
        rivals = [name for name, _ in overall(every) if name not in own][:SHOWN]
        words = "with labels" if part == "labelled" else "without labels"
        title = f"Delay in samples by false alarms a batch of 32, {words}"
        (folder / f"drift_monitors_{part}.svg").write_text(chart(title, every, own, rivals), encoding="utf-8")
    if costs:
        lists["cost"] = costs
    path.write_text(tables(stamp(), lists), encoding="utf-8")
    return path


def add(parts: dict[str, tuple[Sequence[Cell], frozenset[str]]], folder: Path) -> Path:
    """Lines of peers that were run since, beside those of the others, which stay as saved.

    Each peer stands beside ours alone, so that no other is needed; but a cell's best peer is chosen among all.

    Raises:
        ValueError: ours is not what was saved, on these streams; or a peer is now the best of a cell.
    """
    path = folder / "drift_monitors.json"
    lists = _saved(path)
    for part, (every, own) in parts.items():
        now = _by_peer(part, every, own)
        saved = {_key(row): row for row in lists[f"{part}_delays"]}
        other = [row for row in now[f"{part}_delays"] if row["detector"] in own and saved.get(_key(row)) != row]
        if other:
            raise ValueError(f"{part}: ours was saved on other streams, or is another one: {_key(other[0])}")
        ratios = {_key(row): row["ratio"] for row in lists[f"{part}_cells"]}
        judged = [_judged(cell, own) for cell in every if cell.reached - own]
        ahead = [row for row in judged if row["ratio"] > ratios[_key(row)]]
        if ahead:
            raise ValueError(f"{part}: {ahead[0]['best_peer']} is the best of a cell now: run all peers on its streams")
        for name in ("delays", "overall", "areas", "partly"):
            rows = {_key(row): row for row in [*lists[f"{part}_{name}"], *now[f"{part}_{name}"]]}
            lists[f"{part}_{name}"] = list(rows.values())
        for name, by in (("overall", "geometric_mean_delay"), ("areas", "mean_area")):
            lists[f"{part}_{name}"] = sorted(lists[f"{part}_{name}"], key=itemgetter(by))
    path.write_text(tables(stamp(), lists), encoding="utf-8")
    return path


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("data", "drift", "detector"))


def _saved(path: Path) -> dict[str, Sequence[dict[str, Any]]]:
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: rows for name, rows in before.items() if isinstance(rows, list)}


def _judged_all(part: str, every: Sequence[Cell], own: frozenset[str]) -> dict[str, Sequence[dict[str, Any]]]:
    return {
        f"{part}_cells": [_judged(cell, own) for cell in every],
        f"{part}_categories": [
            {
                "category": category,
                "to_cells_best": [round(to_best.value, 3), round(to_best.upper, 3)],
                "best_single_peer": single,
                "to_single": [round(to_single.value, 3), round(to_single.upper, 3)],
            }
            for category, (to_best, single, to_single) in by_category(every, own).items()
        ],
    }


def _by_peer(part: str, every: Sequence[Cell], own: frozenset[str]) -> dict[str, Sequence[dict[str, Any]]]:
    return {
        f"{part}_delays": [row for cell in every for row in _rows(cell)],
        f"{part}_overall": [{"detector": n, "geometric_mean_delay": round(v, 1)} for n, v in overall(every)],
        f"{part}_areas": [
            {"detector": n, "mean_area": round(v, 1), "ours_over_it": round(r, 3), "cells_ours_smaller": won}
            for n, v, r, won in areas(every)
        ],
        f"{part}_partly": [
            {
                "detector": row.detector,
                "data": row.task,
                "rate": round(row.rate, 6),
                "starts": row.starts,
                "ours_over_it": [round(row.relative.value, 3), round(row.relative.upper, 3)],
            }
            for row in partly(every, own)
        ],
    }


def _rows(cell: Cell) -> list[dict[str, Any]]:
    return [
        {
            "data": cell.task,
            "drift": cell.kind,
            "detector": name,
            "starts": int(np.isfinite(cell.delays[name]).sum()),
            "rates": [round(rate, 6) for rate, _ in curve],
            "mean_delays": [round(delay, 1) for _, delay in curve],
            "median_delay": float(np.nanmedian(cell.delays[name])),
            "reached": name in cell.reached,
        }
        for name, curve in cell.curves.items()
    ]


def _judged(cell: Cell, own: frozenset[str]) -> dict[str, Any]:
    best = cell.best(own)
    found = ratio([cell], [best])
    return {
        "data": cell.task,
        "drift": cell.kind,
        "ours": round(cell.mean(cell.ours), 1),
        "best_peer": best,
        "delay": round(cell.mean(best), 1),
        "ratio": round(found.value, 3),
        "upper": round(found.upper, 3),
    }
