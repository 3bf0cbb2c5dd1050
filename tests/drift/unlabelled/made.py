"""Made streams and references for the label-free monitor."""

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.drift.unlabelled import LabelFreeParams, LabelFreeState, step
from edge_agent.drift.unlabelled.fitting import fitted

BATCH = 32
CLASSES = 3
_MODEL = np.random.default_rng(99)
_HIDDEN = _MODEL.normal(size=(64, 12)) * 0.6
_HEAD = _MODEL.normal(size=(12, CLASSES))


def mixed(features: int) -> NDArray[np.float64]:
    """(f, f) a fixed mixing that makes features depend on each other."""
    return np.random.default_rng(features).normal(size=(features, features)) + 1.5 * np.eye(features)


def rows(count: int, features: int, rng: np.random.Generator, *, correlation: float = 0.0) -> NDArray[np.float64]:
    """(count, f) normal features; neighbouring rows correlate by ``correlation``."""
    fresh = rng.normal(size=(count, features))
    for place in range(1, count if correlation else 0):
        fresh[place] = correlation * fresh[place - 1] + np.sqrt(1 - correlation**2) * fresh[place]
    return fresh @ mixed(features)


def observed(features: NDArray[np.float64], *, embeddings: bool = True) -> Observed:
    """As a small net serves them: an embedding, and logits of three classes."""
    hidden = np.maximum(np.nan_to_num(features) @ _HIDDEN[: features.shape[1]], 0.0)
    count = len(features)
    return Observed(
        ids=[str(place) for place in range(count)],
        times_s=np.arange(count, dtype=np.float64),
        features=features.astype(np.float32),
        outputs=(hidden @ _HEAD).astype(np.float32),
        embeddings=hidden.astype(np.float32) if embeddings else None,
    )


def reference(seen: Observed, *, names: tuple[str, ...] | None = None) -> Reference:
    """Of samples whose labels are what the model says."""
    count, width = len(seen), seen.features.reshape(len(seen), -1).shape[1]
    return Reference(
        observed=seen,
        losses=np.zeros(count),
        labels=np.argmax(seen.outputs, axis=1),
        classes=CLASSES,
        segments=np.zeros(count, np.int64),
        names=names or tuple(f"x{place}" for place in range(width)),
        units=("bar",) * width,
    )


@cache
def params(features: int = 6, *, embeddings: bool = True) -> LabelFreeParams:
    """A monitor of 2,000 independent rows; its threshold is one that 10,000 batches hardly reach."""
    rng = np.random.default_rng(5)
    seen = observed(rows(2000, features, rng), embeddings=embeddings)
    fit = fitted(reference(seen), batch_size=BATCH, rate=0.01, rng=rng)
    return replace(fit.params, threshold=20.0, warning_threshold=14.0)


def run(
    monitor: LabelFreeParams, state: LabelFreeState, seen: Observed, *, batch: int = BATCH
) -> tuple[LabelFreeState, list[float]]:
    """Batch after batch; the state, and the statistics."""
    found = []
    for start in range(0, len(seen), batch):
        state, finding = step(monitor, state, seen.part(start, start + batch))
        found.append(finding.statistic)
    return state, found
