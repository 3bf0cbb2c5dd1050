"""What is kept under docs/benchmarks."""

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.drift_data.chart import chart
from tests.benchmarks.drift_data.streams import CONSTRUCTED
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

    Each peer stands beside ours alone, so that no other is needed: it becomes a cell's best, or the best single one of
    a category, where ours is slower beside it than beside the one that was.

    Raises:
        ValueError: ours is not what was saved, on these streams.
    """
    path = folder / "drift_monitors.json"
    lists = _saved(path)
    for part, (every, own) in parts.items():
        now = _by_peer(part, every, own)
        saved = {_key(row): row for row in lists[f"{part}_delays"]}
        other = [row for row in now[f"{part}_delays"] if row["detector"] in own and saved.get(_key(row)) != row]
        if other:
            raise ValueError(f"{part}: ours was saved on other streams, or is another one: {_key(other[0])}")
        for name in ("delays", "overall", "areas", "partly"):
            rows = {_key(row): row for row in [*lists[f"{part}_{name}"], *now[f"{part}_{name}"]]}
            lists[f"{part}_{name}"] = list(rows.values())
        for name, by in (("overall", "geometric_mean_delay"), ("areas", "mean_area")):
            lists[f"{part}_{name}"] = sorted(lists[f"{part}_{name}"], key=itemgetter(by))
        judged = {_key(row): row for row in (_judged(cell, own) for cell in every if cell.reached - own)}
        best = [max(row, judged.get(_key(row), row), key=itemgetter("ratio")) for row in lists[f"{part}_cells"]]
        changed = {
            _category(row) for row, before in zip(best, lists[f"{part}_cells"], strict=True) if row is not before
        }
        lists[f"{part}_cells"] = best
        lists[f"{part}_categories"] = [
            _with(row, best, [cell for cell in every if cell.category == row["category"]], own, changed)
            for row in lists[f"{part}_categories"]
        ]
    path.write_text(tables(stamp(), lists), encoding="utf-8")
    return path


def _with(
    row: dict[str, Any], judged: Sequence[dict[str, Any]], some: Sequence[Cell], own: frozenset[str], changed: set[str]
) -> dict[str, Any]:
    """A category's line with peers that were run since; the limit beside the cells' best ones is that of a sum of
    independent normal logarithms, by the cells' own limits: on what was saved whole it is the same to 0.002."""
    singles = frozenset.intersection(*(cell.reached for cell in some)) - own if some else frozenset()
    for name in singles:
        to_single = ratio(some, [name] * len(some))
        if (
            len(some) == sum(_category(one) == row["category"] for one in judged)
            and to_single.value > row["to_single"][0]
        ):
            told = [round(to_single.value, 3), round(to_single.upper, 3)]
            row = row | {"best_single_peer": name, "to_single": told}
    if row["category"] not in changed:
        return row
    mine = [one for one in judged if _category(one) == row["category"]]
    logs = np.log([one["ratio"] for one in mine])
    beyond = np.log([one["upper"] / one["ratio"] for one in mine])
    value, upper = np.exp(logs.mean()), np.exp(logs.mean() + np.sqrt(np.square(beyond).sum()) / len(mine))
    return row | {"to_cells_best": [round(float(value), 3), round(float(upper), 3)]}


def _category(row: Mapping[str, Any]) -> str:
    return row["drift"] if row["drift"] in CONSTRUCTED else f"real {row['data']}"


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
