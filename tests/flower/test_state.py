import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.errors import DataError
from server_bridge.flower.state import StrategyState, decode_state, encode_state

documents = st.dictionaries(st.text(max_size=8), st.integers() | st.none() | st.lists(st.floats(-1, 1)), max_size=4)


@given(documents, st.integers(0, 100))
def test_round_trip(document: dict[str, object], seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = {
        "cohort/c1": {"w": rng.normal(size=(2, 3)).astype(np.float32), "n": np.array(5), "e": np.zeros((0,))},
        "m": {"w": rng.normal(size=4)},
        "empty": {},
    }
    state = StrategyState(document=document, tensors=tensors)
    payload = encode_state(state)
    back = decode_state(payload)
    assert back.document == json.loads(json.dumps(document))
    assert {g: list(t) for g, t in back.tensors.items()} == {g: list(tensors[g]) for g in sorted(tensors)}
    for group, named in tensors.items():
        for name, tensor in named.items():
            assert back.tensors[group][name].dtype == tensor.dtype
            assert (back.tensors[group][name] == tensor).all()
    assert encode_state(back) == payload


@given(st.binary(max_size=200))
def test_other_bytes_are_a_data_error(payload: bytes) -> None:
    with pytest.raises(DataError):
        decode_state(payload)


def test_a_cut_state_is_a_data_error() -> None:
    payload = encode_state(StrategyState(document={"a": 1}, tensors={"m": {"w": np.ones(9)}}))
    for length in range(len(payload)):
        with pytest.raises(DataError):
            decode_state(payload[:length])
