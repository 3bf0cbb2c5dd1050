"""``python -m tests.benchmarks cohort_oracle``: what could be told of gas families by who knows their noise exactly.

Half of the draws of each batch tell an oracle what its updates' noise is; the other half's clients are parted with that
knowledge, with the noise of other batches or of stable clients, and without. The cohorter's own score is asked for the
price of a limit that keeps 97 % of the draws of batch 2 in one cohort. Three minutes with 100 draws a batch.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage

from server_bridge.cohorts.families import full_reliability
from server_bridge.cohorts.net_families import best_division
from tests.benchmarks.cohorts_data.drifted import Drifted, adjusted_rand
from tests.benchmarks.cohorts_data.gas import GasFleet
from tests.shared_data import DATA

FIRST_SEED, DRAWS, CLIENTS, FAMILY = 5000, 100, 8, 4
STABLE, BATCHES = 1, (2, 3, 4, 6)
SHAPES = ((3, 4, 6, 2), (2, 3), (3, 6), (3, 4))
PAIRS = ((3, 6), (3, 4), (4, 6), (2, 4), (2, 6), (2, 3))
LEVEL = 0.97
Matrix = NDArray[np.float64]
Form = Callable[[Matrix], Matrix]


@dataclass(frozen=True)
class Noise:
    """Principal directions (k, d) of what clients of one batch differ in, and the share of each that is kept."""

    directions: Matrix
    kept: Matrix

    @classmethod
    def of(cls, batches: Sequence[Matrix], floor: float) -> "Noise":
        """From the updates of several batches' clients; variances below ``floor`` of the largest count as that."""
        _, lengths, directions = np.linalg.svd(np.concatenate([rows - rows.mean(0) for rows in batches]), False)
        least = floor * lengths[0] ** 2
        return cls(directions, np.sqrt(least / (lengths**2 + least)))

    def whitened(self, rows: Matrix) -> Matrix:
        """(n, d) rows in which the noise is about as large in every direction."""
        return np.asarray(rows - ((rows @ self.directions.T) * (1 - self.kept)) @ self.directions, np.float64)


def unit(rows: Matrix) -> Matrix:
    """Rows of length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float64)


def roots(rows: Matrix) -> Matrix:
    """Signed square roots, of length 1."""
    return unit(np.sign(rows) * np.sqrt(np.abs(rows)))


def main(arguments: Sequence[str]) -> None:
    """Draw, learn the noise, part, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks cohort_oracle")
    parser.add_argument("--draws", type=int, default=DRAWS, help=f"of each batch (default {DRAWS})")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        fleet = GasFleet(DATA, Path(folder))
        seeds = range(FIRST_SEED, FIRST_SEED + options.draws)
        draws = {batch: [fleet.draw([(batch, CLIENTS)], seed) for seed in seeds] for batch in (STABLE, *BATCHES)}
    half = options.draws // 2
    known = {batch: mine[:half] for batch, mine in draws.items()}
    print(json.dumps(told_how_many(known, {b: mine[half:] for b, mine in draws.items()}), indent=1))
    print(json.dumps(by_the_score(known, known, None), indent=1))
    noise = Noise.of([_all(known[batch], roots) for batch in BATCHES], 0.03)
    print(json.dumps(by_the_score(known, {b: mine[half:] for b, mine in draws.items()}, noise), indent=1))


def told_how_many(known: Mapping[int, Sequence[Drifted]], draws: Mapping[int, Sequence[Drifted]]) -> dict[str, object]:
    """Share of draws that Ward's linkage parts exactly, told how many families there are, by whose noise is known."""
    units = {batch: _all(mine, unit) for batch, mine in known.items()}
    noises: dict[str, Noise | None] = {
        "nothing": None,
        "these batches": Noise.of([units[batch] for batch in BATCHES], 0.03),
        "batches 4 and 6": Noise.of([units[4], units[6]], 0.03),
        "stable clients": Noise.of([units[STABLE]], 0.3),
        "32 stable clients": Noise.of([units[STABLE][:32]], 0.3),
    }
    return {name: {str(shape): _exact(draws, shape, noise) for shape in SHAPES} for name, noise in noises.items()}


def _exact(draws: Mapping[int, Sequence[Drifted]], shape: Sequence[int], noise: Noise | None) -> float:
    truth, right = np.repeat(np.arange(len(shape)), FAMILY), []
    for members in _families(draws, shape):
        rows = unit(np.concatenate([changes for changes, _ in members]))
        rows -= rows.mean(0)
        tree = linkage(rows if noise is None else noise.whitened(rows), "ward")
        right.append(adjusted_rand(truth, cut_tree(tree, [len(shape)])[:, 0]) == 1)
    return float(np.mean(right))


def by_the_score(
    known: Mapping[int, Sequence[Drifted]], draws: Mapping[int, Sequence[Drifted]], noise: Noise | None
) -> dict[str, object]:
    """Level and power of the cohorter's first division, at its limit and at one that keeps 97 % of batch 2.

    Args:
        known: what the noise is of; says only how many clients told it.
        draws: what is parted.
        noise: what roots are whitened by; ``None`` for nothing, as the cohorter has it.
    """
    found: dict[str, object] = {"noise known of clients": sum(map(len, known.values())) * CLIENTS if noise else 0}
    for reliable in (False, True) if noise is None else (False,):
        stays = {batch: [_division([_whole(draw)], noise, reliable)[0] for draw in draws[batch]] for batch in BATCHES}
        shift = float(np.quantile(stays[2], LEVEL, method="higher"))
        told: dict[str, object] = {"stay": {b: float(np.mean(np.array(m) <= 0)) for b, m in stays.items()}}
        parted = {pair: [_division(m, noise, reliable) for m in _families(draws, pair)] for pair in PAIRS}
        for name, least in (("limit as it is", 0.0), (f"lower by {shift:.3f}", shift)):
            told[name] = {str(p): float(np.mean([ok and m > least for m, ok in each])) for p, each in parted.items()}
        found["reliabilities" if reliable else "no reliabilities"] = told
    return found


def _division(members: Sequence[tuple[Matrix, Matrix]], noise: Noise | None, reliable: bool) -> tuple[float, bool]:
    """How far the best division lies beyond its limit, and whether it parts the members rightly."""
    rows = roots(np.concatenate([changes for changes, _ in members]))
    rows = rows if noise is None else unit(noise.whitened(rows))
    halves = np.concatenate([agreement for _, agreement in members])
    margin, found = best_division(rows @ rows.T, full_reliability(halves) if reliable else None)
    truth = np.repeat(np.arange(len(members)), [len(changes) for changes, _ in members])
    return margin, found is not None and adjusted_rand(truth, found.sides.astype(np.intp)) == 1


def _whole(draw: Drifted) -> tuple[Matrix, Matrix]:
    assert draw.reliability is not None
    return draw.changes.astype(np.float64), draw.reliability


def _families(draws: Mapping[int, Sequence[Drifted]], shape: Sequence[int]) -> list[list[tuple[Matrix, Matrix]]]:
    """Four clients of each batch of the shape, two lots a draw."""
    lots = []
    for number in range(len(draws[shape[0]])):
        whole = [_whole(draws[batch][number]) for batch in shape]
        lots += [[(c[part], h[part]) for c, h in whole] for part in (slice(0, FAMILY), slice(FAMILY, CLIENTS))]
    return lots


def _all(draws: Sequence[Drifted], form: Form) -> Matrix:
    return np.concatenate([form(draw.changes.astype(np.float64)) for draw in draws])
