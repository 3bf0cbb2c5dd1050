from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.unlabelled.culprits import Moved, culprits

_SIZE = 10


def _moved(rows: NDArray[np.float64], covariance: NDArray[np.float64], *, since: float) -> Moved:
    precision = np.asarray(np.linalg.inv(covariance), np.float64)
    left = rows @ precision / np.sqrt(np.diag(precision))
    return Moved(
        location=rows.mean(axis=0),
        square=np.minimum(np.square(left), 16.0).mean(axis=0) - 1.0,
        rows=since,
        latest=rows,
        precision=precision,
        deviation=np.ones(_SIZE),
        square_deviation=np.full(_SIZE, np.sqrt(2.0)),
    )


def _rows(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """32 rows of ten channels, of which three and three say nearly the same."""
    rng = np.random.default_rng(seed)
    covariance = np.eye(_SIZE)
    covariance[:3, :3] = covariance[3:6, 3:6] = 0.97
    np.fill_diagonal(covariance, 1.0)
    return rng.multivariate_normal(np.zeros(_SIZE), covariance, 32), covariance


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("channels", [[0], [7], [0, 1], [3, 8], [2, 5], [8, 9]])
def test_channels_whose_level_moved_come_first(seed: int, channels: list[int]) -> None:
    rows, covariance = _rows(seed)
    rows[:, channels] += 1.5

    found = culprits(_moved(rows, covariance, since=32))

    assert {culprit.channel for culprit in found[: len(channels)]} == set(channels)
    assert all(culprit.level_gain > culprit.spread_gain for culprit in found[: len(channels)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("channels", [[0], [7], [0, 1], [3, 8]])
def test_channels_that_became_noisy_come_first(seed: int, channels: list[int]) -> None:
    rows, covariance = _rows(seed)
    rows[:, channels] += np.random.default_rng(seed + 50).normal(0.0, 2.5, size=(32, len(channels)))

    found = culprits(_moved(rows, covariance, since=32))

    assert {culprit.channel for culprit in found[: len(channels)]} == set(channels)


def test_a_constant_and_a_rare_switch_that_stand_still_explain_nothing() -> None:
    """Of a constant the scores have a small deviation and rows without any; of a switch that is seldom on, few rows."""
    rows, covariance = _rows(2)
    rows[:, 7] += 1.5
    rows[:, [8, 9]] = 0.0
    moved = _moved(rows, covariance, since=32)
    deviation, square, wide = moved.deviation.copy(), moved.square.copy(), moved.square_deviation.copy()
    deviation[[8, 9]], square[[8, 9]], wide[[8, 9]] = (0.05, 0.8), (0.0, -0.3), (0.2, 2.2)

    found = culprits(replace(moved, deviation=deviation, square=square, square_deviation=wide))

    assert found[0].channel == 7
    assert {8, 9}.isdisjoint(culprit.channel for culprit in found)


def test_a_sensor_whose_readings_lie_closer_together_than_ever_is_found() -> None:
    rows, covariance = _rows(4)
    rows[:, 8] *= 0.1

    found = culprits(_moved(rows, covariance, since=32))

    assert found[0].channel == 8


def test_chance_alone_explains_little() -> None:
    # seeds 0 to 39: of 400 gains, about chi-square of 3, one lies beyond 30 with probability 6e-4
    gains = [culprit.gain for seed in range(40) for culprit in culprits(_moved(*_rows(seed), since=32))]

    assert max(gains) < 30


def test_another_order_of_channels_is_another_order_of_names() -> None:
    rows, covariance = _rows(1)
    rows[:, 4] -= 1.0
    rows[:, 9] += 2.0
    order = np.random.default_rng(3).permutation(_SIZE)

    straight = culprits(_moved(rows, covariance, since=32))
    turned = culprits(_moved(rows[:, order], covariance[np.ix_(order, order)], since=32))

    assert [culprit.channel for culprit in straight] == [int(order[culprit.channel]) for culprit in turned]
    for one, two in zip(straight, turned, strict=True):
        assert one.gain == pytest.approx(two.gain, rel=1e-6)
