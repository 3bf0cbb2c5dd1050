"""What the monitor remembers is stored whole, small, and named where it is damaged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.drift.sequential.loss_level import LossLevelState, rebaseline
from edge_agent.errors import DataError
from tests.drift.sequential.streams import SIZE, default_params, run
from tests.drift.streams import clean_losses

PARAMS = default_params()


@given(batches=st.integers(0, 12), rebased=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_a_state_that_was_stored_goes_on_bit_for_bit(batches: int, rebased: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = LossLevelState.start(PARAMS)
    state = rebaseline(PARAMS, state) if rebased else state
    state, _ = run(PARAMS, state, clean_losses(batches * SIZE, rng))
    restored = LossLevelState.from_arrays(PARAMS, state.to_arrays())
    more = clean_losses(3 * SIZE, rng)
    (one, found), (other, again) = run(PARAMS, state, more), run(PARAMS, restored, more)
    assert found == again
    for name, array in one.to_arrays().items():
        assert array.tobytes() == other.to_arrays()[name].tobytes()


def test_the_state_is_small_and_never_grows() -> None:
    sizes = set()
    state = LossLevelState.start(PARAMS)
    for losses in (np.zeros(SIZE), np.full(SIZE, 7.0), clean_losses(40 * SIZE, np.random.default_rng(0))):
        state, _ = run(PARAMS, rebaseline(PARAMS, state), losses)
        sizes.add(sum(array.nbytes for array in state.to_arrays().values()))
    assert len(sizes) == 1
    assert sizes.pop() < 10_000


@pytest.mark.parametrize("name", list(LossLevelState.start(PARAMS).to_arrays()))
def test_a_stored_array_that_is_absent_or_misshapen_is_named(name: str) -> None:
    arrays = LossLevelState.start(PARAMS).to_arrays()
    for damaged in (
        {key: array for key, array in arrays.items() if key != name},
        arrays | {name: arrays[name][:-1]},
        arrays | {name: arrays[name].astype(np.float32)},
    ):
        with pytest.raises(DataError, match=f"'{name}'"):
            LossLevelState.from_arrays(PARAMS, damaged)
