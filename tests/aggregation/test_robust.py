import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import trim_mean

from server_bridge.aggregation import robust
from server_bridge.aggregation.means import weighted_mean
from server_bridge.aggregation.robust import (
    Aggregation,
    RuleName,
    coordinate_median,
    hostile_count,
    krum_mean,
    krum_scores,
    squared_distances,
    trimmed_mean,
)

Models = list[dict[str, NDArray[Any]]]


def _models(rng: np.random.Generator, clients: int, dtype: type = np.float32, size: int = 37) -> Models:
    base = rng.normal(size=(size, 3))
    changes = [0.01 * rng.normal(size=(size, 3)) for _ in range(clients)]
    return [{"w": (base + c).astype(dtype), "b": (base[0] + c[0]).astype(dtype)} for c in changes]


def _stack(models: Models, name: str) -> NDArray[np.float64]:
    return np.stack([model[name] for model in models]).astype(np.float64)


@given(seed=st.integers(0, 999), clients=st.integers(1, 12), share=st.floats(0, 0.49))
def test_the_trimmed_mean_is_scipys(seed: int, clients: int, share: float) -> None:
    models = _models(np.random.default_rng(seed), clients, np.float64)
    cut = hostile_count(clients, share)
    expected = {name: trim_mean(_stack(models, name), (cut + 0.5) / clients, axis=0) for name in ("w", "b")}
    got = trimmed_mean(models, cut)
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-14, atol=1e-15)


@given(seed=st.integers(0, 999), clients=st.integers(1, 12))
def test_the_median_is_numpys_over_the_whole_stack(seed: int, clients: int) -> None:
    models = _models(np.random.default_rng(seed), clients, np.float64)
    got = coordinate_median(models)
    for name in got:
        np.testing.assert_array_equal(got[name], np.median(_stack(models, name), axis=0))


def _literal_krum(models: Models, hostile: int) -> list[int]:
    """Krum's choice as printed, pair by pair in extended precision."""
    flat = [np.concatenate([model[name].astype(np.longdouble).ravel() for name in model]) for model in models]
    scores = []
    for i, mine in enumerate(flat):
        near = sorted(float(((mine - other) ** 2).sum()) for j, other in enumerate(flat) if j != i)
        scores.append(sum(near[: max(len(models) - hostile - 2, 1)]))
    return sorted(sorted(range(len(models)), key=lambda i: scores[i])[: len(models) - hostile])


@given(seed=st.integers(0, 9999), clients=st.integers(2, 10), offset=st.sampled_from([0.0, 1e3, 1e6]))
def test_krum_keeps_whom_the_literal_one_keeps_however_large_the_weights(
    seed: int, clients: int, offset: float
) -> None:
    models = [
        {name: tensor + offset for name, tensor in model.items()}
        for model in _models(np.random.default_rng(seed), clients, np.float64)
    ]
    hostile = hostile_count(clients, 0.3)
    kept = _literal_krum(models, hostile)
    expected = weighted_mean([models[i] for i in kept], [1.0] * len(kept))
    got = krum_mean(models, hostile)
    for name in got:
        np.testing.assert_array_equal(got[name], expected[name])


def test_krum_sees_small_changes_beside_a_huge_model() -> None:
    models = _models(np.random.default_rng(0), 9, np.float64)
    models[4] = {name: np.full_like(tensor, 1e12) for name, tensor in models[4].items()}
    exact = np.array([[sum(((a[n] - b[n]) ** 2).sum() for n in a) for b in models] for a in models])
    honest = [i for i in range(9) if i != 4]
    np.testing.assert_allclose(
        squared_distances(models)[np.ix_(honest, honest)], exact[np.ix_(honest, honest)], rtol=1e-9
    )
    assert int(np.argmax(krum_scores(squared_distances(models), 1))) == 4


