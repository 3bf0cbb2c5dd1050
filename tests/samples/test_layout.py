import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.samples.layout import FeatureLayout, finite_rows
from edge_agent.wire.manifest import TensorSpec
from tests.samples.served import INPUTS


@given(hnp.arrays(np.float32, st.tuples(st.integers(0, 6), st.just(2), st.just(3))), st.data())
def test_features_come_back_bit_for_bit(x: NDArray[np.float32], data: st.DataObject) -> None:
    k = data.draw(hnp.arrays(np.int64, len(x)))
    layout = FeatureLayout(INPUTS)
    blobs = layout.pack({"x": x, "k": k}, range(len(x)))
    assert all(len(blob) == layout.row_bytes for blob in blobs)
    back = layout.unpack(blobs)
    assert back["x"].tobytes() == x.tobytes()
    assert back["x"].shape == x.shape
    np.testing.assert_array_equal(back["k"], k)


def test_only_the_rows_asked_for_are_packed() -> None:
    layout = FeatureLayout([TensorSpec(name="x", dtype="float32", shape=["n"])])
    back = layout.unpack(layout.pack({"x": np.arange(5, dtype=np.float32)}, [1, 4]))
    assert back["x"].tolist() == [1.0, 4.0]


def test_other_inputs_have_another_digest() -> None:
    digests = {FeatureLayout([spec]).digest for spec in INPUTS} | {FeatureLayout(INPUTS).digest}
    assert len(digests) == 3


@pytest.mark.parametrize("shape", [[], ["n", "time"], ["n", 3, "time"]])
def test_a_free_dimension_besides_the_batch_is_refused_by_name(shape: list[int | str]) -> None:
    with pytest.raises(DataError, match="'wave'"):
        FeatureLayout([TensorSpec(name="wave", dtype="float32", shape=shape)])


def test_missing_and_misshapen_inputs_and_blobs_are_refused_by_name() -> None:
    layout = FeatureLayout(INPUTS)
    with pytest.raises(DataError, match="'k' is missing"):
        layout.pack({"x": np.zeros((1, 2, 3), dtype=np.float32)}, [0])
    with pytest.raises(DataError, match="'x' has shape"):
        layout.pack({"x": np.zeros((1, 3, 2), dtype=np.float32), "k": np.zeros(1, dtype=np.int64)}, [0])
    with pytest.raises(DataError, match="not as long"):
        layout.unpack([b"123"])


def test_rows_with_a_feature_that_is_not_finite_are_found() -> None:
    x = np.zeros((3, 2), dtype=np.float32)
    x[1, 0], x[2, 1] = np.nan, np.inf
    assert finite_rows({"x": x, "k": np.zeros(3, dtype=np.int64)}).tolist() == [True, False, False]
