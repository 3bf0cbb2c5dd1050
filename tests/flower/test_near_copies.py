"""A gateway that sends another's update with some noise on it does not double its weight."""

from typing import Any

import numpy as np
import pytest

from server_bridge.flower.clma import CLMA
from server_bridge.flower.defence import Defence
from server_bridge.flower.near_copies import NEAR_COPY, NearCopyRule
from server_bridge.flower.strategies import StrategySettings, make_strategy
from tests.flower.by_hand import A, Client, Model, Rounds, close, flags, options

BASE = {"w": np.ones((20, 10), np.float32), "b": np.zeros(50, np.float32)}


def _models(rng: np.random.Generator, honest: int, noise: float) -> list[dict[str, Any]]:
    """Members of one family: what they share, and noise."""
    shared = {name: rng.standard_normal(base.shape) for name, base in BASE.items()}
    return [
        {n: (b + shared[n] + noise * rng.standard_normal(b.shape)).astype(np.float32) for n, b in BASE.items()}
        for _ in range(honest)
    ]


def _copy(model: Model, rng: np.random.Generator, noise: float = 0.1) -> dict[str, Any]:
    return {
        n: (t + noise * (t - BASE[n]).std() * rng.standard_normal(t.shape)).astype(np.float32) for n, t in model.items()
    }


def _shares(models: list[dict[str, Any]]) -> list[float]:
    return [float(share) for share in NearCopyRule().shares(models, [BASE] * len(models))]


@pytest.mark.parametrize("copies", [1, 2])
def test_copies_with_noise_and_their_first_share_one_weight(copies: int) -> None:
    rng = np.random.default_rng(1)
    models = _models(rng, 6, 1.0)
    shares = _shares([*models, *(_copy(models[2], rng) for _ in range(copies))])
    part = pytest.approx(1 / (1 + copies))
    assert shares == [1, 1, part, 1, 1, 1, *[part] * copies]


def test_two_that_are_copied_are_two() -> None:
    rng = np.random.default_rng(2)
    models = _models(rng, 5, 1.0)
    assert _shares([*models, _copy(models[0], rng), _copy(models[4], rng)]) == [0.5, 1, 1, 1, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0, 3.0])
def test_honest_members_count_whole_however_alike(noise: float) -> None:
    """50 cohorts of 3, 5 and 12 a case: none has a pair ten times nearer than the next (power: the case above)."""
    for seed in range(50):
        for honest in (3, 5, 12):
            assert set(_shares(_models(np.random.default_rng([seed, honest]), honest, noise))) == {1.0}


def test_what_most_have_in_common_is_no_copy() -> None:
    rng = np.random.default_rng(4)
    alike = _models(rng, 4, 0.01)
    against = [{n: 2 * BASE[n] - t for n, t in model.items()} for model in _models(rng, 1, 0.01)]
    assert set(_shares([*alike, *against])) == {1.0}
    assert _shares([*alike[:2], *_models(rng, 1, 1.0), *against]) == [1.0] * 4


def test_no_members_no_length_and_too_many() -> None:
    still = [dict(BASE) for _ in range(6)]
    assert _shares([]) == []
    assert set(_shares(still)) == {1.0}
    rng = np.random.default_rng(5)
    models = _models(rng, 6, 1.0)
    models.append(_copy(models[0], rng))
    assert set(NearCopyRule(most=6).shares(models, [BASE] * 7).tolist()) == {1.0}


def _copied(strategy: CLMA) -> Rounds:
    """Six gateways, the last of which sends the first one's update, moved a little."""
    rounds = Rounds(strategy, {node: Client(A, 1.0) for node in range(1, 7)})

    def first_ones(model: dict[str, Any]) -> dict[str, Any]:
        return {name: tensor + np.float32(2e-5) for name, tensor in rounds.got[1].items()}

    rounds.clients[6].spoil = first_ones
    return rounds.run()


def test_the_mean_is_as_if_the_copy_were_not_there_and_both_are_named() -> None:
    rounds = _copied(CLMA(defence=Defence(near_copies=NearCopyRule()), **options()))
    close(rounds.strategy.registry.params("root"), rounds.mean(range(1, 6)))
    assert {node: why.reason for node, why in rounds.strategy.noted.items()} == {1: NEAR_COPY, 6: NEAR_COPY}
    assert rounds.strategy.refused == {}


@pytest.mark.parametrize(
    ("settings", "reasons"), [(StrategySettings(), {NEAR_COPY}), (StrategySettings(name="clma-paper"), set())]
)
def test_by_default_near_copies_count_as_one_and_in_paper_mode_they_do_not(
    settings: StrategySettings, reasons: set[str]
) -> None:
    strategy = make_strategy(settings, flagged=flags())
    assert isinstance(strategy, CLMA)
    assert {why.reason for why in _copied(strategy).strategy.noted.values()} == reasons
