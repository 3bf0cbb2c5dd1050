import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from server_bridge.aggregation.lengths import LengthRule, change_length, clipped_words, scaled_change

lengths_of = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=9)


@given(lengths_of, st.floats(0, 1e6))
def test_beyond_twice_the_median_of_the_others_a_change_gets_that_length(lengths: list[float], median: float) -> None:
    rule = LengthRule()
    for place, factor in enumerate(rule.factors(lengths, median)):
        usual = max(float(np.median(lengths[:place] + lengths[place + 1 :])), 0.5 * median)
        expected = usual / lengths[place] if lengths[place] > 2 * usual else 1.0
        assert factor == pytest.approx(expected, rel=1e-12)


def test_one_among_three_cannot_count_more_than_the_others_however_long() -> None:
    assert LengthRule().factors([1.0, 1.0, 20.0], 1.0) == [1.0, 1.0, 1 / 20]
    assert LengthRule().factors([1.0, 1e9], 1.0) == [1.0, 1e-9]


def test_who_still_learns_among_the_finished_is_measured_by_the_round() -> None:
    assert LengthRule().factors([0.01, 0.01, 1.2], 2.0) == [1.0, 1.0, 1.0]


def test_alone_and_where_nothing_moved_nothing_is_shortened() -> None:
    assert LengthRule().factors([1e9], 1.0) == [1.0]
    assert LengthRule().factors([0.0, 0.0, 1.0], 0.0) == [1.0, 1.0, 1.0]
    assert LengthRule().factors([], 1.0) == []


@given(st.integers(0, 999), st.floats(1e-3, 1.0))
def test_a_scaled_change_has_that_share_of_its_length_and_its_direction(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    base: dict[str, NDArray[Any]] = {"w": rng.normal(size=(4, 3)), "b": rng.normal(size=3)}
    model = {name: tensor + rng.normal(size=tensor.shape) for name, tensor in base.items()}
    scaled = scaled_change(model, base, factor)
    assert change_length(scaled, base) == pytest.approx(factor * change_length(model, base), rel=1e-9)
    for name in base:
        np.testing.assert_allclose(scaled[name] - base[name], factor * (model[name] - base[name]), atol=1e-12)


def test_dtypes_stay_and_huge_values_do_not_overflow() -> None:
    base = {"w": np.zeros(4, np.float32)}
    model = {"w": np.full(4, 3e38, np.float32)}
    assert change_length(model, base) == pytest.approx(6e38, rel=1e-6)
    assert scaled_change(model, base, 0.5)["w"].dtype == np.float32
    assert math.isfinite(float(scaled_change(model, base, 0.5)["w"][0]))


def test_it_is_named_with_how_long_it_was() -> None:
    assert clipped_words(1 / 20).reason == "clipped-update"
    assert "20 times" in clipped_words(1 / 20).detail