@pytest.mark.parametrize("rule", ["trimmed-mean", "median", "krum"])
@pytest.mark.parametrize(("clients", "hostile"), [(5, 1), (10, 2), (3, 1)])
def test_a_minority_however_huge_moves_nothing_far(rule: RuleName, clients: int, hostile: int) -> None:
    rng = np.random.default_rng(1)
    models = _models(rng, clients)
    honest = _stack(models[hostile:], "w")
    for number in range(hostile):
        models[number] = {name: np.full_like(tensor, 1e6 * (-1) ** number) for name, tensor in models[number].items()}
    aggregation = Aggregation(rule, 0.2)
    got = aggregation.combine(models, [1e9] * hostile + [1.0] * (clients - hostile))["w"]
    assert (got >= honest.min(axis=0) - 1e-6).all()
    assert (got <= honest.max(axis=0) + 1e-6).all()


def test_the_mean_weighs_by_examples_and_the_others_do_not() -> None:
    models: Models = [{"w": np.array([0.0])}, {"w": np.array([1.0])}, {"w": np.array([5.0])}]
    assert Aggregation().combine(models, [1, 1, 2])["w"] == 2.75
    assert Aggregation("median").combine(models, [1, 1, 200])["w"] == 1.0
    assert Aggregation("trimmed-mean", 0.0).combine(models, [1, 1, 200])["w"] == 2.0


@pytest.mark.parametrize("rule", ["mean", "trimmed-mean", "median", "krum"])
def test_one_and_equal_models_come_back_as_they_are(rule: RuleName) -> None:
    (model,) = _models(np.random.default_rng(2), 1)
    for clients in (1, 2, 3, 7):
        got = Aggregation(rule).combine([model] * clients, [3.0] * clients)
        for name in model:
            assert got[name].dtype == model[name].dtype
            np.testing.assert_array_equal(got[name], model[name])


def test_whole_numbers_stay_whole() -> None:
    models: Models = [{"n": np.array([value])} for value in (1, 2, 9, 9)]
    assert coordinate_median(models)["n"].dtype == np.int64
    assert trimmed_mean(models, 1)["n"] == 6


@pytest.mark.parametrize(
    ("clients", "share", "count"), [(1, 0.4, 0), (2, 0.4, 0), (3, 0.2, 1), (5, 0.2, 1), (6, 0.2, 2), (10, 0.2, 2)]
)
def test_how_many_may_be_hostile(clients: int, share: float, count: int) -> None:
    assert hostile_count(clients, share) == count


def test_what_does_not_fit_is_refused() -> None:
    models = _models(np.random.default_rng(3), 3)
    with pytest.raises(ValueError, match="cannot be cut"):
        trimmed_mean(models, 2)
    with pytest.raises(ValueError, match="no model"):
        coordinate_median([])
    with pytest.raises(ValueError, match="cannot be hostile"):
        krum_mean(models, 3)
    with pytest.raises(ValueError, match="'b' has shapes"):
        coordinate_median([models[0], {**models[1], "b": np.zeros(4)}])
    with pytest.raises(ValueError, match="differ in tensor 'x'"):
        squared_distances([models[0], {**models[1], "x": np.zeros(4)}])
    with pytest.raises(ValueError, match="best"):
        Aggregation("best")  # type: ignore[arg-type]  # what a script may give
    with pytest.raises(ValueError, match="hostile_share"):
        Aggregation("median", 0.5)


@pytest.mark.parametrize("rule", ["trimmed-mean", "median", "krum"])
def test_memory_beside_the_models_is_the_result_and_a_few_blocks(rule: RuleName) -> None:
    size = 2_000_000
    models: Models = [{"w": np.full(size, float(i), np.float32)} for i in range(8)]
    tracemalloc.start()
    Aggregation(rule).combine(models, [1.0] * 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result_float64 = 8 * size
    assert peak < 3.1 * result_float64 + 6 * 8 * robust.BLOCK_VALUES < 8 * 8 * size
