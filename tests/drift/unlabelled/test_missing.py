import numpy as np

from edge_agent.drift.unlabelled.missing import completed


def test_a_missing_score_is_what_the_others_lead_to_expect() -> None:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(5, 5))
    covariance = factor @ factor.T + np.eye(5)
    scores = rng.normal(size=(4, 5)).astype(np.float32)
    missing = np.zeros((4, 5), np.bool_)
    missing[1, 2] = missing[2, [0, 4]] = missing[3] = True

    full, _ = completed(scores, missing, np.asarray(np.linalg.inv(covariance), np.float64))

    np.testing.assert_array_equal(full[0], scores[0])
    known = [1, 2, 3]
    expected = covariance[np.ix_([0, 4], known)] @ np.linalg.solve(covariance[np.ix_(known, known)], scores[2, known])
    np.testing.assert_allclose(full[2, [0, 4]], expected, rtol=1e-4)
    np.testing.assert_array_equal(full[3], 0.0)


def test_the_variance_that_completing_takes_away_is_given_back() -> None:
    # seed 1; 40,000 rows: the squares' means have a deviation of 0.007
    rng = np.random.default_rng(1)
    factor = rng.normal(size=(4, 4))
    covariance = factor @ factor.T + 0.5 * np.eye(4)
    precision = np.asarray(np.linalg.inv(covariance), np.float64)
    scores = rng.multivariate_normal(np.zeros(4), covariance, 40_000).astype(np.float32)
    missing = np.zeros(scores.shape, np.bool_)
    missing[:, 1] = True

    full, lost = completed(scores, missing, precision)

    squares = np.square(full @ precision / np.sqrt(np.diag(precision))) + lost
    np.testing.assert_allclose(squares.mean(axis=0), 1.0, atol=0.035)
