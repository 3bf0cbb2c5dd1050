import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import load, save

from edge_agent.errors import DataError
from edge_agent.runtime.packing import decoded, encoded

TYPES = st.sampled_from([np.float32, np.float64, np.int16, np.int64, np.uint64])
ARRAYS = st.dictionaries(
    st.text("abcdefgh.0123", min_size=1, max_size=8),
    TYPES.flatmap(lambda kind: npst.arrays(kind, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))),
    min_size=1,
    max_size=5,
)


@given(ARRAYS)
def test_arrays_come_back_bit_for_bit_also_by_the_formats_own_reader(arrays: dict[str, np.ndarray]) -> None:
    payload = encoded(arrays)
    for found in (decoded(payload), load(payload)):
        assert set(found) == set(arrays)
        for name, array in arrays.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert found[name].tobytes() == array.tobytes()


def test_arrays_that_do_not_lie_in_a_row_are_written_as_they_are_read() -> None:
    table = np.arange(12.0).reshape(3, 4)
    found = decoded(encoded({"turned": table.T, "some": table[:, 1]}))
    assert np.array_equal(found["turned"], table.T)
    assert np.array_equal(found["some"], table[:, 1])


def test_what_the_format_s_own_writer_wrote_is_read() -> None:
    assert decoded(save({"x": np.ones(3)}))["x"].tolist() == [1.0, 1.0, 1.0]


def test_other_types_are_refused_by_name() -> None:
    with pytest.raises(KeyError, match="c16"):
        encoded({"x": np.ones(2, np.complex128)})
    with pytest.raises(DataError, match="no bytes"):
        decoded("text")
