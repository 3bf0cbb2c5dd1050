import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.observed import Observed
from edge_agent.drift.unlabelled.means import BatchMeans, batch_means
from edge_agent.drift.unlabelled.params import LabelFreeParams
from tests.drift.unlabelled.made import BATCH, observed, params, rows


def means_of(monitor: LabelFreeParams, seen: Observed, level: NDArray[np.float32]) -> BatchMeans:
    with np.errstate(over="ignore", invalid="ignore"):  # as the monitor's step has it
        return batch_means(monitor, seen, level)


def _with(seen: Observed, what: str) -> Observed:
    faulty = None
    if what == "nan":
        seen.features[BATCH + 3, 2] = np.nan
    if what == "infinite outputs":
        seen.outputs[3 * BATCH] = np.inf
    if what == "faulty":
        faulty = np.zeros(seen.features.shape, np.bool_)
        faulty[2 * BATCH + 5, 1:3] = True
    if what == "nothing faulty":
        faulty = np.zeros(seen.features.shape, np.bool_)
    return Observed(seen.ids, seen.times_s, seen.features, seen.outputs, seen.embeddings, faulty)


@pytest.mark.parametrize("what", ["whole", "nan", "infinite outputs", "faulty", "nothing faulty"])
@pytest.mark.parametrize("embeddings", [True, False])
def test_each_batch_is_what_it_is_alone(what: str, embeddings: bool) -> None:
    monitor = params(embeddings=embeddings)
    level = monitor.whole_level
    seen = _with(observed(rows(5 * BATCH, 6, np.random.default_rng(1)), embeddings=embeddings), what)
    whole = means_of(monitor, seen, level)
    assert np.isfinite(whole.mean).all()
    for place in range(5):
        alone = means_of(monitor, seen.part(place * BATCH, (place + 1) * BATCH), level)
        assert alone.rows == (whole.rows[place],)
        for name in ("mean", "away", "scores", "channels"):
            assert np.array_equal(getattr(alone, name)[0], getattr(whole, name)[place], equal_nan=True), name


def test_a_missing_reading_counts_as_its_level_in_its_batch_only() -> None:
    monitor, rng = params(), np.random.default_rng(2)
    readings = rows(2 * BATCH, 6, rng)
    readings[:BATCH, 4] = np.nan
    found = means_of(monitor, observed(readings), monitor.whole_level)
    assert found.mean[0, 4] == pytest.approx(monitor.whole_level[4], abs=1e-6)
    assert found.mean[1, 4] != pytest.approx(monitor.whole_level[4], abs=1e-6)
    assert found.rows == (BATCH, BATCH)
