"""Autocorrelation and block streams against known processes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import lfilter

from edge_agent.drift.promise.blocks import Blocks, block_streams, dependence, long_mean_inflation


def autoregressive(rows: int, phi: float, seed: int) -> NDArray[np.float64]:
    noise = np.random.default_rng(seed).normal(size=rows + 500)
    return np.asarray(lfilter([1.0], [1.0, -phi], noise)[500:])


@pytest.mark.parametrize("phi", [0.3, 0.6, 0.9])
def test_inflation_of_an_autoregression_is_what_theory_says(phi: float) -> None:
    found = dependence(autoregressive(100_000, phi, 1))
    assert found.inflation == pytest.approx((1 + phi) / (1 - phi), rel=0.1)
    assert found.block_rows > 10


def test_independent_rows_need_no_blocks() -> None:
    found = [dependence(np.random.default_rng(seed).exponential(size=1000)) for seed in range(20)]
    assert sum(one.block_rows == 1 and one.inflation == 1 for one in found) >= 19


def test_of_several_series_the_most_dependent_counts() -> None:
    calm, slow = np.random.default_rng(0).normal(size=5000), autoregressive(5000, 0.8, 2)
    assert dependence(np.stack([calm, slow], axis=1)) == dependence(slow)


def test_a_level_that_moves_slowly_under_much_noise_is_dependence() -> None:
    rng = np.random.default_rng(3)
    series = rng.normal(size=4000) + np.repeat([0.0, 0.3, 0.0, 0.4], 1000)
    found = dependence(series)
    assert found.block_rows == 200
    assert found.inflation > 5


def test_autocorrelation_alone_leaves_a_level_that_moves_slowly_out() -> None:
    series = np.random.default_rng(3).normal(size=4000) + np.repeat([0.0, 0.3, 0.0, 0.4], 1000)
    assert long_mean_inflation(series) < 1.5 < dependence(series).inflation
    slow = autoregressive(100_000, 0.6, 1)
    assert long_mean_inflation(slow) == dependence(slow).inflation
    assert long_mean_inflation(np.full(50, np.nan)) == long_mean_inflation(np.zeros(50)) == 1.0


@pytest.mark.parametrize(
    "series",
    [np.zeros(50), np.full(50, 1e9), np.full(50, np.nan), np.array([1.0]), np.array([np.inf, 0.0, 0.0])],
    ids=["zeros", "large constant", "nan", "one row", "infinity"],
)
def test_what_says_nothing_counts_as_independent(series: NDArray[np.float64]) -> None:
    found = dependence(series)
    assert (found.block_rows, found.inflation) == (1, 1.0)


@given(
    rows=st.integers(1, 60),
    block=st.integers(1, 80),
    length=st.integers(1, 100),
    border=st.integers(0, 60),
    seed=st.integers(0, 99),
)
def test_rows_follow_each_other_within_blocks_and_stay_in_their_segment(
    rows: int, block: int, length: int, border: int, seed: int
) -> None:
    segments = (np.arange(rows) >= border).astype(np.int64)
    found = Blocks.of(rows, block, segments).streams(3, length, np.random.default_rng(seed))
    assert found.shape == (3, length)
    assert found.min() >= 0
    assert found.max() < rows
    border = min(border, rows)
    jumps = 0
    for before, after in zip(found[0, :-1], found[0, 1:], strict=True):
        first, last = (0, border) if before < border else (border, rows)
        jumps += after != (before + 1 if before + 1 < last else first)
    assert jumps <= length // block + 1


def test_every_row_is_drawn_as_often() -> None:
    # 200,000 draws of 50 rows, in blocks of 10: counts have mean 4000 and a deviation of at most 200. Seed 0, 6 sigma.
    counts = np.bincount(block_streams(50, 2000, 100, 10, np.random.default_rng(0)).ravel(), minlength=50)
    assert abs(counts - 4000).max() < 1200
