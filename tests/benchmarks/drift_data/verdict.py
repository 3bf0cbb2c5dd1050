"""Ours beside the best peer: in each cell (data and kind of drift), in each category, and over all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.drift_data.measure import RATES, RESAMPLES, TARGET, UPPER, Swept, geometric_mean
from tests.benchmarks.drift_data.streams import CONSTRUCTED, KINDS, Drawn
from tests.benchmarks.drift_data.tasks import Floats

# A peer counts as at the rate, or stricter, up to this factor above it.
NEAR = 1.25
GOAL = 1.15


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of drift on one data set.

    Attributes:
        task, kind: which.
        delays: detector to (n,) delays at the target rate; NaN where it was not run.
        curves: detector to (measured rate, mean delay) at each rate.
        reached: detectors that come to the rate or below it.
        ours: the detector that is judged.
    """

    task: str
    kind: str
    delays: Mapping[str, Floats]
    curves: Mapping[str, Sequence[tuple[float, float]]]
    reached: frozenset[str]
    ours: str

    @property
    def category(self) -> str:
        """Constructed drifts by kind over all data, real ones by data."""
        return self.kind if self.kind in CONSTRUCTED else f"real {self.task}"

    def mean(self, name: str) -> float:
        """Mean delay in samples."""
        return float(np.nanmean(self.delays[name]))

    def area(self, name: str) -> float:
        """Under the curve of mean delay over the logarithm of the rate, by the width: a mean delay. NaN: one point."""
        curve = sorted(self.curves[name])
        if len(curve) < len(RATES):
            return float("nan")
        at = np.log(np.sort(RATES))
        delays = np.interp(at, np.log([rate for rate, _ in curve]), [delay for _, delay in curve])
        return float(((delays[1:] + delays[:-1]) / 2 * np.diff(at)).sum() / (at[-1] - at[0]))

    def best(self, own: frozenset[str]) -> str:
        """Of the peers that reach the rate, the one beside which ours is slowest on the same starting points."""
        return max(self.reached - own, key=self.slower)

    def slower(self, peer: str) -> float:
        """Mean delay of ours over a peer's, where both were run."""
        mine, theirs = self.delays[self.ours], self.delays[peer]
        both = np.isfinite(mine) & np.isfinite(theirs)
        return float(mine[both].mean() / theirs[both].mean())


def cells(drawn: Drawn, swept: Mapping[str, Swept], ours: str) -> list[Cell]:
    """A cell for each kind of drift."""
    reached = frozenset(name for name, one in swept.items() if one.rates[TARGET] <= NEAR * RATES[TARGET])
    found = []
    for kind in KINDS:
        streams = drawn.drifts[kind]
        delays = {name: one.delays(kind, streams) for name, one in swept.items()}
        curves = {
            name: [
                (float(rate), float(np.nanmean(one.delays(kind, streams, place))))
                for place, rate in enumerate(one.rates)
                if np.isfinite(rate)
            ]
            for name, one in swept.items()
        }
        found.append(Cell(drawn.task.name, kind, delays, curves, reached, ours))
    return found


@dataclass(frozen=True, slots=True)
class Ratio:
    """Mean delay of ours over a peer's, a geometric mean over cells, and its upper limit by paired bootstrap."""

    value: float
    upper: float

    def __str__(self) -> str:
        """As the tables have it."""
        return f"{self.value:.2f} ({self.upper:.2f})"


def ratio(some: Sequence[Cell], peers: Sequence[str], seed: int = 0) -> Ratio:
    """Over cells, in each beside the peer of the same place; starting points are drawn anew within each cell."""
    rng = np.random.default_rng(seed)
    values, drawn = [], []
    for cell, peer in zip(some, peers, strict=True):
        mine, theirs = cell.delays[cell.ours], cell.delays[peer]
        both = np.isfinite(mine) & np.isfinite(theirs)
        mine, theirs = mine[both], theirs[both]
        rows = rng.integers(0, len(mine), (RESAMPLES, len(mine)))
        values.append(mine.mean() / theirs.mean())
        drawn.append(mine[rows].mean(1) / theirs[rows].mean(1))
    means = np.exp(np.mean(np.log(drawn), axis=0))
    return Ratio(geometric_mean(values), float(np.quantile(means, UPPER)))


def by_category(every: Sequence[Cell], own: frozenset[str]) -> dict[str, tuple[Ratio, str, Ratio]]:
    """Category to the ratio to each cell's best peer, the best single peer, and the ratio to that."""
    found = {}
    for category in dict.fromkeys(cell.category for cell in every):
        some = [cell for cell in every if cell.category == category]
        single = best_single(some, own)
        to_best = ratio(some, [cell.best(own) for cell in some])
        found[category] = to_best, single, ratio(some, [single] * len(some))
    return found


