"""Paper mode beside fed-clma, the package whose names we keep: an oracle, of which nothing is copied."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from server_bridge.cohorts.clustering import AutoKMeans
from server_bridge.cohorts.cohorter import CLMACohorter
from server_bridge.cohorts.projection import project
from server_bridge.cohorts.signed_ks import signed_ks_statistic

pytestmark = pytest.mark.reference


def _drifted(seed: int) -> tuple[list[int], NDArray[Any], NDArray[Any]]:
    """Clients of one to five families, from parted to drowned in noise, and what they were sent."""
    rng = np.random.default_rng(seed)
    clients, families = int(rng.integers(1, 21)), int(rng.integers(1, 6))
    parameters = int(2 ** rng.uniform(6, 11))
    precision = np.float32 if rng.random() < 0.5 else np.float64
    base = rng.normal(size=parameters) * rng.choice([0.05, 1.0])
    drifts = rng.choice([0.01, 0.1, 1.0]) * rng.normal(size=(families, parameters))
    common = rng.choice([0.0, 0.1]) * rng.normal(size=(families, 1))
    noise = rng.choice([0.001, 0.03, 0.1, 1.0]) * rng.normal(size=(clients, parameters))
    matrix = base + (drifts + common)[rng.integers(0, families, clients)] + noise
    ids = sorted(rng.choice(10_000, clients, replace=False).tolist())
    return ids, matrix.astype(precision), base.astype(precision)


def _partition(assignments: Mapping[int, int]) -> list[list[int]]:
    return sorted(sorted(c for c, g in assignments.items() if g == group) for group in set(assignments.values()))


def _compare(cases: range, *, center: bool, fixed_k: int | None) -> int:
    """Partitions of all cases whose KS signs agree, which must be equal; returns how many those are."""
    import clma

    theirs = clma.CLMACohorter(center=center, clusterer=clma.AutoKMeans(fixed_k=fixed_k))
    ours = CLMACohorter(center=center, clusterer=AutoKMeans(fixed_k=fixed_k))
    compared = 0
    for seed in cases:
        ids, matrix, reference = _drifted(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's, of parts with one point
            expected = theirs.cohort(ids, matrix, reference)
        got = ours.cohort(ids, matrix, reference)
        for client, statistic in expected.ks_statistics.items():
            assert abs(got.ks_statistics[client]) == pytest.approx(abs(statistic), rel=0, abs=3e-16)
        if got.positive_group == expected.positive_group:
            compared += 1
            assert _partition(got.assignments) == _partition(expected.assignments), seed
    return compared


def test_paper_mode_partitions_as_the_reference_does() -> None:
    assert _compare(range(20), center=False, fixed_k=2) >= 12


@pytest.mark.long
def test_paper_mode_partitions_as_the_reference_does_in_many_cases() -> None:
    assert _compare(range(20, 260), center=False, fixed_k=2) >= 200


@pytest.mark.long
def test_its_default_partitions_as_the_reference_does() -> None:
    assert _compare(range(30), center=True, fixed_k=None) >= 20


def test_the_sign_is_the_references_where_the_two_excesses_differ() -> None:
    from clma.cohort import signed_ks_statistic as theirs

    rng = np.random.default_rng(7)
    for _ in range(200):
        client, reference = (rng.normal(size=int(rng.integers(2, 300))) for _ in range(2))
        grid = np.concatenate([client, reference])
        above = (client[:, None] <= grid).sum(0) * reference.size - (reference[:, None] <= grid).sum(0) * client.size
        if above.max() != -above.min():
            assert (signed_ks_statistic(client, reference) > 0) == (theirs(client, reference) > 0)


@pytest.mark.parametrize("center", [False, True])
def test_scores_are_the_references_up_to_sign(center: bool) -> None:
    from clma.cohort import project as theirs

    for seed in range(20):
        _, matrix, _ = _drifted(seed)
        if len(matrix) == 1:
            continue
        scores, expected = project(matrix, center=center), theirs(matrix, center=center)
        signs = np.where((scores * expected).sum(axis=0) < 0, -1.0, 1.0)
        np.testing.assert_allclose(scores, expected * signs, atol=1e-6 * np.abs(expected).max())
