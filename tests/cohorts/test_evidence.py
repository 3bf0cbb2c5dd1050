import numpy as np
import pytest
from numpy.typing import NDArray

from server_bridge.cohorts.evidence import JACKKNIFE_BLOCKS, measure
from tests.benchmarks.cohorts_data.synthetic import Recipe, draw


def _cosine(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    return float(left @ right / np.sqrt((left @ left) * (right @ right)))


def test_every_statistic_is_the_plain_one_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server_bridge.cohorts.evidence.CHUNK_VALUES", 1)
    rng = np.random.default_rng(0)
    origin = rng.normal(size=70_000)
    rows = rng.standard_t(5, size=(3, 70_000)) + rng.normal(size=70_000)
    found = measure(rows + origin, [origin] * 3)
    left, right = rows[0], rows[1]
    assert found.cosines[0, 1] == pytest.approx(_cosine(left, right))
    roots = [np.sign(row) * np.sqrt(np.abs(row)) for row in (left, right)]
    assert found.root_cosines[0, 1] == pytest.approx(_cosine(*roots))
    chance = np.sqrt(np.square(left * right).sum()) / (np.linalg.norm(left) * np.linalg.norm(right))
    assert found.chance_errors[0, 1] == pytest.approx(chance)
    centred = left - left.mean()
    assert found.kurtosis[0] == pytest.approx(np.mean(centred**4) / np.mean(centred**2) ** 2)


def test_the_block_error_is_the_jackknife_s() -> None:
    rng = np.random.default_rng(1)
    scale = np.repeat(rng.lognormal(size=JACKKNIFE_BLOCKS), 500)
    left, right = rng.normal(size=(2, scale.size)) * scale + rng.normal(size=scale.size) * scale
    without = []
    for block in np.split(np.arange(scale.size), JACKKNIFE_BLOCKS):
        keep = np.ones(scale.size, bool)
        keep[block] = False
        without.append(_cosine(left[keep], right[keep]))
    spread = (JACKKNIFE_BLOCKS - 1) * np.var(without)
    found = measure(np.stack([left, right]), [np.zeros(scale.size)] * 2)
    assert found.block_errors[0, 1] == pytest.approx(np.sqrt(spread), rel=0.1)


@pytest.mark.parametrize("recipe", [Recipe([6], 2_000, 0.5), Recipe([6], 2_000, 1.0, 20), Recipe([6], common=1.0)])
def test_exchangeable_normal_coordinates_are_no_net_s(recipe: Recipe) -> None:
    assert not any(measure(draw(recipe, seed).changes, [np.zeros(1)] * 0).structured for seed in range(10))


def test_steps_of_one_size_and_heavy_tails_are_a_net_s() -> None:
    rng = np.random.default_rng(2)
    steps = np.sign(rng.normal(size=(4, 4_000)) + rng.normal(size=4_000))
    assert measure(steps, []).structured
    assert measure(rng.standard_t(3, size=(4, 4_000)), []).structured


def test_changes_of_zero_are_like_nobody() -> None:
    found = measure(np.zeros((2, 10)), [])
    assert found.cosines[0, 1] == found.block_errors[0, 1] == 0
    assert not found.structured


@pytest.mark.parametrize("few", ["anywhere", "last layer"])
def test_a_drift_of_few_parameters_in_plain_noise_is_no_net_s(few: str) -> None:
    rng = np.random.default_rng(3)
    drift = rng.normal(size=20_000) * (rng.random(20_000) < 0.05 if few == "anywhere" else np.arange(20_000) >= 19_000)
    rows = rng.normal(size=(4, 20_000)) + 0.5 * np.sqrt(20_000) * drift / np.linalg.norm(drift)
    found = measure(rows, [])
    assert np.median(found.kurtosis) > 4
    assert found.plain_noise
    assert not found.structured


def test_noise_of_layers_with_scales_of_their_own_is_not_plain() -> None:
    rng = np.random.default_rng(4)
    scale = np.repeat([1.0, 3.0, 0.3, 1.0], 5_000)
    assert not measure(rng.normal(size=(4, 20_000)) * scale + rng.normal(size=20_000) * scale, []).plain_noise
