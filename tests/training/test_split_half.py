from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.model.bundle import Bundle
from edge_agent.training.local_round import LocalRound, run_local_round
from edge_agent.training.split_half import SPLIT_HALF_KEY, cosine, halves
from edge_agent.wire.tensors import Weights
from tests.training.jobs import training_job
from tests.training.tiny_bundle import tiny_samples, tiny_weights


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 2**31))
def test_halves_are_disjoint_of_one_size_and_share_every_class(labels: list[int], seed: int) -> None:
    parts = halves(np.array(labels, np.int64), seed)
    if len(labels) < 4:
        assert parts == []
        return
    left, right = ([labels[row] for row in part] for part in parts)
    assert not set(parts[0]) & set(parts[1])
    assert len(left) == len(right) == len(labels) // 2
    assert all(abs(left.count(label) - right.count(label)) <= 2 for label in set(labels))


def _update(rng: np.random.Generator) -> Weights:
    return {"a": rng.normal(size=(3, 4)).astype(np.float32), "b": rng.normal(size=5).astype(np.float32)}


def test_the_cosine_is_that_of_the_flattened_updates() -> None:
    rng = np.random.default_rng(3)
    left, right = (_update(rng) for _ in range(2))
    flat = [np.concatenate([side["a"].ravel(), side["b"]]).astype(np.float64) for side in (left, right)]
    expected = flat[0] @ flat[1] / np.sqrt((flat[0] @ flat[0]) * (flat[1] @ flat[1]))
    assert cosine(left, right) == pytest.approx(expected, rel=1e-6)
    assert cosine(left, left) == pytest.approx(1.0, rel=1e-12)


def test_an_update_of_nothing_has_no_cosine() -> None:
    nothing = {"a": np.zeros(3, np.float32)}
    assert cosine(nothing, {"a": np.ones(3, np.float32)}) is None


def _round(bundle: Bundle, labels_are_random: bool, *, asked: bool = True, count: int = 200) -> LocalRound:
    features, labels = tiny_samples(count)
    if labels_are_random:
        labels = np.random.default_rng(5).integers(0, 3, count)
    job = training_job(bundle, Path("unused.db"), split_half=asked, min_samples=1)
    outcome = run_local_round(bundle, tiny_weights(), features, labels, job)
    assert isinstance(outcome, LocalRound)
    return outcome


def test_halves_agree_where_there_is_something_to_learn_and_less_where_there_is_not(bundle: Bundle) -> None:
    sure, unsure = (_round(bundle, random).metrics[SPLIT_HALF_KEY] for random in (False, True))
    assert 1 >= sure > unsure >= -1


def test_the_update_is_the_same_whether_reliability_is_asked_for_or_not(bundle: Bundle) -> None:
    asked, plain = _round(bundle, False), _round(bundle, False, asked=False)
    assert SPLIT_HALF_KEY not in plain.metrics
    assert all((asked.delta[name] == plain.delta[name]).all() for name in plain.delta)


def test_three_samples_have_no_halves(bundle: Bundle) -> None:
    assert SPLIT_HALF_KEY not in _round(bundle, False, count=3).metrics
