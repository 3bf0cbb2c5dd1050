"""The arrays of monitors as a file."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.drift.arrays import decode_drift_arrays, encode_drift_arrays
from edge_agent.errors import DataError


def test_arrays_come_back_bit_for_bit_with_their_types() -> None:
    given_ = {
        "loss-level": {"scores": np.array([0.1, np.inf]), "numbers": np.arange(3)},
        "label-free": {"edges.of.x": np.zeros((2, 0), np.float32), "scalar": np.array(7, np.int32)},
    }
    read = decode_drift_arrays(encode_drift_arrays(given_))
    assert read.keys() == given_.keys()
    for monitor, arrays in given_.items():
        for name, array in arrays.items():
            assert read[monitor][name].dtype == array.dtype
            assert read[monitor][name].shape == array.shape
            assert read[monitor][name].tobytes() == array.tobytes()
            read[monitor][name].flags.writeable = True


def test_the_same_arrays_are_the_same_bytes() -> None:
    one = {"a": {"x": np.ones(2), "y": np.zeros(1)}, "b": {"z": np.ones(1)}}
    other = {"b": {"z": np.ones(1)}, "a": {"y": np.zeros(1), "x": np.ones(2)}}
    assert encode_drift_arrays(one) == encode_drift_arrays(other)


@given(st.binary(max_size=200))
def test_any_bytes_give_arrays_or_a_data_error(payload: bytes) -> None:
    with contextlib.suppress(DataError):
        decode_drift_arrays(payload)


def test_a_tensor_of_no_monitor_is_named() -> None:
    from safetensors.numpy import save

    with pytest.raises(DataError, match="'orphan' names no monitor"):
        decode_drift_arrays(save({"orphan": np.zeros(1)}))
