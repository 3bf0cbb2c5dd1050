"""Thresholds from held-out data, with a stated false-alarm rate."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.loss_rise import PUBLISHED_GAMMA, LossRiseParams
from edge_agent.drift.rises import clip_losses, resampled_rises
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec

CALIBRATION_DRAWS = 100_000
# A regression has no loss of a mere guess to clip at; this quantile of its held-out losses keeps a
# few outliers from ruling a batch and leaves a drift room to show.
REGRESSION_CLIP_QUANTILE = 0.99
REGRESSION_FLOOR_SHARE = 0.05


def calibrate_loss_rise(
    losses: NDArray[Any],
    *,
    batch_size: int,
    classes: int | None,
    quantile: float = 1e-3,
    safety: float = 2.0,
    patience: int = 1,
    warmup_batches: int = 8,
    rng: "np.random.Generator",
) -> MonitorSpec:
    """Calibrate the loss-rise monitor for one model.

    gamma is ``safety`` times the upper ``quantile`` of the rises between resampled batches of the
    clipped losses, and never below the published 0.1 (regression: 5 % of the clip), since a net
    that is nearly perfect on its held-out data would flag the least change.

    Args:
        losses: (n,) per-sample losses on data that neither training nor evaluation uses,
            n >= 2 x batch_size; one that is not finite counts as the clip (classification only).
        batch_size: labelled samples a batch.
        classes: number of classes (clip ln(classes)); None for a regression (clip at the 0.99
            quantile of the losses).
        quantile: false-alarm rate a batch that the rule has before the safety factor.
        safety: factor on the quantile: gateways' own streams vary more than the pooled held-out data.
        patience: exceedances in a row that fire.
        warmup_batches: batches on new weights before they can be flagged.
        rng: the source of the resampling.

    Returns:
        The manifest's ``loss-rise`` entry, its false-alarm rate and evidence stated.

    Raises:
        DataError: too few losses, not one dimension, or losses that say nothing.

    Source:
        N L et al. 2024 (CLMA), Algorithm 4; threshold calibrated instead of 0.1.

    Cost:
        O(100,000 x batch_size), about 0.1 s for 32.
    """
    if losses.ndim != 1:
        raise DataError(f"held-out losses of shape {losses.shape} cannot calibrate", "give one loss a sample")
    refuse_few(len(losses), batch_size)
    clip = _clip(losses.astype(np.float64), classes)
    clipped = clip_losses(losses.astype(np.float64), clip)
    params = LossRiseParams(gamma=0.0, batch_size=batch_size, clip=clip, quantile=quantile, safety=safety)
    rises = resampled_rises(clipped, batch_size=batch_size, lookback=params.lookback, draws=CALIBRATION_DRAWS, rng=rng)
    raw = float(np.quantile(rises, 1 - quantile))
    floor = PUBLISHED_GAMMA if classes is not None else REGRESSION_FLOOR_SHARE * clip
    calibrated = LossRiseParams(
        gamma=max(floor, safety * raw),
        batch_size=batch_size,
        clip=clip,
        patience=patience,
        warmup_batches=warmup_batches,
        quantile=quantile,
        safety=safety,
    )
    beyond = int((rises > calibrated.gamma).sum())
    return MonitorSpec(
        parameters=calibrated.to_parameters(),
        batch_size=batch_size,
        false_alarm_rate=quantile,
        evidence=(
            f"{len(losses)} held-out losses, mean {clipped.mean():.4g} clipped at {clip:.4g}; "
            f"{CALIBRATION_DRAWS} resampled rises: upper {quantile:g} quantile {raw:.4g}, times {safety:g}; "
            f"{beyond} beyond gamma {calibrated.gamma:.4g}"
        ),
    )


def refuse_few(losses: int, batch_size: int) -> None:
    """Before work is done towards a calibration that must fail.

    Raises:
        DataError: fewer losses than two batches take.
    """
    if losses < 2 * batch_size:
        raise DataError(
            f"{losses} held-out losses cannot calibrate batches of {batch_size}",
            f"give at least {2 * batch_size} held-out samples, or a smaller batch size",
        )


def _clip(losses: NDArray[np.float64], classes: int | None) -> float:
    if classes is not None:
        return math.log(classes)
    if not np.isfinite(losses).all():
        raise DataError("a held-out loss of the regression is not finite", "check the held-out data and the model")
    clip = float(np.quantile(losses, REGRESSION_CLIP_QUANTILE))
    if clip <= 0:
        raise DataError(
            "the held-out losses are zero: nothing can be calibrated", "give data the model was not fitted on"
        )
    return clip
