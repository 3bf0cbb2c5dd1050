"""The default's candidates on short references of real losses: their level, and how late they tell a real drift."""

import numpy as np

from edge_agent.drift.promise import calibrate
from edge_agent.drift.promise.blocks import Blocks, dependence
from edge_agent.drift.sequential.calibration import fitted, judged_series
from edge_agent.drift.sequential.table import Distribution, binned
from tests.benchmarks.false_alarms_data.candidates import fit_of, on_bins
from tests.benchmarks.false_alarms_data.level import Rate, first_alarms
from tests.benchmarks.false_alarms_data.worlds import BATCH, Floats, Stretch

REFERENCE_ROWS = 500
STREAMS, QUIET_BATCHES, AFTER_BATCHES = 40, 50, 150


def short_real(stretch: Stretch, name: str, rate: float, batches: int, seed: int) -> Rate:
    """Calibrated on few rows, drawn in blocks; judged on others of the same stretch, and on what came later.

    Args:
        stretch: real losses.
        name: of the candidate.
        rate: false alarms a batch that are aimed at; so few rows can hardly promise it.
        batches: without drift that are looked at.
        seed: of the reference and the streams.
    """
    rng = np.random.default_rng([seed, 6])
    pool = Blocks.of(len(stretch.first), dependence(judged_series(stretch.first)).block_rows)
    losses = stretch.first[pool.streams(1, REFERENCE_ROWS, rng)[0]]
    series = judged_series(losses)
    if name == "e-detector":
        promise = fitted(losses, batch_size=BATCH, rate=rate, rng=rng, unsupported=True)[1]
    else:
        promise = calibrate(fit_of(name, losses), series, batch_size=BATCH, rate=rate, rng=rng, unsupported=True)
    distribution, inflation = Distribution.of(losses), dependence(series).inflation

    def judged(streams: Floats) -> Floats:
        numbers = binned(distribution.knots, streams.ravel())
        return on_bins(name, distribution, inflation, numbers)(np.arange(streams.size).reshape(streams.shape))

    quiet = stretch.first[pool.batches(max(1, batches // 200), 200, BATCH, rng)]
    later = stretch.later[seed % len(stretch.later)]
    after = later[Blocks.of(len(later), pool.rows).batches(STREAMS, AFTER_BATCHES, BATCH, rng)]
    drifting = np.concatenate([stretch.first[pool.batches(STREAMS, QUIET_BATCHES, BATCH, rng)], after], axis=1)
    above = (judged(drifting) > promise.threshold)[:, QUIET_BATCHES:]
    waited = np.where(above.any(axis=1), above.argmax(axis=1) + 1, AFTER_BATCHES)
    counted = first_alarms(judged(quiet), promise.threshold)
    return Rate("candidates", f"{name}, {stretch.name}", rate, *counted, delay=round(float(waited.mean()), 2))
