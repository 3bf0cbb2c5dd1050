import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.training.evaluation import Scores
from edge_agent.training.held_out import LEAST_SAMPLES, Comparison


def scores(losses: NDArray[np.float64], right: int | None = None) -> Scores:
    flags = None if right is None else np.arange(len(losses)) < right
    return Scores(losses, flags, np.sqrt(losses) if right is None else None)


def comparison(rise: float, spread: float, count: int = 400, *, right: tuple[int, int] | None = None) -> Comparison:
    rng = np.random.default_rng(4)
    before = rng.gamma(2.0, 1.0, count)
    noise = rng.normal(0.0, spread, count)
    after = before + rise + noise - noise.mean()
    one, other = right if right is not None else (None, None)
    return Comparison(scores(before, one), scores(np.maximum(after, 0.0), other))


@pytest.mark.parametrize(("rise", "worse"), [(-0.5, False), (0.0, False), (0.02, False), (0.2, True), (5.0, True)])
def test_a_rise_of_three_paired_standard_errors_is_worse(rise: float, worse: bool) -> None:
    """Spread 0.4 over 400 samples: a standard error of 0.02."""
    assert comparison(rise, 0.4).made_worse is worse


def test_the_spread_of_the_samples_themselves_is_no_noise() -> None:
    """Paired: every sample a little worse is worse, though losses differ far more between samples."""
    before = np.random.default_rng(1).gamma(2.0, 10.0, 100)
    after = before + 0.1 + np.random.default_rng(2).normal(0, 0.05, 100)
    assert Comparison(scores(before), scores(after)).made_worse


def test_a_surer_model_that_is_right_more_often_is_not_worse() -> None:
    assert comparison(1.0, 0.1, right=(300, 300)).made_worse
    assert not comparison(1.0, 0.1, right=(300, 301)).made_worse


def test_too_few_samples_judge_nothing() -> None:
    assert not comparison(5.0, 0.0, LEAST_SAMPLES - 1).made_worse
    assert comparison(5.0, 0.0, LEAST_SAMPLES).made_worse
    nobody = Comparison(scores(np.zeros(0), 0), scores(np.zeros(0), 0))
    assert (nobody.made_worse, nobody.metrics()) == (False, {"proof-examples": 0})


def test_a_loss_that_stops_being_finite_is_worse_and_left_out_of_the_figures() -> None:
    before, after = np.ones(20), np.ones(20)
    after[3] = np.inf
    broken = Comparison(scores(before, 20), scores(after, 19))
    assert broken.made_worse
    assert "proof-loss-after" not in broken.metrics()
    assert not Comparison(scores(after, 19), scores(after, 19)).made_worse


def test_the_figures_tell_loss_and_accuracy_or_mean_absolute_error() -> None:
    classified = comparison(0.0, 0.1, 40, right=(20, 30)).metrics()
    assert (classified["proof-accuracy-before"], classified["proof-accuracy-after"]) == (0.5, 0.75)
    assert (classified["proof-examples"], classified["made-worse"]) == (40, 0)
    measured = comparison(0.0, 0.1, 40)
    assert measured.metrics()["proof-mae-before"] == pytest.approx(np.sqrt(measured.before.losses).mean())
    assert "40 held-out samples" in measured.words()


def test_a_trifle_at_the_same_accuracy_is_not_worse() -> None:
    """A net that is right everywhere at a loss of 0.00002 is not spoilt at 0.0001."""
    before, after = np.full(50, 2e-5), np.full(50, 1e-4)
    assert not Comparison(scores(before, 50), scores(after, 50)).made_worse
    assert Comparison(scores(before, 50), scores(after, 49)).made_worse
    assert Comparison(scores(before), scores(after)).made_worse  # a regression's unit is anybody's
