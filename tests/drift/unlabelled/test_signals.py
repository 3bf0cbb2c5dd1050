import numpy as np
import pytest

from edge_agent.drift import fed_ade
from edge_agent.drift.fed_ade_scale import directions
from edge_agent.drift.unlabelled.signals import remembered, turns


def test_against_the_batch_before_they_are_fed_ades_as_published() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.dirichlet(np.ones(5), 32) for _ in range(2))
    before, after = (rng.normal(1.0, size=(32, 7)) for _ in range(2))
    state, _ = fed_ade.step(fed_ade.FedAdeParams(), fed_ade.FedAdeState(), first, before)
    _, shift = fed_ade.step(fed_ade.FedAdeParams(), state, second, after)
    vectors = [
        np.concatenate([shares.mean(0), directions(embedded).mean(0)]).astype(np.float32)
        for shares, embedded in ((first, before), (second, after))
    ]
    level = np.ones(12, np.float32)

    found = turns(remembered(np.stack([vectors[0], level, level]), vectors[1]), 5)

    assert found.shape == (6,)
    assert (found[0], found[3]) == pytest.approx((shift.uncertainty, shift.representation), abs=1e-6)


def test_without_a_batch_before_there_is_no_turn() -> None:
    level = np.array([0.2, 0.8], np.float32)

    found = turns(remembered(np.stack([0 * level, level, level]), level), 2)

    np.testing.assert_allclose(found, 0.0, atol=1e-6)


def test_streams_side_by_side_turn_as_each_alone() -> None:
    rng = np.random.default_rng(1)
    signals, now = rng.random((4, 3, 6), np.float32), rng.random((4, 6), np.float32)

    together = turns(remembered(signals, now), 2)

    for stream in range(4):
        np.testing.assert_allclose(together[stream], turns(remembered(signals[stream], now[stream]), 2), rtol=1e-5)
