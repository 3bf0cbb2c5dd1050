import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from server_bridge.cohorts.gram import BLOCK_COLUMNS, distance, gram_matrix


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 100), st.booleans(), st.booleans())
def test_blocks_give_the_plain_product(seed: int, center: bool, shifted: bool) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((4, BLOCK_COLUMNS // 8 * 9), dtype=np.float32)
    origin = rng.standard_normal(BLOCK_COLUMNS // 8 * 9, dtype=np.float32)
    rows = matrix.astype(np.float64) - shifted * origin
    rows = rows - center * np.mean(rows, axis=0)
    got = gram_matrix(matrix, origins=[origin] * 4 if shifted else None, center=center)
    np.testing.assert_allclose(got, rows @ rows.T, rtol=1e-9, atol=1e-6)


def test_the_distance_spans_blocks() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 2 * BLOCK_COLUMNS + 3))
    np.testing.assert_allclose(distance(left, right), np.linalg.norm(left - right), rtol=1e-12)
