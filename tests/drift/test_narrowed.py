"""Samples of which only the columns that are looked at are left are judged as whole ones, bit for bit."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.accuracy import monitor as accuracy
from edge_agent.drift.accuracy.calibrate import calibrate_accuracy
from edge_agent.drift.observed import Observed, narrowed
from edge_agent.drift.reference import Reference
from edge_agent.drift.unlabelled import monitor as label_free
from edge_agent.drift.unlabelled.fitting import fitted

FEATURES, CLASSES, BATCH, BATCHES = 3_100, 3, 32, 8
_WEIGHTS = np.random.default_rng(7).normal(size=(FEATURES, CLASSES)) / 40
LOOKED_AT, PASSED_OVER = 0, 1
"""A column that both monitors look at, and one that neither does."""


def seen_of(features: NDArray[np.float64], faulty: NDArray[np.bool_] | None = None) -> Observed:
    ids = [str(place) for place in range(len(features))]
    outputs = (np.nan_to_num(features) @ _WEIGHTS).astype(np.float32)
    times_s = np.arange(len(features), dtype=np.float64)
    return Observed(ids, times_s, features.astype(np.float32), outputs, faulty=faulty, finite=True)


@cache
def monitors() -> dict[str, tuple[Any, Any, Any]]:
    """Module, parameters and state of each."""
    rng = np.random.default_rng(1)
    seen = seen_of(rng.normal(size=(600, FEATURES)))
    labels = np.argmax(seen.outputs + rng.gumbel(size=seen.outputs.shape), axis=1)
    names = tuple(f"x{place}" for place in range(FEATURES))
    losses = (labels != np.argmax(seen.outputs, axis=1)).astype(np.float64)
    reference = Reference(seen, losses, labels, CLASSES, np.zeros(600, np.int64), names, ("",) * FEATURES)
    free = replace(
        fitted(reference, batch_size=BATCH, rate=0.01, rng=rng).params, threshold=20.0, warning_threshold=1.0
    )
    estimate = replace(calibrate_accuracy(reference, batch_size=BATCH, rng=rng), window=4 * BATCH)
    return {
        "label-free": (label_free, free, label_free.LabelFreeState.start(free)),
        "accuracy": (accuracy, estimate, accuracy.AccuracyState.start(estimate)),
    }


@pytest.mark.parametrize("broken", [(), (LOOKED_AT,), (PASSED_OVER,), (LOOKED_AT, PASSED_OVER)])
@pytest.mark.parametrize("name", ["label-free", "accuracy"])
def test_narrow_samples_are_judged_as_whole_ones(name: str, broken: tuple[int, ...]) -> None:
    module, params, start = monitors()[name]
    columns, narrow = params.narrowed(FEATURES)
    features = np.random.default_rng(2).normal(size=(BATCHES * BATCH, FEATURES))
    faulty = np.zeros(features.shape, np.bool_)
    faulty[40:47, list(broken)] = True
    features[faulty] = np.nan
    whole = seen_of(features, faulty if broken else None)
    some = narrowed(whole, columns)
    assert some.features.shape[1] < FEATURES
    (one, said), (other, told) = module.step_many(params, start, whole), module.step_many(narrow, start, some)
    assert said == told
    for array, same in zip(one.to_arrays().values(), other.to_arrays().values(), strict=True):
        assert array.tobytes() == same.tobytes()


@pytest.mark.parametrize("name", ["label-free", "accuracy"])
def test_the_columns_are_some_that_are_looked_at_and_none_where_that_would_be_all(name: str) -> None:
    _, params, _ = monitors()[name]
    columns, _ = params.narrowed(FEATURES)
    chosen = set(np.concatenate([np.arange(FEATURES)[one] for one in columns]).tolist())
    assert LOOKED_AT in chosen
    assert PASSED_OVER not in chosen
    assert params.narrowed(FEATURES + 1) == ((), params)
    _, narrow = params.narrowed(FEATURES)
    width = sum(len(np.arange(FEATURES)[one]) for one in columns)
    assert narrow.narrowed(width)[0] == ()


def test_parts_keep_what_is_known_of_columns_that_have_gone() -> None:
    faulty = np.zeros((4, FEATURES), np.bool_)
    faulty[2, PASSED_OVER] = True
    some = narrowed(seen_of(np.zeros((4, FEATURES)), faulty), (np.array([LOOKED_AT]),))
    assert some.faulty is not None
    assert not some.faulty.any()
    rows = some.part(1, 4).broken_rows
    assert rows is not None
    assert rows.tolist() == [False, True, False]
    assert some.part(0, 2).broken_rows is None
