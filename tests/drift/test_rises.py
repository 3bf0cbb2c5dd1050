"""Quantiles of rises: numpy is the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edge_agent.drift.rises import linear_quantile, resampled_rises

LOSSES = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6))


@given(LOSSES, st.floats(0, 1))
def test_the_quantile_is_numpys(losses: np.ndarray[tuple[int], np.dtype[np.float64]], share: float) -> None:
    assert linear_quantile(losses, share) == float(np.quantile(losses, share))


@pytest.mark.parametrize("batch_size", [7, 50])
def test_rises_do_not_depend_on_how_many_batches_are_drawn_at_a_time(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = np.random.default_rng(1).random(300)

    def rises() -> list[float]:
        drawn = resampled_rises(losses, batch_size=batch_size, lookback=2, draws=700, rng=np.random.default_rng(3))
        return [float(value) for value in drawn]

    in_small_chunks = rises()
    monkeypatch.setattr("edge_agent.drift.rises._CHUNK_BATCHES", 2048)
    assert rises() == in_small_chunks
