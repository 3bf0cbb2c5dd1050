import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from server_bridge.cohorts.projection import components_for_variance, project

seeds = st.integers(0, 10_000)


def _literal(matrix: NDArray[np.float64], threshold: float, center: bool) -> NDArray[np.float64]:
    """S V from eig(S^T S), as the paper writes it."""
    rows = matrix - matrix.mean(axis=0) if center else matrix
    eigenvalues, vectors = np.linalg.eigh(rows.T @ rows)
    eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
    count = int(np.searchsorted(np.cumsum(eigenvalues) / eigenvalues.sum(), threshold)) + 1
    return np.asarray(rows @ vectors[:, :count])


@given(seeds, st.booleans(), st.sampled_from([0.5, 0.8, 0.95]))
def test_the_scores_are_those_of_the_literal_form(seed: int, center: bool, threshold: float) -> None:
    matrix = np.random.default_rng(seed).normal(size=(6, 11))
    scores, literal = project(matrix, threshold, center), _literal(matrix, threshold, center)
    assert scores.shape == literal.shape
    signs = np.sign((scores * literal).sum(axis=0))
    np.testing.assert_allclose(scores, literal * signs, atol=1e-9)


@given(seeds, st.booleans(), st.integers(1, 3))
def test_rows_of_low_rank_have_the_scores_of_the_literal_form(seed: int, center: bool, rank: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(6, rank)) @ rng.normal(size=(rank, 11))
    scores, literal = project(matrix, 0.95, center), _literal(matrix, 0.95, center)
    assert scores.shape == literal.shape
    assert scores.shape[1] <= rank
    signs = np.sign((scores * literal).sum(axis=0))
    np.testing.assert_allclose(scores, literal * signs, atol=1e-9)


def test_constant_rows_differ_by_their_level_alone() -> None:
    matrix = np.repeat([[1.0], [1.0], [-3.0]], 50, axis=1)
    np.testing.assert_allclose(project(matrix), np.sqrt(50) * np.array([[-1], [-1], [3]]), atol=1e-9)
    assert not project(np.zeros((4, 50))).any()
    assert not project(np.full((4, 50), 0.1), center=True).any()


@pytest.mark.parametrize("center", [False, True])
def test_rows_mapped_from_files_are_projected_without_a_copy(center: bool, tmp_path: Path) -> None:
    matrix = np.random.default_rng(6).normal(size=(8, 400_000)).astype(np.float32)
    expected = project(matrix, 1.0, center)
    np.save(tmp_path / "rows.npy", matrix)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    tracemalloc.start()
    try:
        np.testing.assert_array_equal(project(mapped, 1.0, center), expected)
        np.testing.assert_array_equal(project([mapped[i] for i in range(8)], 1.0, center), expected)
        assert tracemalloc.get_traced_memory()[1] < 0.3 * matrix.nbytes
    finally:
        tracemalloc.stop()


@given(seeds)
def test_distances_survive_when_all_variance_is_kept(seed: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(5, 300)).astype(np.float32)
    scores = project(matrix, 1.0, center=True)
    gaps = np.linalg.norm(scores[:, None] - scores[None], axis=2)
    wide = matrix.astype(np.float64)
    np.testing.assert_allclose(gaps, np.linalg.norm(wide[:, None] - wide[None], axis=2), atol=1e-6)


def test_rows_longer_than_a_block_are_summed_whole() -> None:
    matrix = np.random.default_rng(3).normal(size=(3, 150_000)).astype(np.float32)
    wide = matrix.astype(np.float64)
    np.testing.assert_allclose((project(matrix, 1.0) ** 2).sum(), (wide**2).sum(), rtol=1e-12)


def test_identical_rows_have_no_variance_when_centred() -> None:
    row = np.random.default_rng(4).normal(size=1_000)
    assert not project(np.stack([row] * 7), center=True).any()


def test_one_row_has_no_scores() -> None:
    assert project(np.ones((1, 5))).tolist() == [[0.0]]


def test_the_number_of_components_can_be_capped() -> None:
    matrix = np.random.default_rng(5).normal(size=(6, 20))
    assert project(matrix, 1.0, max_components=2).shape == (6, 2)


@pytest.mark.parametrize(
    ("eigenvalues", "threshold", "count"),
    [([95.0, 5.0], 0.95, 1), ([94.0, 6.0], 0.95, 2), ([0.0, 0.0], 0.95, 1), ([1.0, 1.0, 1.0], 1.0, 3)],
)
def test_the_fewest_components_that_explain_the_share(eigenvalues: list[float], threshold: float, count: int) -> None:
    assert components_for_variance(np.array(eigenvalues), threshold) == count


def test_what_cannot_be_projected_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        project(np.zeros((0, 3)))
    with pytest.raises(ValueError, match="one length"):
        project([np.ones(3), np.ones(4)])
    with pytest.raises(ValueError, match="too large"):
        project([[1e200, 1.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="finite"):
        project([[np.nan, 1.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="variance_threshold"):
        project(np.ones((2, 2)), 0.0)
