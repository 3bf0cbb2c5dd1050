import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_bridge.aggregation.screening import (
    NormLimits,
    Refusal,
    check_copies,
    check_examples,
    check_like,
    check_moved,
    check_norms,
    tensors_norm,
)

PATTERN = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)}


def test_a_model_like_the_pattern_passes() -> None:
    assert check_like({"w": np.ones((2, 3), np.float32), "b": np.ones(3, np.float64)}, PATTERN) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": None}, "missing tensor 'w'"),
        ({"x": np.zeros(1)}, "extra tensor 'x'"),
        ({"w": np.zeros((3, 2), np.float32)}, "tensor 'w' has shape"),
        ({"b": np.zeros(3, np.int64)}, "tensor 'b' is int64"),
        ({"b": np.array([0, np.nan, 0], np.float32)}, "tensor 'b' is not finite"),
        ({"b": np.array([0, np.inf, 0], np.float32)}, "tensor 'b' is not finite"),
    ],
)
def test_what_differs_is_named(change: dict[str, np.ndarray | None], words: str) -> None:
    model = {name: tensor for name, tensor in ({**PATTERN, **change}).items() if tensor is not None}
    refusal = check_like(model, PATTERN)
    assert refusal is not None
    assert refusal.reason == "bad-tensors"
    assert words in refusal.detail


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, None, "7", [7], True, 101])
def test_example_counts_must_be_positive_numbers_within_the_order(value: object) -> None:
    refusal = check_examples(value, at_most=100)
    assert refusal is not None
    assert refusal.reason == "bad-examples"


@pytest.mark.parametrize("value", [1, 0.5, 100])
def test_plain_example_counts_pass(value: float) -> None:
    assert check_examples(value, at_most=100) is None


@given(st.integers(0, 100))
def test_the_norm_is_that_of_one_long_vector(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = {"a": rng.normal(size=(3, 4)).astype(np.float32), "b": rng.normal(size=5).astype(np.float32)}
    flat = np.concatenate([tensor.astype(np.float64).ravel() for tensor in tensors.values()])
    assert tensors_norm(tensors) == pytest.approx(np.linalg.norm(flat))


def test_huge_float32_values_do_not_overflow() -> None:
    assert tensors_norm({"w": np.full(4, 3e38, np.float32)}) == pytest.approx(6e38, rel=1e-6)


BASES = dict.fromkeys("abcd", 10.0)


def test_far_longer_than_the_others_median_is_refused() -> None:
    refused = check_norms({"a": 1.0, "b": 1.1, "c": 0.9, "d": 101.0}, BASES, NormLimits())
    assert set(refused) == {"d"}
    assert refused["d"].reason == "bad-norm"


def test_of_two_only_the_long_one_is_refused() -> None:
    assert set(check_norms({"a": 1.0, "b": 500.0}, BASES, NormLimits())) == {"b"}


def test_honest_spread_passes() -> None:
    assert check_norms({"a": 1.0, "b": 50.0, "c": 3.0}, BASES, NormLimits()) == {}


def test_a_lone_update_is_held_to_its_base() -> None:
    limits = NormLimits(base_factor=100.0)
    assert check_norms({"a": 1_099.0}, BASES, limits) == {}
    assert set(check_norms({"a": 1_101.0}, BASES, limits)) == {"a"}


def test_two_that_collude_are_still_held_to_the_base() -> None:
    assert set(check_norms({"a": 1e6, "b": 1e6, "c": 1.0}, BASES, NormLimits())) == {"a", "b"}


def test_others_that_did_not_move_say_nothing() -> None:
    assert check_norms({"a": 0.0, "b": 0.0, "c": 1.0}, BASES, NormLimits()) == {}


def test_an_endless_update_is_refused() -> None:
    assert set(check_norms({"a": math.inf, "b": 1.0}, BASES, NormLimits())) == {"a"}


def test_an_update_that_changes_nothing_is_refused() -> None:
    assert check_moved(1e-30) is None
    assert check_moved(0.0) == Refusal("zero-update", "every weight is as it was sent")


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sampled_from("uvwxyz")))
def test_of_equal_updates_exactly_the_first_counts(digests: dict[str, str]) -> None:
    refused = check_copies(digests)
    kept = {gateway: digest for gateway, digest in digests.items() if gateway not in refused}
    assert sorted(kept.values()) == sorted(set(digests.values()))
    assert all(next(g for g in digests if digests[g] == digest) == gateway for gateway, digest in kept.items())
