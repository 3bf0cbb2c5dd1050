"""Importances that tilt a stretch, and ways of tampering with sensors."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STRENGTHS = (0.0, 0.5, 1.0, 1.5)
KINDS = ("projection", "feature", "ranked projection", "ranked feature")
CLIP = 3.0


def importances(features: Floats, kind: str, strength: float, rng: np.random.Generator) -> Floats:
    """(n,) chances of being drawn: exponential in a random direction or feature, raw or as normal scores.

    The score has unit deviation and is clipped at three, so at strength 1.5 the largest chance is e^9 times the least.
    """
    scaled = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-9)
    if kind.endswith("projection"):
        score = scaled @ rng.normal(size=features.shape[1])
    else:
        score = scaled[:, rng.integers(features.shape[1])] * rng.choice([-1, 1])
    if kind.startswith("ranked"):
        score = _normal_scores(score)
    score = np.clip((score - score.mean()) / (score.std() + 1e-9), -CLIP, CLIP)
    weights = np.exp(strength * score)
    return np.asarray(weights / weights.sum())


def tampered(features: Floats, spread: Floats, rng: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Readings through sensors that were swapped, rotated, rescaled, stuck, offset or made noisy.

    Args:
        features: (n, f) readings of a window.
        spread: (f,) their deviation in the stretch.
    """
    width = features.shape[1]
    some = rng.choice(width, max(2, width // 4), replace=False)
    two = some[:2]
    swapped, rotated, stuck, one = features.copy(), features.copy(), features.copy(), features.copy()
    swapped[:, two] = features[:, two[::-1]]
    rotated[:, some] = features[:, np.roll(some, 1)]
    stuck[:, some] = features[0, some]
    one[:, some[0]] = features[0, some[0]]
    turn, _ = np.linalg.qr(rng.normal(size=(width, width)))
    yield "two sensors swapped", swapped
    yield "a quarter rotated", rotated
    yield "all permuted", features[:, rng.permutation(width)]
    yield "turned in space", features / spread @ turn * spread
    for scale in (0.5, 0.8, 1.1, 1.3, 2.0, 10.0):
        yield f"all scaled by {scale:g}", features * scale
    for scale in (1.3, 2.0, 0.5):
        part = features.copy()
        part[:, some] *= scale
        yield f"a quarter scaled by {scale:g}", part
    yield "a quarter stuck", stuck
    yield "one stuck", one
    for size in (0.3, 1.0):
        yield f"noise of {size:g} deviations", features + rng.normal(size=features.shape) * size * spread
    for size in (0.5, 2.0):
        yield f"all offset by {size:g} deviations", features + size * spread


def _normal_scores(score: Floats) -> Floats:
    """Ranks as the quantiles of a large normal sample; ties in the order of the rows."""
    ranks = np.argsort(np.argsort(score, kind="stable"), kind="stable")
    normal = np.sort(np.random.default_rng(0).normal(size=len(score)))
    return normal[ranks]
