"""What losses say: e-values under the reference, larger losses never less."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from edge_agent.drift.sequential.table import BINS, TILTS, Distribution, binned
from edge_agent.errors import DataError

LOSSES = arrays(
    np.float64,
    st.integers(1, 300),
    elements=st.one_of(st.just(0.0), st.floats(0, 1e12), st.sampled_from([1.0, 0.5, math.inf])),
).filter(lambda losses: np.isfinite(losses).any())


@given(losses=LOSSES, inflation=st.floats(1, 50))
def test_increments_are_e_values_under_the_reference_and_rise_with_the_loss(
    losses: NDArray[np.float64], inflation: float
) -> None:
    distribution = Distribution.of(losses)
    increments = distribution.table(inflation=inflation, margin=0.0).increments
    assert increments.shape == (BINS + 1, TILTS)
    assert np.isfinite(increments).all()
    assert (np.diff(increments, axis=0) >= -1e-9).all()
    shares = distribution.counts / distribution.counts.sum()
    np.testing.assert_allclose(shares @ np.exp(increments * inflation), 1.0, rtol=1e-6)
    assert distribution.table(inflation=inflation, margin=0.0).weights.sum() == pytest.approx(1.0)


@given(losses=LOSSES)
def test_every_loss_has_its_bin_and_counts_say_how_many(losses: NDArray[np.float64]) -> None:
    distribution = Distribution.of(losses)
    numbers = binned(distribution.knots, losses)
    assert distribution.counts.sum() == pytest.approx(len(losses) + 1)
    np.testing.assert_array_equal(distribution.recounted(numbers).counts, distribution.counts)
    finite = np.isfinite(losses)
    assert (losses[finite] <= distribution.knots[numbers[finite]]).all()
    assert (numbers[~finite] == BINS).all()


def test_what_is_not_a_number_is_above_all() -> None:
    distribution = Distribution.of(np.arange(10.0))
    assert binned(distribution.knots, np.array([np.nan, np.inf, 18.5])).tolist() == [BINS] * 3


def test_how_far_a_loss_is_above_the_largest_known_one_counts() -> None:
    distribution = Distribution.of(np.arange(10.0))
    far = binned(distribution.knots, np.array([9.0, 10.0, 14.0, 17.0, 99.0]))
    assert far[1:].tolist() == [BINS - 3, BINS - 2, BINS - 1, BINS]
    sizes = distribution.table(inflation=1.0, margin=0.0).increments[far, 0]
    assert (np.diff(sizes) > [0, 0, 0, -1e-9]).all(), "twice the range above the smallest is as far as it goes"
    constant = Distribution.of(np.full(50, 0.3))
    assert constant.counts[-1] == 1.0, "nothing lies between the one loss there is and what is above all"


def test_sizes_say_less_where_losses_come_in_bursts() -> None:
    distribution = Distribution.of(np.random.default_rng(0).exponential(size=400))
    parts = [distribution.table(inflation=inflation, margin=0.0).weights[:4].sum() for inflation in (1.0, 1.5, 3.0, 9)]
    assert parts == pytest.approx([0.95, 0.95, 0.95 / 4, 0.95 / 36])


def test_the_mean_is_that_of_what_was_seen() -> None:
    losses = np.random.default_rng(0).exponential(size=150)
    assert Distribution.of(losses).mean == pytest.approx(losses.mean())


def test_errors_of_0_and_1_are_weighed_as_bernoulli_likelihoods() -> None:
    losses = np.repeat([0.0, 1.0], [950, 50])
    distribution = Distribution.of(losses)
    increments = distribution.table(inflation=1.0, margin=0.0).increments
    right, wrong = binned(distribution.knots, np.array([0.0, 1.0]))
    imagined = distribution.counts[-4:] / 1001
    for tilt in range(TILTS):
        # exp(increment) are ratios of probabilities p1 / p0, so that the tilted probabilities add up to one.
        tilted = 50 / 1001 * math.exp(increments[wrong, tilt]) + 950 / 1001 * math.exp(increments[right, tilt])
        assert tilted + imagined @ np.exp(increments[-4:, tilt]) == pytest.approx(1.0)
        assert increments[right, tilt] < 0 < increments[wrong, tilt]


def test_a_margin_takes_away_what_the_reference_is_not_sure_of() -> None:
    distribution = Distribution.of(np.random.default_rng(0).exponential(size=400))
    without = distribution.table(inflation=1.0, margin=0.0).increments
    assert (distribution.table(inflation=1.0, margin=1.0).increments < without).all()


def test_a_streams_past_moves_the_level_no_farther_than_the_reference_is_unsure() -> None:
    table = Distribution.of(np.random.default_rng(0).exponential(size=399)).table(inflation=4.0, margin=0.0)
    assert table.limit == pytest.approx(1.5 * math.sqrt(4 / 400))
    near = np.array([10.0, -5.0, 0.0, 2.0, -1.0])
    np.testing.assert_allclose(table.corrections(near, 100), (near / 500) @ table.slopes)
    np.testing.assert_allclose(table.corrections(1e6 * near, 100), (np.sign(near) * table.limit) @ table.slopes)
    # One score that is higher by one lowers each tilt's increments by theta over the inflation.
    assert (table.slopes.sum(axis=0) * 4 <= 1.0).all()
    assert ((table.slopes > 0).sum(axis=0) == 1).all()


def test_bins_tell_the_upper_tail_apart_to_single_samples() -> None:
    losses = np.random.default_rng(0).exponential(size=20_000)
    counts = Distribution.of(losses).counts
    assert counts[-9:-4].max() <= 10
    assert len(np.unique(Distribution.of(losses).knots)) > BINS - 23


@pytest.mark.parametrize("losses", [np.array([]), np.array([np.nan, np.inf]), np.zeros((2, 2))])
def test_losses_that_say_nothing_are_refused(losses: NDArray[np.float64]) -> None:
    with pytest.raises(DataError, match="no finite one"):
        Distribution.of(losses)
