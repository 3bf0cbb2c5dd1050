"""Any monitor's threshold for a promised false-alarm rate: the nested block bootstrap, and what it refuses."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.promise.blocks import Blocks, dependence
from edge_agent.drift.promise.maxima import Maxima
from edge_agent.errors import DataError

StatisticPaths = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""(streams, batches, batch_size) row numbers of the reference, in the order in which a gateway would see them, to the
(streams, batches) statistics of a monitor that starts afresh on each stream; finite, a larger one is worse."""

Fit = Callable[[NDArray[np.int64]], StatisticPaths]
"""Row numbers of the reference (with repeats) to the monitor fitted on those rows alone."""

WARNING_FACTOR = 10.0
"""Warnings come this many times as often as alarms."""
WARNING_RATE_MOST = 0.05
SUPPORT_BATCHES = 0.5
"""Effective batches that the reference needs for each expected batch between alarms."""
OUTER_DRAWS = 39
OUTER_RANK = 36
"""The 36th of 39: a 40th would lie above it with probability 1/10."""

# Outer draws show how unsure the reference's distribution is, not how unsure its autocorrelation: that is read once,
# with an error that falls with the root of the effective batches. Measured on references worth 50 of them at 1e-2,
# AR(1) of 0.3 and 0.6: without this the rate is kept within 1.5x in 67 % of 24 references, with it in 83 %.
UNSHOWN = 10.0
"""Over the root of the effective batches: by how much of itself the upper limit is widened for what the outer draws do
not show."""
_ALARMS = 40
_ALARMS_OF_ALL_ROWS = 200
_BATCHES_MOST = 1_000_000
_BATCHES_MOST_OUTER = 40_000
# Expected alarms a stream: long enough for a monitor to settle, and for a level that is slightly wrong to show.
_STREAM_ALARMS = 0.4
_STREAM_BATCHES_MOST = 1200
_CHUNK_ROWS = 4_000_000
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Promise:
    """A threshold and what it promises.

    Attributes:
        rate: false alarms a batch that are promised.
        threshold: for ``rate``, with the reference's own uncertainty: in 9 of 10 references the rate is kept.
        warning_threshold: the same for ``warning_rate``.
        warning_rate: 10 times ``rate``, at most 0.05 (or ``rate``, if that is larger).
        point_threshold: for ``rate`` on the very rows of this reference, without that uncertainty; <= ``threshold``.
        lowest_rate: the lowest that this reference can promise.
        block_rows: rows a block of the bootstrap.
        effective_batches: as many independent ones say as much as this reference.
        evidence: all that in words, at most 400 characters.
    """

    rate: float
    threshold: float
    warning_threshold: float
    warning_rate: float
    point_threshold: float
    lowest_rate: float
    block_rows: int
    effective_batches: float
    evidence: str


def calibrate(
    fit: Fit,
    series: NDArray[Any],
    *,
    batch_size: int,
    rate: float,
    rng: "np.random.Generator",
    segments: NDArray[np.int64] | None = None,
    unsupported: bool = False,
    unshown: float = UNSHOWN,
    effort: float = 1.0,
    progress: Callable[[float], None] | None = None,
) -> Promise:
    """The threshold at which a monitor fitted on all rows of a reference keeps a false-alarm rate on data like them.

    The monitor is fitted on block-resampled references (outer draws) and run over streams of blocks drawn from the
    reference itself, as a monitor fitted on the reference is run over streams drawn from the world. Each outer draw
    gives the threshold that would have kept the rate; the 90 % upper limit of those is the promise's.

    Args:
        fit: the monitor, of any kind; called with ``np.arange(n)`` and with resampled row numbers. It is called about
            40 times, and what it returns about 45 times, with the same streams each time but for the first few.
        series: (n,) or (n, k) float, rows in the order in which they were measured: what the block length and the
            effective number of batches are read from. Give what the monitor judges (its losses, its scores), not raw
            features of which it uses a few.
        batch_size: rows a batch, >= 1.
        rate: false alarms a batch, 0 < rate < 1.
        rng: the only source of chance.
        segments: (n,) rising numbers of stretches without a gap, whose ends no block crosses; None: all is one.
        unsupported: also give a threshold for a rate below ``lowest_rate``, which is then aimed at and not promised.
        unshown: how much the outer draws leave out.
        effort: share of the streams that are simulated otherwise, > 0.
        progress: told the share that is done, 0 to 1.

    Returns:
        The threshold, the warning's threshold, and their evidence.

    Raises:
        DataError: fewer rows than two batches; or the reference does not support the rate: the message names the one
            that can be promised and how many rows the wanted one needs. ``lowest_rate`` gives it beforehand.

    Source: nested bootstrap (Hall 1986) over circular blocks (Politis and Romano 1992; Politis and White 2004).
    Cost: 40 fits and about 40 x 40 / rate batches (rates under 1e-3: as at 1e-3, and the tail beyond it exponential in
        the statistic), and 200 / rate batches, at most 1,000,000, with all rows. Memory: 4,000,000 row numbers.
    """
    effective, block = _supported(series, batch_size, rate, refuse=not unsupported)
    rows = len(series)
    blocks = Blocks.of(rows, max(block, math.ceil(rows ** (1 / 3))), segments)
    tell = progress or (lambda _share: None)
    fitted = fit(np.arange(rows))
    exact = simulated(
        fitted,
        blocks,
        batch_size=batch_size,
        rate=rate,
        rng=rng,
        effort=effort,
        progress=lambda share: tell(0.3 * share),
    )
    plan = _Plan.of(rate, effort * _ALARMS, _BATCHES_MOST_OUTER, _STREAM_ALARMS)
    index = blocks.batches(plan.streams, plan.batches, batch_size, rng)
    inner = Maxima.of(fitted(index))
    warning_rate = max(rate, min(WARNING_RATE_MOST, WARNING_FACTOR * rate))
    shifts = np.empty((OUTER_DRAWS, 2))
    for draw in range(OUTER_DRAWS):
        resampled = blocks.streams(1, rows, rng)[0]
        outer = Maxima.of(fit(resampled)(index))
        # More threshold than the monitor fitted on all rows needs, on the same streams.
        shifts[draw] = [outer.threshold_at(wanted) - inner.threshold_at(wanted) for wanted in (rate, warning_rate)]
        tell(0.3 + 0.7 * (draw + 1) / OUTER_DRAWS)
    upper = (1 + unshown / math.sqrt(effective)) * np.maximum(np.sort(shifts, axis=0)[OUTER_RANK - 1], 0.0)
    point = exact.threshold_at(rate)
    threshold = point + float(upper[0])
    warning = min(threshold, exact.threshold_at(warning_rate) + float(upper[1]))
    lowest = SUPPORT_BATCHES / effective
    return Promise(
        rate, threshold, warning, warning_rate, point, lowest, block, effective,
        evidence=(
            f"{rows} rows, worth {effective:.0f} independent batches of {batch_size}; blocks of {block} rows; "
            f"threshold {point:.4g} for {rate:.3g} a batch over {len(exact.whole) * exact.batches} resampled batches, "
            f"{threshold:.4g} as 90 % upper limit over {OUTER_DRAWS} references; lowest rate supported {lowest:.3g}"
        ),
    )  # fmt: skip


