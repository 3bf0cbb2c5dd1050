import json
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.wire.errors import WireError
from edge_agent.wire.tensors import Weights, check_weights, decode_weights, encode_weights
from tests.wire.arrays import specs_of, weights


@given(tensors=weights())
def test_weights_come_back_bit_for_bit(tensors: Weights) -> None:
    decoded = decode_weights(encode_weights(tensors))
    assert set(decoded) == set(tensors)
    for name, tensor in tensors.items():
        assert decoded[name].shape == tensor.shape
        assert decoded[name].tobytes() == tensor.tobytes()
    check_weights(decoded, specs_of(tensors))


@given(tensors=weights())
def test_the_order_of_names_and_the_memory_layout_do_not_change_the_bytes(tensors: Weights) -> None:
    shuffled = {name: np.array(tensors[name], order="F") for name in reversed(list(tensors))}
    assert encode_weights(shuffled) == encode_weights(tensors)


def test_another_process_makes_the_same_bytes() -> None:
    program = (
        "import numpy as np, hashlib\n"
        "from edge_agent.wire.tensors import encode_weights\n"
        "t = {f'layer{i}.w': np.full((i + 1, 2), i, np.float32) for i in range(9)}\n"
        "print(hashlib.sha256(encode_weights(t)).hexdigest())"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout


@given(payload=st.binary(max_size=200))
def test_any_bytes_are_weights_or_a_wire_error(payload: bytes) -> None:
    decode_or_wire_error(payload)


@given(tensors=weights(), data=st.data())
def test_changed_bytes_are_weights_or_a_wire_error(tensors: Weights, data: st.DataObject) -> None:
    payload = bytearray(encode_weights(tensors))
    position = data.draw(st.integers(0, min(len(payload) - 1, 300)))
    payload[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    decode_or_wire_error(bytes(payload))


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 800]}},
        {"w": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"w": {"dtype": "F32", "shape": [1] * 100 + [2], "data_offsets": [0, 8]}},
        {"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}},
        {"w": {"dtype": "I8", "shape": [8], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F99", "shape": [8], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32"}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {}},
        [],
        "text",
    ],
    ids=str,
)
def test_a_header_that_lies_is_refused(header: object) -> None:
    text = json.dumps(header).encode()
    with pytest.raises(WireError):
        decode_weights(struct.pack("<Q", len(text)) + text + bytes(8))


@pytest.mark.parametrize("length", [0, 1, 99_999_999, 2**40, 2**64 - 1])
def test_a_header_length_that_lies_is_refused(length: int) -> None:
    with pytest.raises(WireError):
        decode_weights(struct.pack("<Q", length) + b"{}" + bytes(8))


def test_weights_over_the_cap_are_not_read() -> None:
    with pytest.raises(WireError, match="cap"):
        decode_weights(bytes(101), cap_bytes=100)


@given(tensors=weights(), data=st.data())
def test_weights_that_do_not_fit_are_refused_by_name(tensors: Weights, data: st.DataObject) -> None:
    specs = specs_of(tensors)
    name = data.draw(st.sampled_from(sorted(tensors)))
    without = {key: tensor for key, tensor in tensors.items() if key != name}
    misshapen: dict[str, NDArray[Any]] = {**tensors, name: tensors[name][None]}
    wide: dict[str, NDArray[Any]] = {**tensors, name: tensors[name].astype(np.float64)}
    faults: list[tuple[dict[str, Any], str]] = [(without, "missing"), (misshapen, "shape"), (wide, "float64")]
    for wrong, problem in faults:
        with pytest.raises(WireError, match=problem) as caught:
            check_weights(wrong, specs)
        assert repr(name) in caught.value.problem
    with pytest.raises(WireError, match="extra"):
        check_weights(tensors, [spec for spec in specs if spec.name != name])


@given(tensors=weights(finite=False))
def test_weights_that_are_not_finite_are_refused(tensors: Weights) -> None:
    with pytest.raises(WireError, match="not finite"):
        check_weights(tensors, specs_of(tensors))


def decode_or_wire_error(payload: bytes) -> None:
    try:
        decoded = decode_weights(payload)
    except WireError:
        return
    assert all(tensor.dtype == np.float32 for tensor in decoded.values())
