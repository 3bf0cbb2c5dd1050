import numpy as np
from scipy.stats import chi2, f

from edge_agent.drift.unlabelled.combination import Groups, Scale

FAR = np.full(3, 1e6, np.float32)
"""Evidence is taken as it is."""


def test_groups_are_largest_squares_sums_and_the_distance() -> None:
    starts = (0, 2, 4, 6, 8, 8, 8, 11, 11, 11)
    groups = Groups(starts, 8)
    views = np.random.default_rng(0).normal(size=(3, 8, 11)).astype(np.float32)

    found = groups(views)

    parts = [views[..., a:b] ** 2 for a, b in ((0, 2), (2, 4), (4, 6), (6, 8), (8, 11))]
    wanted = [*(part.max(-1) for part in parts), *(part.sum(-1) for part in parts)]
    wanted.append((views[..., :2] * views[..., 4:6]).sum(-1))
    np.testing.assert_allclose(found, np.stack(wanted, axis=-1), rtol=1e-5)
    np.testing.assert_array_equal(groups.of_inputs, [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1])


def test_evidence_of_every_statistic_is_on_one_scale() -> None:
    # seed 1; 50,000 draws: the 1 % quantile lies on 500 of them
    rng = np.random.default_rng(1)
    freedoms = np.array([1, 4, 60])
    draws = rng.chisquare(freedoms, (50_000, 3)).astype(np.float32) * 7

    scale = Scale.of(draws, FAR)

    for tail, tolerance in ((1e-2, 0.05), (1e-4, 0.12)):
        reached = scale(np.asarray(chi2.isf(tail, freedoms), np.float32) * 7)
        np.testing.assert_allclose(reached, -np.log(tail), rtol=tolerance)


def test_evidence_of_a_variance_that_few_batches_tell_is_that_of_an_f_distribution() -> None:
    # seed 3; squares of normal values over variances that 10 others tell: at 1e-5 a chi-square's tail says 45
    rng = np.random.default_rng(3)
    draws = rng.f(1, 10, (50_000, 1)).astype(np.float32)
    rare = np.array([[f.isf(1e-5, 1, 10)]], np.float32)

    known, few = (float(Scale.of(draws, np.full(1, reach, np.float32))(rare)[0, 0]) for reach in (1e6, 5.0))

    assert known > 1.5 * -np.log(1e-5)
    assert 0.75 * -np.log(1e-5) < few < 1.25 * -np.log(1e-5)


def test_evidence_rises_and_is_finite_for_anything() -> None:
    scale = Scale.of(np.random.default_rng(2).chisquare(3, (1000, 1)).astype(np.float32), FAR[:1])

    evidence = scale(np.array([[-5.0], [0.0], [1.0], [10.0], [1e10], [np.inf]], np.float32))[:, 0]

    assert np.isfinite(evidence).all()
    assert (np.diff(evidence) >= 0).all()
    assert evidence[0] == evidence[1]


def test_statistics_that_never_vary_give_no_evidence_and_no_error() -> None:
    scale = Scale.of(np.zeros((100, 2), np.float32), FAR[:2])

    assert np.isfinite(scale(np.zeros((1, 2), np.float32))).all()