def simulated(
    paths: StatisticPaths,
    blocks: Blocks,
    *,
    batch_size: int,
    rate: float,
    rng: "np.random.Generator",
    effort: float = 1.0,
    progress: Callable[[float], None] | None = None,
) -> Maxima:
    """A monitor's maxima over streams that are long and many enough for the threshold at ``rate``.

    Args:
        paths: the monitor.
        blocks: how streams are drawn from the reference.
        batch_size: rows a batch.
        rate: false alarms a batch.
        rng: the only source of chance.
        effort: share of the streams that are simulated otherwise, > 0.
        progress: told the share that is done, 0 to 1.
    """
    plan = _Plan.of(rate, effort * _ALARMS_OF_ALL_ROWS, _BATCHES_MOST, _STREAM_ALARMS)
    chunk = max(1, _CHUNK_ROWS // (plan.batches * batch_size))
    parts = []
    for start in range(0, plan.streams, chunk):
        index = blocks.batches(min(chunk, plan.streams - start), plan.batches, batch_size, rng)
        parts.append(Maxima.of(paths(index)))
        if progress is not None:
            progress(min(1.0, (start + chunk) / plan.streams))
    return Maxima.joined(parts)


def lowest_rate(series: NDArray[Any], *, batch_size: int) -> float:
    """The lowest false-alarm rate a batch that this reference can promise; at most 1.

    Args:
        series: as for :func:`calibrate`.
        batch_size: rows a batch, >= 1.

    Raises:
        DataError: fewer rows than two batches.
    """
    _refuse_few(len(series), batch_size)
    return min(1.0, SUPPORT_BATCHES * batch_size * dependence(series).inflation / len(series))


@dataclass(frozen=True, slots=True)
class _Plan:
    """How many streams of how many batches are simulated."""

    streams: int
    batches: int

    @classmethod
    def of(cls, rate: float, alarms: float, most: int, stream_alarms: float) -> "_Plan":
        total = min(most, int(alarms / rate))
        batches = max(40, min(_STREAM_BATCHES_MOST, int(stream_alarms / rate)))
        return cls(max(100, total // batches), batches)


def _supported(series: NDArray[Any], batch_size: int, rate: float, *, refuse: bool) -> tuple[float, int]:
    if not 0 < rate < 1:
        raise DataError(f"a false-alarm rate of {rate} a batch cannot be promised", "give one between 0 and 1")
    _refuse_few(len(series), batch_size)
    depends = dependence(series)
    effective = len(series) / (batch_size * depends.inflation)
    lowest = SUPPORT_BATCHES / effective
    if refuse and rate < lowest * (1 - _ROUNDING):
        needed = math.ceil(len(series) * lowest / rate)
        raise DataError(
            f"{len(series)} reference rows, worth {effective:.1f} independent batches of {batch_size}, do not support "
            f"a false-alarm rate of {rate:.3g} a batch",
            f"promise {_rounded_up(lowest):.2g} a batch or more, or give about {needed} rows",
        )
    return effective, depends.block_rows


def _rounded_up(rate: float) -> float:
    """To two digits, so that what is printed is supported."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return math.ceil(rate / unit * (1 - 1e-9)) * unit


def _refuse_few(rows: int, batch_size: int) -> None:
    if rows < 2 * batch_size:
        raise DataError(
            f"{rows} reference rows cannot calibrate batches of {batch_size}",
            f"give at least {2 * batch_size} rows, or a smaller batch size",
        )