def best_single(some: Sequence[Cell], own: frozenset[str]) -> str:
    """The peer that is in every cell and has the smallest geometric mean of delays."""
    everywhere = frozenset.intersection(*(cell.reached for cell in some)) - own
    return min(everywhere, key=lambda name: geometric_mean([1 / cell.slower(name) for cell in some]))


def table(every: Sequence[Cell], own: frozenset[str]) -> str:
    """For people: cells, categories, and the geometric mean over all cells for every detector."""
    if not frozenset().union(*(cell.delays for cell in every)) - own:
        return "\n".join(f"{c.task} {c.kind}: " + ", ".join(f"{n} {c.mean(n):.0f}" for n in sorted(own)) for c in every)
    lines = ["| data | drift | " + " | ".join(sorted(own)) + " | best peer | delay | ratio (95 % upper limit) |"]
    lines.append("|" + "---|" * (5 + len(own)))
    for cell in every:
        best = cell.best(own)
        mine = " | ".join(f"{cell.mean(name):.0f}" for name in sorted(own))
        lines.append(
            f"| {cell.task} | {cell.kind} | {mine} | {best} | {cell.mean(best):.0f} | {_told(ratio([cell], [best]))} |"
        )
    lines += ["", "| category | to each cell's best peer | best single peer | to that |", "|---|---|---|---|"]
    for category, (to_best, single, to_single) in by_category(every, own).items():
        lines.append(f"| {category} | {_told(to_best)} | {single} | {_told(to_single)} |")
    lines += ["", "| detector | geometric mean delay | ours over it |", "|---|---|---|"]
    for name, value in overall(every):
        told = "" if name in own else str(ratio(every, [name] * len(every)))
        lines.append(f"| {name} | {value:.0f} | {told} |")
    lines += [
        "",
        "| not at the rate in every cell | data | rate | starting points | ours over it |",
        "|---|---|---|---|---|",
    ]
    for row in partly(every, own):
        lines.append(f"| {row.detector} | {row.task} | {row.rate:.1e} | {row.starts} | {row.relative} |")
    lines += ["", "| detector | geometric mean area under the curve | ours over it | cells where ours is smaller |"]
    lines.append("|---|---|---|---|")
    for name, value, relative, won in areas(every):
        lines.append(f"| {name} | {value:.0f} | {relative:.2f} | {won} of {len(every)} |")
    return "\n".join(lines)


def areas(every: Sequence[Cell]) -> list[tuple[str, float, float, int]]:
    """Detectors with a curve that are at the rate everywhere: mean area, ours over it, cells where ours is smaller."""
    found = []
    for name in frozenset.intersection(*(frozenset(cell.curves) & cell.reached for cell in every)):
        theirs = np.array([cell.area(name) for cell in every])
        mine = np.array([cell.area(cell.ours) for cell in every])
        if np.isfinite(theirs).all():
            relative = float(np.exp(np.mean(np.log(mine / theirs))))
            found.append((name, geometric_mean(theirs.tolist()), relative, int((mine < theirs).sum())))
    return sorted(found, key=lambda row: row[1])


@dataclass(frozen=True, slots=True)
class Partly:
    """A peer that is not at the rate, or was not run, on every data set: how it did on one of them.

    Attributes:
        detector, task: which.
        rate: measured at the threshold that brings it nearest to the target.
        starts: starting points of each kind of drift.
        relative: ours over it, over all kinds of drift, on those starting points.
    """

    detector: str
    task: str
    rate: float
    starts: int
    relative: Ratio


def partly(every: Sequence[Cell], own: frozenset[str]) -> list[Partly]:
    """Peers that :func:`overall` leaves out, on each data set where they were run."""
    whole = {name for name, _ in overall(every)}
    found = []
    for name in dict.fromkeys(name for cell in every for name in cell.delays if name not in whole | own):
        for task in dict.fromkeys(cell.task for cell in every if name in cell.delays):
            some = [cell for cell in every if cell.task == task]
            rates = [rate for rate, _ in some[0].curves[name]]
            rate = rates[TARGET] if len(rates) == len(RATES) else rates[0]
            starts = min(int(np.isfinite(cell.delays[name]).sum()) for cell in some)
            found.append(Partly(name, task, rate, starts, ratio(some, [name] * len(some))))
    return found


def overall(every: Sequence[Cell]) -> list[tuple[str, float]]:
    """Detectors that are in every cell, by the geometric mean of their delays."""
    names = frozenset.intersection(*(frozenset(cell.delays) & cell.reached for cell in every))
    return sorted(((n, geometric_mean([cell.mean(n) for cell in every])) for n in names), key=lambda pair: pair[1])


def _told(one: Ratio) -> str:
    return str(one) if one.upper <= GOAL else f"**{one}**"
