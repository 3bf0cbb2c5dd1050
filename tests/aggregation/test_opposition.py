import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_bridge.aggregation.opposition import Bearing, OppositionRule, bearing_of

RULE = OppositionRule()


def _bearing(cosines: list[float], agreement: list[float], error: float = 0.01) -> Bearing:
    return Bearing(np.array(cosines), np.full(len(cosines), error), np.array(agreement))


@given(st.integers(0, 999), st.integers(3, 7))
def test_the_bearing_is_that_of_long_vectors(seed: int, clients: int) -> None:
    rng = np.random.default_rng(seed)
    bases = [{"w": rng.normal(size=(5, 4)), "b": rng.normal(size=3)} for _ in range(clients)]
    models = [{name: tensor + rng.normal(size=tensor.shape) for name, tensor in base.items()} for base in bases]
    flat = [np.concatenate([(m[n] - b[n]).ravel() for n in ("w", "b")]) for m, b in zip(models, bases, strict=True)]
    unit = np.stack([vector / np.linalg.norm(vector) for vector in flat])
    got = bearing_of(models, bases)
    for i in range(clients):
        others = np.delete(unit, i, axis=0)
        mean = others.sum(0) / np.linalg.norm(others.sum(0))
        cosines = (others @ others.T)[np.triu_indices(clients - 1, 1)]
        assert got.cosines[i] == pytest.approx(unit[i] @ mean, abs=1e-9)
        assert got.errors[i] == pytest.approx(np.sqrt(np.square(unit[i]) @ np.square(mean)), rel=1e-9)
        assert got.agreement[i] == pytest.approx(cosines.mean(), abs=1e-9)


def test_who_did_not_move_has_no_bearing_and_no_say() -> None:
    base = {"w": np.zeros(2)}
    models = [{"w": np.array([1.0, 0.0])}, {"w": np.array([1.0, 1.0])}, {"w": np.array([0.0, 0.0])}]
    got = bearing_of(models, [base] * 3)
    assert got.cosines[2] == 0
    assert got.cosines[0] == pytest.approx(np.sqrt(0.5))
    assert got.agreement[2] == pytest.approx(np.sqrt(0.5))


def test_one_in_three_that_works_against_two_who_agree_is_left_out_by_name() -> None:
    sums, refused = RULE.judge([1, 2, 3], _bearing([0.1, 0.12, -0.16], [-0.14, -0.11, 0.28]), {})
    assert list(refused) == [3]
    assert refused[3].reason == "opposing-update"
    assert "-0.16" in refused[3].detail
    assert sums == {1: 0.0, 2: 0.0, 3: -0.16}


def test_where_the_others_agree_on_nothing_being_against_them_is_no_evidence() -> None:
    sums, refused = RULE.judge([1, 2, 3], _bearing([-0.1, -0.1, -0.1], [0.0, -0.02, 0.0]), {})
    assert (set(sums.values()), refused) == ({0.0}, {})


def test_evidence_adds_up_over_rounds_and_outlasts_a_round_that_says_nothing() -> None:
    sums: dict[int, float] = {}
    left_out = []
    for cosine in (-0.04, -0.04, 0.0):
        sums, refused = RULE.judge([1, 2, 3], _bearing([0.1, 0.1, cosine], [0.0, 0.0, 0.2]), sums)
        left_out.append(list(refused))
    assert left_out == [[], [3], [3]]


def test_trust_and_distrust_have_an_end() -> None:
    sums: dict[int, float] = {}
    for _ in range(50):
        sums, _ = RULE.judge([1, 2, 3], _bearing([0.9, 0.9, -0.9], [0.5, 0.5, 0.5]), sums)
    assert sums == {1: 0.3, 2: 0.3, 3: -0.5}


def test_a_cosine_that_chance_can_give_is_no_evidence() -> None:
    _, refused = RULE.judge([1, 2, 3], _bearing([0.2, 0.2, -0.4], [0.2, 0.2, 0.3], error=0.17), {})
    assert refused == {}


def test_only_the_share_that_may_be_hostile_is_left_out_the_worst_first() -> None:
    clients = list(range(6))
    _, refused = RULE.judge(clients, _bearing([0.3, 0.3, 0.3, -0.2, -0.4, -0.3], [0.2] * 6), {})
    assert sorted(refused) == [4, 5]
    _, refused = OppositionRule(hostile_share=0.0).judge(clients, _bearing([-0.9] * 6, [0.2] * 6), {})
    assert refused == {}


def test_memory_is_a_few_blocks_beside_the_models() -> None:
    base = {"w": np.zeros(2_000_000, np.float32)}
    models = [{"w": np.full(2_000_000, i + 1.0, np.float32)} for i in range(5)]
    tracemalloc.start()
    bearing_of(models, [base] * 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 8 * 2_000_000
