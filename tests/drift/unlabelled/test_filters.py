import numpy as np
import pytest
from scipy.signal import lfilter

from edge_agent.drift.unlabelled.filters import LEVELS, MEMORIES, VIEWS, view_deviations


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.97])
def test_deviations_are_those_of_a_simulated_autoregression(correlation: float) -> None:
    # seed 0; 400 streams of 600 batches: the slowest view's deviation is known to about 3 %
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(400, 600 * 8)) * np.sqrt(1 - correlation**2)
    rows = lfilter([1.0], [1.0, -correlation], noise, axis=1) if correlation else noise
    batches = rows.reshape(400, 600, 8).mean(axis=2)
    followed = np.array([lfilter([1 / memory], [1, 1 / memory - 1], batches, axis=1) for memory in MEMORIES])
    views = np.einsum("vi,isb->vsb", VIEWS, followed)[:, :, 400::10]

    wanted = view_deviations(np.array([(1 + correlation) / (1 - correlation)]), 8, 1e12)[:, 0]

    np.testing.assert_allclose(np.sqrt(np.square(views).mean(axis=(1, 2))), wanted, rtol=0.1)


def test_an_uncertain_level_widens_the_levels_only() -> None:
    sure, unsure = (view_deviations(np.ones(1), 32, rows)[:, 0] for rows in (1e12, 1000.0))

    np.testing.assert_allclose(np.square(unsure[:LEVELS]) - np.square(sure[:LEVELS]), 1e-3, rtol=1e-6)
    np.testing.assert_array_equal(unsure[LEVELS:], sure[LEVELS:])
