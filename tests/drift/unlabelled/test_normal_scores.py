import numpy as np
import pytest
from scipy.stats import norm, rankdata

from edge_agent.drift.unlabelled.normal_scores import KNOTS, SCORE_CAP, ScoreTable


def test_scores_are_the_normal_quantiles_of_the_ranks() -> None:
    values = np.random.default_rng(0).gamma(3.0, size=(3000, 2))

    scores = ScoreTable.of(values)(values)

    wanted = norm.ppf((rankdata(values, axis=0) - 0.5) / len(values))
    assert np.abs(scores - wanted).mean() < 0.01
    assert np.quantile(np.abs(scores - wanted), 0.99) < 0.1


@pytest.mark.parametrize("bend", [np.exp, np.cbrt, lambda x: -(x**3) - x])
def test_a_monotone_transform_hardly_changes_the_scores(bend: object) -> None:
    values = np.random.default_rng(1).normal(size=(2000, 1))
    bent = bend(values)  # type: ignore[operator]  # a ufunc or a lambda

    straight, other = ScoreTable.of(values)(values), ScoreTable.of(bent)(bent)

    turned = np.sign(np.corrcoef(straight[:, 0], other[:, 0])[0, 1])
    assert np.quantile(np.abs(straight - turned * other), 0.97) < 0.1


def test_an_affine_transform_changes_nothing_but_rounding() -> None:
    values = np.random.default_rng(2).normal(size=(500, 1))

    there = ScoreTable.of(values)(values)
    moved = ScoreTable.of(1e4 + 250.0 * values)(1e4 + 250.0 * values)

    np.testing.assert_allclose(there, moved, atol=1e-4)


def test_ties_share_their_middle_rank_and_few_values_are_exact() -> None:
    column = np.repeat([0.0, 1.0, 5.0], [70, 20, 10])[:, None]
    middle = norm.ppf([0.35, 0.8, 0.95])
    mean, deviation = np.average(middle, weights=[70, 20, 10]), 0.0
    deviation = np.sqrt(np.average((middle - mean) ** 2, weights=[70, 20, 10]))

    scores = ScoreTable.of(column)(np.array([[0.0], [1.0], [5.0]]))

    np.testing.assert_allclose(scores[:, 0], (middle - mean) / deviation, atol=0.03)


def test_a_constant_scores_nothing_until_it_changes() -> None:
    table = ScoreTable.of(np.full((50, 1), 200.0))

    scores = table(np.array([[200.0], [200.0 + 1e-6], [201.0], [150.0]]))

    np.testing.assert_allclose(scores[:, 0], [0.0, 0.0, SCORE_CAP, -SCORE_CAP], atol=1e-4)


def test_what_lies_far_outside_scores_the_cap_and_never_more() -> None:
    table = ScoreTable.of(np.random.default_rng(3).normal(size=(400, 1)))

    scores = table(np.array([[1e30], [-1e30], [np.finfo(np.float32).max]]))

    np.testing.assert_allclose(scores[:, 0], [SCORE_CAP, -SCORE_CAP, SCORE_CAP])


def test_values_that_are_not_finite_make_no_table() -> None:
    values = np.random.default_rng(4).normal(size=(300, 2))
    holed = values.copy()
    holed[::7, 0] = np.nan
    holed[:, 1] = np.inf

    table = ScoreTable.of(holed)

    assert table.values.shape == (2, KNOTS)
    assert np.isfinite(table.values).all()
    np.testing.assert_array_equal(table(np.zeros((1, 2)))[0, 1], 0.0)
