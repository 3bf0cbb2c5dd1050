"""Principal-component scores of few very long rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from server_bridge.cohorts.gram import centred_gram, gram_matrix

VARIANCE_THRESHOLD = 0.95  # N L et al. 2024, section 3
# Centring identical rows leaves about one rounding a value: variance below this share is none.
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


def project(
    matrix: ArrayLike | Sequence[NDArray[Any]],
    variance_threshold: float = VARIANCE_THRESHOLD,
    center: bool = False,
    max_components: int | None = None,
) -> NDArray[np.float64]:
    """Scores on the fewest components that explain a share of the variance.

    The scores are U L^(1/2) of S S^T = U L U^T, identical to S V of S^T S = V L V^T up to the
    sign of a component; S^T S (d, d) is never formed.

    Args:
        matrix: (n, d) a row a client, or n rows (d,), finite; they may be mapped from files.
        variance_threshold: share in (0, 1].
        center: whether the column means are subtracted; the paper's form is ``False``.
        max_components: the most components, or ``None``.

    Returns:
        (n, r) float64, 1 <= r <= n; the largest entry of a component is positive. One row, or
        rows without variance: (n, 1) zeros.

    Raises:
        ValueError: no matrix, no row, not finite (or squares beyond float64), or a threshold
            outside (0, 1].

    Source: N L et al. 2024, Algorithm 3 lines 12-15.
    Cost: O(n^2 d + n^3) time, O(n^2) memory beside the input, which is never copied.
    """
    rows = _rows(matrix)
    if not 0 < variance_threshold <= 1:
        raise ValueError(f"variance_threshold must lie in (0, 1], not {variance_threshold}")
    gram = _spread(rows, center)
    if not np.isfinite(gram).all():
        raise ValueError("the matrix is not finite, or its squares are too large for float64")
    if len(rows) == 1:
        return np.zeros((1, 1), np.float64)
    return _scores(gram, variance_threshold, max_components)


def components_for_variance(eigenvalues: NDArray[np.float64], threshold: float) -> int:
    """How many of the descending eigenvalues (n,) make up a share of their sum; at least 1."""
    total = float(eigenvalues.sum())
    if total <= 0:
        return 1
    shares = np.cumsum(eigenvalues) / total
    return min(int(np.searchsorted(shares, threshold)) + 1, eigenvalues.size)


def _rows(matrix: ArrayLike | Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Views of the rows."""
    whole: Any = matrix
    rows = [np.asanyarray(row) for row in whole]
    shapes = {row.shape for row in rows}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"the matrix must have rows of one length, their shapes are {sorted(shapes)}")
    return rows


def _spread(rows: list[NDArray[Any]], center: bool) -> NDArray[np.float64]:
    if not center:
        return gram_matrix(rows)
    gram, squares = centred_gram(rows)
    rounding = squares * len(rows) * _ROUNDING**2
    return np.zeros_like(gram) if float(np.trace(gram)) <= rounding else gram


def _scores(gram: NDArray[np.float64], threshold: float, max_components: int | None) -> NDArray[np.float64]:
    ascending, vectors = np.linalg.eigh(gram)
    eigenvalues = np.clip(ascending[::-1], 0.0, None)
    count = components_for_variance(eigenvalues, threshold)
    if max_components is not None:
        count = max(1, min(count, max_components))
    scores = vectors[:, ::-1][:, :count] * np.sqrt(eigenvalues[:count])
    largest = np.abs(scores).argmax(axis=0)
    signs = np.where(scores[largest, np.arange(count)] < 0, -1.0, 1.0)
    return np.asarray(scores * signs, np.float64)
