"""The label-free monitor of a bundle, from the bundle's reference."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.promise import Promise, StatisticPaths
from edge_agent.drift.promise import calibrate as promised
from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.reference import Reference
from edge_agent.drift.unlabelled.fitting import Fitted, fitted, judged_series
from edge_agent.drift.unlabelled.params import LabelFreeParams
from edge_agent.drift.unlabelled.paths import STREAMS_AT_ONCE, batch_means, stream_maxima
from edge_agent.wire.manifest import MonitorSpec, PromiseSpec

# Of a reference without autocorrelation the outer draws show all. Measured, 36 references of 500 to 2,000 rows, AR(1)
# up to 0.6: the rate is kept within 1.5x on all of them by 0 too; three is for longer memories.
_UNSHOWN = 3.0


def calibrate(
    reference: Reference,
    *,
    batch_size: int,
    rate: float,
    rng: "np.random.Generator",
    unsupported: bool = False,
    progress: Callable[[float], None] | None = None,
) -> tuple[MonitorSpec, dict[str, NDArray[Any]]]:
    """The manifest's ``label-free`` entry, and its arrays for ``drift.safetensors``.

    Args:
        reference: in time order; features named ``name[0]``, ``name[1]`` ... in turn are sensors' windows.
        batch_size: served samples a batch.
        rate: false alarms a batch that are promised.
        rng: the only source of chance.
        unsupported: aim at a rate that the reference does not support, too; then nothing is promised.
        progress: told the share that is done, 0 to 1.

    Raises:
        DataError: the reference does not support the rate, or is too short.
    """
    params, promise = calibrated(
        reference, batch_size=batch_size, rate=rate, rng=rng, unsupported=unsupported, progress=progress
    )
    stated = PromiseSpec(
        lowest_rate=min(1.0, promise.lowest_rate),
        block_rows=promise.block_rows,
        effective_batches=promise.effective_batches,
    )
    return params.to_spec(evidence=promise.evidence, promise=stated)


def calibrated(
    reference: Reference,
    *,
    batch_size: int,
    rate: float,
    rng: "np.random.Generator",
    unsupported: bool = False,
    progress: Callable[[float], None] | None = None,
) -> tuple[LabelFreeParams, Promise]:
    """The monitor, and what its threshold promises; arguments as for :func:`calibrate`."""
    fit = fitted(reference, batch_size=batch_size, rate=rate, rng=rng)
    series = judged_series(fit.params.scoring, fit.scores)
    promise = promised(
        Refits(fit),
        series,
        batch_size=batch_size,
        rate=rate,
        rng=rng,
        segments=reference.segments,
        unsupported=unsupported,
        unshown=_UNSHOWN * (1.0 - 1.0 / dependence(series).inflation),
        progress=progress,
    )
    warning = min(promise.warning_threshold, promise.threshold)
    return replace(fit.params, threshold=promise.threshold, warning_threshold=warning), promise


@dataclass
class Refits:
    """The monitor refitted on rows of the reference.

    Most refits are run over the same streams: from their second time on the batch means are kept. Streams that are seen
    once may be many times as many, and are worked off a few at a time: of wide inputs their means would be gigabytes.
    """

    fit: Fitted
    _index: NDArray[np.int64] | None = field(default=None, repr=False)
    _means: NDArray[np.float32] | None = field(default=None, repr=False)

    def __call__(self, rows: NDArray[np.int64]) -> StatisticPaths:
        """The monitor as if these rows (n,), with repeats, were the reference.

        Cost: O(n x columns); its paths O(batches x (batch_size + 60) x columns), without ``batch_size`` where kept.
        """
        params = self.fit.refitted(rows)
        return lambda index: self._maxima(params, index)

    def _maxima(self, params: LabelFreeParams, index: NDArray[np.int64]) -> NDArray[np.float64]:
        if self._index is not index:
            self._index, self._means = index, None
            parts = (index[start : start + STREAMS_AT_ONCE] for start in range(0, len(index), STREAMS_AT_ONCE))
            return np.concatenate([stream_maxima(params, batch_means(self.fit.scores, part)) for part in parts])
        if self._means is None:
            self._means = batch_means(self.fit.scores, index)
        return stream_maxima(params, self._means)
