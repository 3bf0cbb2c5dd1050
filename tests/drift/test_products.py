import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.drift.products import by_batch


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 40), st.integers(0, 40), st.integers(0, 999))
def test_a_batchs_product_is_bit_for_bit_what_it_is_alone(
    size: int, count: int, width: int, out: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count * size, width)).astype(np.float32)
    matrix = rng.normal(size=(width, out) if out else width).astype(np.float32)
    found = by_batch(rows, matrix, size)
    assert found.shape == (count * size, *matrix.shape[1:])
    for start in range(0, len(rows), size):
        assert found[start : start + size].tobytes() == (rows[start : start + size] @ matrix).tobytes()


def test_rows_that_are_no_whole_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="reshape"):
        by_batch(np.ones((5, 2)), np.ones((2, 2)), 3)
