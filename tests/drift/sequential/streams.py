"""Labelled batches for the monitor, and a monitor that is made in a moment."""

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Labelled
from edge_agent.drift.sequential.loss_level import LossLevelParams, LossLevelState, step
from edge_agent.drift.sequential.table import Distribution
from tests.drift.streams import clean_losses

SIZE = 32


def labelled(losses: NDArray[np.float64]) -> Labelled:
    return Labelled(
        [str(number) for number in range(len(losses))], np.zeros(len(losses)), losses, np.zeros(len(losses))
    )


def params_of(losses: NDArray[np.float64], *, threshold: float = 9.6) -> LossLevelParams:
    """The threshold is about that of 1e-3 for batches of 32 independent samples."""
    return LossLevelParams(
        threshold=threshold,
        warning_threshold=threshold - 2.0,
        batch_size=SIZE,
        inflation=1.0,
        distribution=Distribution.of(losses),
    )


def default_params(seed: int = 0) -> LossLevelParams:
    return params_of(clean_losses(5000, np.random.default_rng(seed)))


def run(
    params: LossLevelParams, state: LossLevelState, losses: NDArray[np.float64], size: int = SIZE
) -> tuple[LossLevelState, list[Finding]]:
    found = []
    for start in range(0, len(losses), size):
        state, finding = step(params, state, labelled(losses[start : start + size]))
        found.append(finding)
    return state, found
