import numpy as np

from edge_agent.drift.unlabelled.kinds import moved_shares


def test_moved_shares_are_found_and_explain_all() -> None:
    rng = np.random.default_rng(0)
    shares, wanted = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])
    levels = rng.normal(size=(3, 40))
    levels -= shares @ levels

    now, explained = moved_shares(wanted @ levels, levels, shares, 0.0)

    np.testing.assert_allclose(now, wanted, atol=1e-3)
    assert explained > 0.999


def test_a_change_across_the_classes_is_not_explained_by_shares() -> None:
    rng = np.random.default_rng(1)
    shares = np.array([0.5, 0.3, 0.2])
    levels = rng.normal(size=(3, 40))
    levels -= shares @ levels

    _, explained = moved_shares(rng.normal(size=40), levels, shares, 0.0)

    assert explained < 0.3
