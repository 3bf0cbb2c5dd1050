"""Synthetic drift: a family's own change, what all share, and noise.

A client's change is step * (shared + own + noise): |own| = 1, |shared| as asked, |noise| =
1 / snr in expectation. Low-rank noise lies in one random subspace for all clients, as noise of
few effective directions does in a real net. The common direction is a constant added to
every coordinate, so that it shows in the mean (and in the sign of a KS statistic).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.cohorts_data.drifted import Drifted

STEP_SPREAD = 0.7


@dataclass(frozen=True, slots=True)
class Recipe:
    """One synthetic case.

    Attributes:
        sizes: members of each family.
        parameters: d.
        snr: |own| / |noise|, lengths (not energies).
        rank: dimensions of the noise; ``None`` for isotropic.
        steps: whether step lengths vary, uniformly in log over e^(+-0.7).
        shared: length of the change that all families share.
        common: length of the constant direction that all families share.
        halves: whether split-half reliabilities are measured.
        stable: clients that did not drift, with a third of the noise.
    """

    sizes: Sequence[int]
    parameters: int = 20_000
    snr: float = 1.0
    rank: int | None = None
    steps: bool = False
    shared: float = 0.0
    common: float = 0.0
    halves: bool = False
    stable: int = 0


def draw(recipe: Recipe, seed: int) -> Drifted:
    """Clients of a recipe; the same seed gives the same clients."""
    rng = np.random.default_rng([seed, recipe.parameters, *recipe.sizes])
    d = recipe.parameters
    families = np.repeat(np.arange(len(recipe.sizes)), recipe.sizes)
    n = len(families)
    noise = _NoiseSource(rng, d, recipe.rank, 1 / recipe.snr)
    signal = _directions(rng, len(recipe.sizes), d)
    if recipe.shared:
        signal += np.float32(recipe.shared) * _directions(rng, 1, d)
    signal += np.float32(recipe.common / np.sqrt(d))
    changes = noise(n)
    reliability = None
    if recipe.halves:
        reliability = _halves(changes, signal[families], noise(n))
    changes += signal[families]
    if recipe.steps:
        changes *= np.exp(rng.uniform(-STEP_SPREAD, STEP_SPREAD, (n, 1))).astype(np.float32)
    stable = noise(recipe.stable) / np.float32(3) if recipe.stable else None
    return Drifted(changes, families.astype(np.intp), reliability, stable)


def _halves(
    noise: NDArray[np.float32], signal: NDArray[np.float32], contrast: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Cosines of two updates whose mean is the client's: their noise is noise + contrast and noise - contrast."""
    first, second = signal + noise + contrast, signal + noise - contrast
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray(np.einsum("ij,ij->i", first, second, dtype=np.float64) / lengths)


def _directions(rng: np.random.Generator, count: int, d: int) -> NDArray[np.float32]:
    drawn = rng.standard_normal((count, d), np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.float32)


class _NoiseSource:
    """Noise rows of a given expected length."""

    def __init__(self, rng: np.random.Generator, d: int, rank: int | None, length: float) -> None:
        self.rng, self.d, self.length = rng, d, length
        self.span = None if rank is None else rng.standard_normal((rank, d), np.float32) / np.float32(np.sqrt(d))

    def __call__(self, rows: int) -> NDArray[np.float32]:
        if self.span is None:
            return self.rng.standard_normal((rows, self.d), np.float32) * np.float32(self.length / np.sqrt(self.d))
        rank = len(self.span)
        return self.rng.standard_normal((rows, rank), np.float32) @ self.span * np.float32(self.length / np.sqrt(rank))
