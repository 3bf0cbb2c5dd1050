import numpy as np
import pytest

from edge_agent.drift.fed_ade_scale import SignalScale, calibrate_signal, cosine_distance, directions
from edge_agent.errors import DataError


def _classes(rng: np.random.Generator, count: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.integers(0, 4, count)
    return np.eye(4)[labels] + rng.normal(0, noise, (count, 4)), labels


def test_the_expected_distance_is_what_resampled_batches_have() -> None:
    rng = np.random.default_rng(0)
    vectors, labels = _classes(rng, 5000, 0.3)
    scale = calibrate_signal(vectors, labels, rng)
    assert scale is not None
    for size in (8, 32, 128):
        found = [
            cosine_distance(*(vectors[rng.integers(0, 5000, size)].mean(0) for _ in range(2))) or 0.0
            for _ in range(500)
        ]
        assert scale.expected(size, size) == pytest.approx(np.mean(found), rel=0.1)
    assert scale.expected(8, 1e9) < scale.expected(8, 8)


def test_the_reference_is_half_of_the_classes_staying_away() -> None:
    vectors, labels = _classes(np.random.default_rng(1), 20_000, 0.0)
    scale = calibrate_signal(vectors, labels, np.random.default_rng(0))
    assert scale is not None
    # (1, 1, 0, 0) beside (1, 1, 1, 1): the cosine is 1 / sqrt(2)
    assert scale.reference == pytest.approx(1 - 1 / np.sqrt(2), abs=0.01)
    assert scale.scaled(1.0, 1e9, 1e9) == 1.0
    assert scale.scaled(0.0, 8, 8) == 0.0


def test_a_signal_that_says_nothing_has_no_scale() -> None:
    labels = np.arange(10) % 2
    rng = np.random.default_rng(0)
    assert calibrate_signal(np.ones((10, 3)), labels, rng) is None, "no class turns it"
    assert calibrate_signal(np.zeros((10, 3)), labels, rng) is None, "no direction"
    assert calibrate_signal(np.eye(10), np.zeros(10, np.int64), rng) is None, "one class"


def test_a_regression_is_cut_into_four() -> None:
    targets = np.linspace(0, 1, 400)
    vectors = np.stack([np.cos(targets), np.sin(targets)], axis=1)
    assert calibrate_signal(vectors, targets, np.random.default_rng(0)) is not None


def test_rows_that_do_not_fit_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="do not fit"):
        calibrate_signal(np.ones((3, 2)), np.zeros(2), rng)
    with pytest.raises(DataError, match="1 finite held-out rows"):
        calibrate_signal(np.array([[np.nan], [1.0]]), np.zeros(2, np.int64), rng)
    with pytest.raises(DataError, match="reference"):
        SignalScale(1.0, 0.0)
    with pytest.raises(DataError, match="spread"):
        SignalScale(-1.0, 0.1)


def test_directions_flatten_and_keep_zero() -> None:
    found = directions(np.array([[[3.0], [4.0]], [[0.0], [0.0]]]))
    assert found == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))
    assert directions(np.zeros((0, 3))).shape[0] == 0
