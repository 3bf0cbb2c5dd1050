"""Our label-free monitor and Fed-ADE's signals on features, outputs and embeddings, as statistics a batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.drift.unlabelled.fitting import fitted
from edge_agent.drift.unlabelled.paths import stream_maxima
from tests.benchmarks.drift_data.measure import RATES, TARGET, Swept, sweep_paths
from tests.benchmarks.drift_data.streams import BATCH, Drawn
from tests.benchmarks.drift_data.tasks import Floats, Judged, Rows

NAME = "label-free"


def sweep(drawn: Drawn) -> Swept:
    """The monitor's alarms at the benchmark's rates; it is fitted as its calibration does, only the threshold is swept.

    Raises:
        ValueError: the streams were drawn without features.
    """
    fits = [_fit(drawn, rows, judged, number) for number, (rows, judged) in enumerate(drawn.references)]

    def path(kind: str, number: int, first: int) -> Floats:
        streams = drawn.drifts[kind] if kind else drawn.stationary
        if streams.features is None or streams.outputs is None or streams.embeddings is None:
            raise ValueError("the streams have no features: draw them wide")
        used = slice(first, first + (int(streams.lengths[number]) - first) // BATCH * BATCH)
        every = (streams.features, streams.outputs, streams.embeddings)
        found: Floats = fits[streams.groups[number]](observed(*(values[number, used] for values in every)))
        return found

    return sweep_paths(drawn, path, BATCH)


def _fit(drawn: Drawn, rows: Rows, judged: Judged, number: int) -> Callable[[Observed], Floats]:
    count = rows.features.shape[1]
    reference = Reference(
        observed=observed(rows.features, judged.outputs, judged.embeddings),
        losses=judged.losses,
        labels=rows.labels,
        classes=drawn.task.net.classes or None,
        segments=np.zeros(len(rows), np.int64),
        names=tuple(f"feature {column}" for column in range(count)),
        units=("",) * count,
    )
    target, rng = RATES[TARGET], np.random.default_rng(number)
    fit = fitted(reference, batch_size=BATCH, rate=target, rng=rng)

    def path(seen: Observed) -> Floats:
        scores = fit.params.scoring(seen).scores
        means = scores.reshape(len(scores) // BATCH, BATCH, -1).mean(axis=1)
        found: Floats = stream_maxima(fit.params, means[None])[0]
        return found

    return path


def observed(features: NDArray[Any], outputs: NDArray[Any], embeddings: NDArray[Any]) -> Observed:
    """Samples of (n, f) features, (n, k) outputs and (n, d) embeddings, without ids and times."""
    ids = [""] * len(features)
    return Observed(ids, np.zeros(len(features)), features.astype(np.float32), outputs, embeddings)
