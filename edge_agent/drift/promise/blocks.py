"""How far a reference's rows depend on each other, and streams drawn from it in blocks that keep that."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The lags whose correlation is looked at reach this many times the last one that stands out (Politis and White 2004).
_WINDOW_FACTOR = 2
_STANDS_OUT = 2.0
# Blocks longer than this share of the reference would leave too few different ones to draw.
_LONGEST_SHARE = 20
# The means of so many parts of a series, and how many times the variance that its autocorrelation explains theirs may
# have: 1e-4 quantiles of chi-square over its degrees of freedom. Beyond, the level itself moves slowly.
_PARTS = ((20, 2.67), (8, 4.27))
# Twice the length that is best for the variance of a mean: a threshold in the tail suffers more from the variance that
# blocks lose at their ends than from having fewer of them.
_TAIL_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Dependence:
    """What autocorrelation does to a reference.

    Attributes:
        block_rows: rows a block, >= 1; 1: rows are as good as independent.
        inflation: variance of a long mean over what independent rows would give, >= 1.
    """

    block_rows: int
    inflation: float


def dependence(series: NDArray[Any]) -> Dependence:
    """Block length and variance inflation of a reference; of several series, the largest of each.

    Args:
        series: (n,) or (n, k) float, in the order in which the rows were measured, n >= 1; a value that is not finite
            counts as the series' mean, a constant series as independent.

    Returns:
        ``block_rows`` at most n / 20 (at least 1).

    A level that moves over the reference (more than chance does, at 1e-4) counts as dependence of the longest range: it
    will move again.

    Source: Politis and White 2004 with the correction of Patton, Politis and White 2009, circular blocks, from the
        autocovariances under a flat-top window; lengths doubled (``_TAIL_FACTOR``). A lag stands out above
        2 sqrt(log10(n) / n), and the last one that does is followed by max(5, sqrt(log10 n)) that do not.
    Cost: O(k n log n).
    """
    columns = np.asarray(series, np.float64).reshape(len(series), -1)
    found = [_one_series(columns[:, number]) for number in range(columns.shape[1])]
    longest = max(1, len(columns) // _LONGEST_SHARE)
    return Dependence(
        block_rows=min(longest, max((one.block_rows for one in found), default=1)),
        inflation=max((one.inflation for one in found), default=1.0),
    )


@dataclass(frozen=True, slots=True)
class Blocks:
    """How streams are drawn from a reference.

    Attributes:
        rows: rows a block, >= 1.
        first: (n,) int64 the first row of each row's segment.
        lengths: (n,) int64 rows in each row's segment.
    """

    rows: int
    first: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, rows: int, block: int, segments: NDArray[np.int64] | None = None) -> "Blocks":
        """Of a reference of ``rows`` rows; ``segments`` (n,) are numbers of stretches that are each without a gap."""
        numbers = np.zeros(rows, np.int64) if segments is None else segments
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        lengths = np.diff(np.append(starts, rows))
        return cls(block, np.repeat(starts, lengths), np.repeat(lengths, lengths))

    def streams(self, streams: int, length: int, rng: "np.random.Generator") -> NDArray[np.int64]:
        """Streams of row numbers, joined from blocks of consecutive rows; a segment's end is followed by its start.

        Args:
            streams: how many.
            length: rows a stream.
            rng: the only source of chance.

        Returns:
            (streams, length) int64 in 0..n-1; where in a stream the first block ends is random.

        Source: circular block bootstrap (Politis and Romano 1992).
        Cost: O(streams x length).
        """
        blocks = length // self.rows + 2
        starts = rng.integers(0, len(self.first), (streams, blocks))[:, :, None]
        first = self.first[starts]
        joined = first + (starts - first + np.arange(self.rows)) % self.lengths[starts]
        phase = rng.integers(0, self.rows, streams)
        cut: NDArray[np.int64] = joined.reshape(streams, -1)[
            np.arange(streams)[:, None], phase[:, None] + np.arange(length)
        ]
        return cut

    def batches(self, streams: int, batches: int, batch_size: int, rng: "np.random.Generator") -> NDArray[np.int64]:
        """The same as (streams, batches, batch_size)."""
        return self.streams(streams, batches * batch_size, rng).reshape(streams, batches, batch_size)


def block_streams(rows: int, length: int, streams: int, block: int, rng: "np.random.Generator") -> NDArray[np.int64]:
    """``Blocks.streams`` of a reference that is one segment."""
    return Blocks.of(rows, block).streams(streams, length, rng)


def long_mean_inflation(values: NDArray[np.float64]) -> float:
    """Variance of a long mean over what independent rows would give, >= 1, by autocorrelation alone.

    A level that moves over the whole series counts for nothing beside it (:func:`dependence` has that in).

    Args:
        values: (n,) in the order in which they were measured; one that is not finite counts as their mean.
    """
    spectral = _spectral(values)
    return 1.0 if spectral is None else spectral.inflation


@dataclass(frozen=True, slots=True)
class _Spectral:
    """Of one series that is not constant: less its mean; its variance; what autocorrelation says of it."""

    centred: NDArray[np.float64]
    variance: float
    inflation: float
    block_rows: int


def _one_series(values: NDArray[np.float64]) -> Dependence:
    found = _spectral(values)
    if found is None:
        return Dependence(1, 1.0)
    moving = _moving(found.centred, found.inflation * found.variance)
    if moving > 1:
        return Dependence(len(values), found.inflation * moving)
    return Dependence(found.block_rows, found.inflation)


def _spectral(values: NDArray[np.float64]) -> _Spectral | None:
    """None: the series is constant, or its spectrum at zero is not above zero."""
    finite = np.isfinite(values)
    if not finite.any():
        return None
    centred = np.where(finite, values - values[finite].mean(), 0.0)
    covariance = _autocovariance(centred)
    if covariance[0] <= 1e-12 * max(1.0, float(np.square(values[finite]).mean())):
        return None
    lags = np.arange(_window(covariance / covariance[0], len(values)) + 1)
    weights = np.clip(2.0 * (1.0 - lags / max(1, lags[-1])), 0.0, 1.0) if len(lags) > 1 else np.ones(1)
    twice = np.where(lags > 0, 2.0, 1.0) * weights * covariance[: len(lags)]
    spectrum = float(twice.sum())
    if spectrum <= 0:
        return None
    slope = float((twice * lags).sum())
    best = (2.0 * slope**2 / (4.0 / 3.0 * spectrum**2)) ** (1 / 3) * len(values) ** (1 / 3)
    length = math.ceil(_TAIL_FACTOR * best) if best > 0.5 else 1
    variance = float(covariance[0])
    return _Spectral(centred, variance, max(1.0, spectrum / variance), max(1, length))


def _moving(centred: NDArray[np.float64], explained: float) -> float:
    """How many times the variance of parts' means is what is explained, where that is more than chance; else 1."""
    found = 1.0
    for parts, limit in _PARTS:
        size = len(centred) // parts
        if size > 1:
            means = centred[: size * parts].reshape(parts, size).mean(axis=1)
            ratio = float(means.var(ddof=1)) * size / explained
            found = max(found, ratio if ratio > limit else 1.0)
    return found


def _autocovariance(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """At lags 0..n-1, divided by n."""
    size = 1 << (2 * len(centred) - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance: NDArray[np.float64] = np.fft.irfft(power, size)[: len(centred)] / len(centred)
    return covariance


def _window(correlation: NDArray[np.float64], rows: int) -> int:
    """Twice the last lag that stands out before a run of lags that do not; 0: none does."""
    quiet = max(5, math.ceil(math.sqrt(math.log10(max(rows, 2)))))
    most = max(1, min(len(correlation) - 1, math.ceil(math.sqrt(rows)) + quiet))
    bound = _STANDS_OUT * math.sqrt(math.log10(max(rows, 2)) / rows)
    loud = np.abs(correlation[1 : most + 1]) >= bound
    run = 0
    for lag, stands_out in enumerate(loud, start=1):
        run = 0 if stands_out else run + 1
        if run == quiet:
            return min(_WINDOW_FACTOR * (lag - quiet), len(correlation) - 1)
    return min(_WINDOW_FACTOR * int(np.flatnonzero(loud)[-1] + 1) if loud.any() else 0, len(correlation) - 1)
