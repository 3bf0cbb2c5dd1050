"""What new weights' losses are compared with, where their warm-up has hardly seen a mistake."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.sequential.loss_level import LossLevelState, rebaseline
from edge_agent.drift.sequential.table import Distribution
from edge_agent.drift.sequential.usual import REFERENCE_PART, SELDOM, usual_losses
from tests.drift.sequential.streams import SIZE, params_of, run

WARM_UP = 8 * SIZE


def seldom_wrong(
    rows: int, rng: np.random.Generator, share: float = 1 / 180, unsure: float = 0.004
) -> NDArray[np.float64]:
    """Of a good classifier: next to nothing, by how unsure it is, and now and then a mistake."""
    wrong = rng.random(rows) < share
    return np.where(wrong, 0.7 + rng.exponential(1.5, rows), rng.exponential(unsure, rows))


@pytest.mark.parametrize("unsure", [0.001, 0.004, 0.012, 0.04])
def test_new_weights_that_are_wrong_as_seldom_do_not_alarm(unsure: float) -> None:
    """However sure they are of the rest, and though most warm-ups hold a mistake or none.

    Level: 30 activations, 60 batches each, seeds fixed. With the warm-up alone 13 of 30 alarm (0.004), with all of the
    reference's losses beside it 12 of 30 where the new weights are three times as unsure (0.012).
    """
    params = params_of(seldom_wrong(2000, np.random.default_rng(0)), threshold=13.0)
    alarmed = 0
    for seed in range(30):
        rng = np.random.default_rng([1, seed])
        state = rebaseline(params, LossLevelState.start(params))
        _, found = run(params, state, seldom_wrong(WARM_UP + 60 * SIZE, rng, unsure=unsure))
        alarmed += any(finding.alarm for finding in found)
    assert alarmed <= 1


@pytest.mark.parametrize("seed", range(3))
def test_mistakes_that_become_many_are_told_at_once_all_the_same(seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    params = params_of(seldom_wrong(2000, rng), threshold=13.0)
    state, _ = run(params, rebaseline(params, LossLevelState.start(params)), seldom_wrong(WARM_UP, rng))
    _, found = run(params, state, seldom_wrong(2 * SIZE, rng, share=0.3))
    assert any(finding.alarm for finding in found)


@pytest.mark.parametrize(
    ("level", "rows"),
    [(0.95, WARM_UP * (1 + REFERENCE_PART)), (0.5, WARM_UP), (1.1, WARM_UP)],
    ids=["not plainly better", "plainly better", "worse"],
)
def test_the_references_largest_count_only_where_a_warm_up_leaves_them_open(level: float, rows: int) -> None:
    rng = np.random.default_rng(3)
    reference = Distribution.of(rng.exponential(1.0, 4000))
    warmup, largest = rng.exponential(1.0, WARM_UP), round(WARM_UP * SELDOM)
    warmup *= level * reference.spread(4000)[-round(4000 * SELDOM) :].mean() / np.sort(warmup)[-largest:].mean()
    assert len(usual_losses(reference, warmup, inflation=1.0)) == rows


def test_all_but_the_largest_are_the_warm_ups_own() -> None:
    rng = np.random.default_rng(5)
    reference = Distribution.of(seldom_wrong(2000, rng, unsure=0.02))
    warmup = rng.exponential(0.01, WARM_UP)
    usual = usual_losses(reference, warmup, inflation=1.0)
    assert len(usual) == WARM_UP * (1 + REFERENCE_PART)
    of_usual, of_warmup = (
        np.quantile(losses, np.linspace(0.05, 0.95, 10), method="inverted_cdf") for losses in (usual, warmup)
    )
    np.testing.assert_array_equal(of_usual, of_warmup)
    assert usual.max() > 2 * warmup.max()


@pytest.mark.parametrize("finite", [1, 2, WARM_UP])
def test_a_warm_up_with_losses_that_are_not_finite_is_worse_than_the_reference(finite: int) -> None:
    warmup = np.append(np.full(finite, 0.1), np.inf)
    usual = usual_losses(Distribution.of(np.linspace(0.1, 1, 300)), warmup, inflation=1.0)
    np.testing.assert_array_equal(usual, warmup)


def test_a_spread_has_the_mean_of_what_was_seen() -> None:
    reference = Distribution.of(seldom_wrong(2000, np.random.default_rng(4)))
    assert reference.spread(20_000).mean() == pytest.approx(reference.mean, rel=0.02)
    assert reference.deviation == pytest.approx(reference.spread(20_000).std(), rel=0.02)
