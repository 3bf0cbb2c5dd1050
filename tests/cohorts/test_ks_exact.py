"""The integer T n m against an oracle that evaluates both distribution functions everywhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from server_bridge.cohorts import ks_search
from server_bridge.cohorts.ordered_keys import BLOCK, key_blocks, precision_for
from server_bridge.cohorts.signed_ks import KsReference, signed_ks_statistic

Sample = NDArray[Any]
FORMS = ("gaussian", "small change", "heavy tails", "ties", "narrow", "shifted", "constant", "zeros")


def _oracle(client: Sample, reference: Sample) -> int:
    points = np.concatenate([client, reference]).astype(np.float64)
    below = [np.searchsorted(np.sort(s.astype(np.float64)), points, "right") for s in (client, reference)]
    excess = below[0].astype(object) * reference.size - below[1].astype(object) * client.size
    client_above, reference_above = max(0, *excess), max(0, *-excess)
    return int(client_above if client_above >= reference_above else -reference_above)


def _sample(form: str, size: int, base: Sample, rng: np.random.Generator) -> Sample:
    match form:
        case "gaussian":
            return 0.05 * rng.normal(size=size)
        case "small change":
            return np.resize(base, size) * (1 + 1e-4 * rng.normal(size=size))
        case "heavy tails":
            return rng.standard_t(2, size=size)
        case "ties":
            return np.asarray(np.rint(20 * rng.normal(size=size)) / 640)
        case "narrow":
            return rng.uniform(1, 1.0001, size)
        case "shifted":
            return np.resize(base, size) + 0.01 * rng.normal()
        case "constant":
            return np.full(size, rng.normal())
        case _:
            return rng.choice([0.0, -0.0, 1e-45, -1e-45, 5e-324, -5e-324], size)


@given(st.integers(0, 100_000), st.sampled_from(FORMS), st.sampled_from(FORMS), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_it_is_the_integer_of_the_oracle(seed: int, first: str, second: str, wide: bool, wide_reference: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = 2 ** rng.uniform(0, 11, 2)
    reference = _sample(first, int(sizes[0]), rng.normal(size=7), rng).astype("f8" if wide_reference else "f4")
    client = _sample(second, int(sizes[1]), reference, rng).astype("f8" if wide else "f4")
    assert KsReference(reference, client.dtype).scaled_statistic(client) == _oracle(client, reference)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("precision", ["f4", "f8"])
def test_many_values_of_different_numbers_are_exact(form: str, precision: str) -> None:
    rng = np.random.default_rng(3)
    base = "gaussian" if form in ("small change", "shifted") else form
    reference = _sample(base, 2 * BLOCK + 77, np.zeros(1), rng).astype(precision)
    client = _sample(form, 3 * BLOCK + 5, reference, rng).astype(precision)
    assert KsReference(reference).scaled_statistic(client) == _oracle(client, reference)


@pytest.mark.parametrize("stretch", [1, 2, 37, 50_000])
@pytest.mark.parametrize("size", [5_000, 5_001])
def test_it_does_not_matter_how_much_is_looked_up_first(
    stretch: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ks_search, "STRETCH", stretch)
    rng = np.random.default_rng(4)
    for form in FORMS:
        reference = _sample("gaussian" if stretch < 37 else form, 5_000, np.ones(1), rng).astype(np.float32)
        client = _sample(form, size, reference, rng).astype(np.float32)
        assert KsReference(reference).scaled_statistic(client) == _oracle(client, reference)


@given(st.integers(0, 100_000), st.sampled_from(FORMS), st.sampled_from(FORMS), st.integers(1, 40))
@settings(max_examples=120, deadline=None)
def test_samples_of_one_size_need_no_look_up_of_each(seed: int, first: str, second: str, stretch: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(2 ** rng.uniform(0, 11))
    reference = _sample(first, size, rng.normal(size=7), rng).astype(np.float32)
    client = _sample(second, size, reference, rng).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ks_search, "STRETCH", stretch)
        assert KsReference(reference).scaled_statistic(client) == _oracle(client, reference)


def test_scipy_agrees_to_one_rounding() -> None:
    rng = np.random.default_rng(5)
    for form in FORMS[:6]:
        reference = _sample("gaussian", 30_011, np.zeros(1), rng).astype(np.float32)
        client = _sample(form, 20_003, reference, rng).astype(np.float32)
        expected = stats.ks_2samp(client, reference, method="asymp").statistic
        assert abs(signed_ks_statistic(client, reference)) == pytest.approx(expected, rel=0, abs=2e-16)


def test_zeros_of_both_signs_are_one_value() -> None:
    assert signed_ks_statistic([-0.0, -0.0, 1.0], [0.0, 0.0, 1.0]) == 0.0
    assert signed_ks_statistic(np.array([-0.0], np.float32), np.array([0.0], np.float32)) == 0.0


def test_one_value_each() -> None:
    assert signed_ks_statistic([1.0], [1.0]) == 0.0
    assert signed_ks_statistic([1.0], [2.0]) == 1.0
    assert signed_ks_statistic([2.0], [1.0]) == -1.0


def test_equal_excesses_are_positive_and_none_is_zero() -> None:
    assert KsReference([1.0, 4.0]).scaled_statistic([0.0, 5.0]) == 2
    assert KsReference([0.0, 5.0]).scaled_statistic([1.0, 4.0]) == 2
    assert KsReference([1.0, 2.0, 2.0]).scaled_statistic([2.0, 1.0, 2.0]) == 0


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, BLOCK + 1])
def test_what_is_not_finite_is_refused_by_place_and_name(bad: float, place: int) -> None:
    sample = np.zeros(BLOCK + 2, np.float32)
    spoilt = sample.copy()
    spoilt[place] = bad
    with pytest.raises(ValueError, match=rf"client 7 sample is not finite: value {place} is"):
        KsReference(sample).statistic(spoilt, "client 7")
    with pytest.raises(ValueError, match="reference sample is not finite"):
        KsReference(spoilt)


def test_types_that_are_not_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="complex"):
        signed_ks_statistic([1j], [1.0])
    with pytest.raises(ValueError, match="wider"):
        KsReference(np.ones(1, np.float32)).statistic(np.ones(1))


def test_halves_integers_and_strided_rows_are_taken() -> None:
    rng = np.random.default_rng(6)
    halves, integers = rng.normal(size=500).astype(np.float16), rng.integers(-3, 3, 400)
    assert KsReference(integers, np.float16).scaled_statistic(halves) == _oracle(halves, integers)
    columns = np.asfortranarray(rng.normal(size=(3, 300)).astype(np.float32))
    assert KsReference(columns[1]).scaled_statistic(columns[0]) == _oracle(columns[0], columns[1])
    swapped = columns[0].astype(">f4")
    assert KsReference(columns[1]).scaled_statistic(swapped) == _oracle(columns[0], columns[1])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=50))
def test_keys_order_as_the_numbers_do(values: list[float]) -> None:
    numbers = np.array(values, np.float32)
    (keys,) = key_blocks(numbers, precision_for(np.float32), "client")
    assert ((keys[:, None] < keys) == (numbers[:, None] < numbers)).all()
    assert ((keys[:, None] == keys) == (numbers[:, None] == numbers)).all()


def test_a_client_mapped_from_a_file_is_the_same_client(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    client, reference = rng.normal(size=(2, 100_000)).astype(np.float32)
    np.save(tmp_path / "client.npy", client)
    mapped = np.load(tmp_path / "client.npy", mmap_mode="r")
    assert KsReference(reference).scaled_statistic(mapped) == KsReference(reference).scaled_statistic(client)
